"""Find out whether a server understands requests in CBOR."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from kinesumer.aws.errors import foreign
from kinesumer.errors import (
    ExpiredIteratorError,
    KeyUnavailableError,
    KinesumerError,
    SlowAnswerError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.runtime.refusals import is_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGGER = logging.getLogger("kinesumer")

# After so many failures in CBOR alone, a stream is read as JSON only.
MAX_CBOR_FAILURES = 3
# Errors that do not depend on the format.
_SAME_IN_JSON = (
    ExpiredIteratorError,
    KeyUnavailableError,
    SourceThrottledError,
    SlowAnswerError,
)


class CborSupport:
    """Counts failures of CBOR, which emulators of Kinesis often don't understand."""

    def __init__(self) -> None:
        # Successive reads that failed in CBOR and then succeeded in JSON.
        self.failures = 0
        # The time-out of a read in CBOR, until a read in JSON has ended.
        self._silence: KinesumerError | None = None

    @property
    def is_usable(self) -> bool:
        """Return whether to ask for CBOR."""
        return self._silence is None and self.failures < MAX_CBOR_FAILURES

    def may_explain(self, error: KinesumerError) -> bool:
        """Return whether the same read may succeed in JSON.

        After a time-out, it is the next read that is tried in JSON.
        """
        cause = error.__cause__
        if isinstance(error, _SAME_IN_JSON) or is_refusal(error):
            return False
        if isinstance(cause, ClientError):
            return True
        if isinstance(cause, TimeoutError):
            self._silence = error
            return False
        if isinstance(cause, foreign()):
            # Some servers close the connection when they can't read a request.
            is_dropped = isinstance(cause, ConnectionError)
            return is_dropped and not isinstance(cause, ConnectionRefusedError)
        return isinstance(error, SourceUnavailableError)

    @contextmanager
    def confirmed_by_json(self, label: str) -> Iterator[None]:
        """Read in JSON in the block. If that succeeds, CBOR explains a time-out."""
        silence, self._silence = self._silence, None
        yield
        if silence is not None:
            self.failed(label, silence)

    def failed(self, label: str, error: KinesumerError) -> None:
        """Note that a read failed in CBOR and then succeeded in JSON."""
        self.failures += 1
        if self.failures == MAX_CBOR_FAILURES:
            LOGGER.info("%s is read as JSON, because CBOR fails: %s", label, error)
