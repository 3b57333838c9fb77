"""What every part of one client needs: who it is, and the world it lives in."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kinesumer.errors import (
    CorruptRowError,
    SourceUnavailableError,
    StoreUnavailableError,
)
from kinesumer.runtime.clock import LoopClock
from kinesumer.telemetry.api import Telemetry
from kinesumer.wire import rows

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterable

    from kinesumer.config import Config
    from kinesumer.errors import ShardThrottledError
    from kinesumer.model.rows import Key, Row
    from kinesumer.ports import Clock, StateStore, Write, Written

logger = logging.getLogger("kinesumer")

T = TypeVar("T")


CALM_SECONDS = 5.0
"""Something works again when it hasn't failed for this long: no log line per call."""
CALM_READS_SECONDS = 300.0
"""Apps that share a shard well meet a refusal now and then: it is one episode."""
REMIND_SECONDS = 60.0
"""A row that can't be read is logged so often as long as it is met."""
MOST_REMEMBERED = 1000


class Health:
    """Says once when something stops working, and once when it works again."""

    def __init__(self, clock: Clock, telemetry: Telemetry | None = None) -> None:
        self._clock = clock
        self._telemetry = telemetry or Telemetry()
        self._failing: dict[str, tuple[float, float]] = {}
        self._throttled: dict[str, tuple[float, float]] = {}
        self._corrupt: dict[str, float] = {}
        """When a corrupt row was last logged, by what there is to say of it."""

    def failed(self, what: str, error: Exception) -> None:
        """Note a failure; the first of a row of them is logged."""
        self._telemetry.failed(error)
        now = self._clock.now()
        since, _ = self._failing.get(what, (now, now))
        if what not in self._failing:
            logger.warning(
                "%s fails, trying again: %s",
                what,
                error,
                extra={"object": what, "error": str(error)},
            )
        self._failing[what] = since, now

    def throttled(self, stream: str, error: ShardThrottledError) -> None:
        """Note that a shard's reads are used up; the first of a row is logged."""
        self._telemetry.failed(error)
        now = self._clock.now()
        since, _ = self._throttled.get(stream, (now, now))
        if stream not in self._throttled:
            logger.warning(
                "Kinesis throttles %r (five reads per second and shard, shared by "
                "all apps): reading it more slowly; %s",
                stream,
                error,
                extra={"object": f"stream {stream}", "error": str(error)},
            )
        self._throttled[stream] = since, now

    def reads(self, stream: str) -> None:
        """Note that a read succeeded; the first one long after a refusal is logged."""
        if stream not in self._throttled:
            return
        since, last = self._throttled[stream]
        if self._clock.now() - last >= CALM_READS_SECONDS:
            del self._throttled[stream]
            logger.warning(
                "Kinesis no longer throttles %r, it did for %.1f s",
                stream,
                last - since,
                extra={"object": f"stream {stream}", "seconds": last - since},
            )

    def corrupt(self, error: CorruptRowError) -> None:
        """Note a row that can't be read; it is logged now and then until it is mended.

        It stops what it is about, and nothing else.
        """
        self._telemetry.corrupt_row()
        now, text = self._clock.now(), str(error)
        if now - self._corrupt.get(text, -REMIND_SECONDS) < REMIND_SECONDS:
            return
        if len(self._corrupt) >= MOST_REMEMBERED:
            self._corrupt.clear()
        self._corrupt[text] = now
        logger.error("%s", text, extra={"error": text})

    def works(self, what: str) -> None:
        """Note a success; the first one some time after a failure is logged."""
        # Two threads tell of the state store: look it up once.
        failing = self._failing.get(what)
        if failing is None:
            return
        since, last = failing
        if self._clock.now() - last >= CALM_SECONDS:
            self._failing.pop(what, None)
            logger.warning(
                "%s works again, it failed for %.1f s",
                what,
                last - since,
                extra={"object": what, "seconds": last - since},
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """One client's identity, configuration and ports."""

    app: str
    client_id: str
    config: Config
    store: StateStore
    clock: Clock
    random: random.Random
    new_id: Callable[[], str]
    health: Health
    telemetry: Telemetry = field(default_factory=Telemetry)
    patience_seconds: float = math.inf
    """How long a call is repeated that fails for now: a client goes on for ever."""
    _loop_clock: LoopClock | None = None

    def __post_init__(self) -> None:
        """Make the clock of the client's event loop; ``replace()`` keeps it."""
        if self._loop_clock is None:
            object.__setattr__(self, "_loop_clock", LoopClock(self.clock))

    @property
    def loop_clock(self) -> LoopClock:
        """The clock of the client's event loop, which stands still while it is held."""
        assert self._loop_clock is not None
        return self._loop_clock

    async def write(self, write: Write) -> Written:
        """Write, trying again while the store is unavailable: a definite answer.

        A try that was lost may have been applied; then the repeated one is refused with
        the row as it is, which the caller has to look at.
        """
        return await self.until_available(lambda: self.store.write(write))

    async def read(self, key: Key) -> Row | None:
        """Read one row consistently, trying again while the store is unavailable."""

        return await self.until_available(lambda: self.store.get(key))

    def readable(self, read: Callable[[Row], T], row: Row | None) -> T | None:
        """Return what a row says; None if it says nothing that can be read."""
        said = self.all_readable(read, () if row is None else (row,))
        return said[0] if said else None

    def all_readable(self, read: Callable[[Row], T], found: Iterable[Row]) -> list[T]:
        """Return what rows say, without those that can't be read."""
        said, wrong = rows.readable(read, found)
        for _, error in wrong:
            self.health.corrupt(error)
        return said

    async def until_available(
        self, call: Callable[[], Awaitable[T]], what: str = "state store"
    ) -> T:
        """Repeat a call until it answers, backed off with jitter.

        Raises what it failed with last when patience has run out.
        """
        delay, deadline = 0.1, self.clock.now() + self.patience_seconds
        while True:
            try:
                answer = await call()
            except (StoreUnavailableError, SourceUnavailableError) as error:
                if self.clock.now() >= deadline:
                    raise
                self.health.failed(what, error)
                await asyncio.sleep(delay * (0.5 + self.random.random()))
                delay = min(2 * delay, 2.0)
            else:
                self.health.works(what)
                return answer
