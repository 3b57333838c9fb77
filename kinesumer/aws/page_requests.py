"""Read pages: in CBOR if the endpoint understands it, and with room for a page."""

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
from kinesumer.ports import Reservation
from kinesumer.runtime.refusals import is_refusal
from kinesumer.runtime.timeouts import timeout
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


class PatientReservation:
    """A reservation that pauses the call's time-out while it waits for memory."""

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self.limit: timeout
        self.has_begun = False  # whether the response's head has arrived

    def covers(self, size: int | None) -> bool:
        """Return whether a response of ``size`` bytes fits in the reserved memory."""
        self.has_begun = True
        return self._reservation.covers(size)

    def shrink(self, size: int) -> None:
        """Release the memory that a response of ``size`` bytes doesn't need."""
        self._reservation.shrink(size)

    async def grow(self, size: int | None) -> None:
        """Wait until memory is reserved for a response of ``size`` bytes."""
        self.has_begun = True
        self.limit.pause()
        await self._reservation.grow(size)
        self.limit.resume()
