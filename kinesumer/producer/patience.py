"""Wait between attempts, and give up when Kinesis accepts nothing for a long time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kinesumer.core.backoff import CALL_BACKOFF
from kinesumer.errors import SourceUnavailableError

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

GIVE_UP_SECONDS = 300.0


class Patience:
    """The waits of one producer, and the time since which Kinesis accepts nothing.

    With ``waits_for_credentials``, only time with valid credentials counts.
    """

    def __init__(
        self,
        chance: random.Random,
        give_up_seconds: float,
        *,
        waits_for_credentials: bool = False,
    ) -> None:
        self._chance, self._give_up_seconds = chance, give_up_seconds
        self._waits_for_credentials = waits_for_credentials
        self._now = asyncio.get_running_loop().time
        self._last_accepted_at = self._now()

    def note_progress(self) -> None:
        """Note that Kinesis has accepted a record, or that nothing waits for it."""
        self._last_accepted_at = self._now()

    def note_failure(self, error: SourceUnavailableError) -> None:
        """Note that an attempt has failed."""
        if self._waits_for_credentials and error.lacks_credentials:
            self.note_progress()

    def require_progress(self, began: float, reason: str) -> None:
        """Raise SourceUnavailableError if Kinesis has accepted nothing for too long.

        ``began`` is the time of the first attempt, and ``reason`` is the last failure.
        """
        idle = self._now() - max(began, self._last_accepted_at)
        if idle > self._give_up_seconds:
            raise SourceUnavailableError(
                f"Kinesis has accepted no record for {idle:.0f} s, most recently "
                f"because of {reason}; does the stream have enough shards?"
            )

    async def until_available(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call and return its result. Try again while Kinesis is unavailable."""
        began, failures = self._now(), 0
        while True:
            try:
                return await call()
            except SourceUnavailableError as error:
                self.note_failure(error)
                self.require_progress(began, str(error))
                failures += 1
                await self.back_off(failures)

    async def back_off(self, failures: int) -> None:
        """Wait before the next attempt."""
        jitter = self._chance.random()
        await asyncio.sleep(CALL_BACKOFF.wait_seconds(failures, jitter))
