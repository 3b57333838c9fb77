"""Find out whether an endpoint understands requests in CBOR."""

from __future__ import annotations

import logging

from kinesumer.aws.errors import foreign
from kinesumer.errors import (
    ExpiredIteratorError,
    KeyUnavailableError,
    KinesumerError,
    SlowAnswerError,
    SourceThrottledError,
)
from kinesumer.runtime.refusals import is_refusal
from kinesumer.wire.decoder import compiled

LOGGER = logging.getLogger("kinesumer")

# Errors that do not depend on the format.
_SAME_IN_JSON = (
    ExpiredIteratorError,
    KeyUnavailableError,
    SourceThrottledError,
    SlowAnswerError,
)


class CborSupport:
    """Knows whether a stream is read in CBOR, which many emulators don't understand.

    The first read that succeeds decides. Later, a page that can't be decoded ends CBOR.
    """

    def __init__(self) -> None:
        self.is_usable: bool = compiled is not None
        self._is_confirmed = False

    def may_explain(self, error: KinesumerError) -> bool:
        """Return whether the same read may succeed in JSON."""
        if isinstance(error, _SAME_IN_JSON) or is_refusal(error):
            return False
        return not (self._is_confirmed and isinstance(error.__cause__, foreign()))

    def succeeded(self) -> None:
        """Record that a request in CBOR had a page as its answer."""
        self._is_confirmed = True

    def failed(self, label: str, error: KinesumerError) -> None:
        """Record that a read failed in CBOR and then succeeded in JSON."""
        if self.is_usable and self.may_explain(error):
            self.is_usable = False
            LOGGER.info("%s is read as JSON, because CBOR fails: %s", label, error)
