"""The identity, configuration and ports of one client."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kinesumer.errors import (
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
    from kinesumer.model.rows import Key, Row
    from kinesumer.ports import Clock, StateStore, Write, WriteResult
    from kinesumer.runtime.failure_log import FailureLog

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientContext:
    """One client's identity, configuration and ports."""

    app: str
    client_id: str
    config: Config
    store: StateStore
    clock: Clock
    random: random.Random
    new_id: Callable[[], str]
    failure_log: FailureLog
    telemetry: Telemetry = field(default_factory=Telemetry)
    retry_seconds: float = math.inf
    """How long a call is retried while a service is unavailable. Clients never stop."""
    _loop_clock: LoopClock | None = None

    def __post_init__(self) -> None:
        """Create the event loop's clock. Copies by ``replace()`` share it."""
        if self._loop_clock is None:
            object.__setattr__(self, "_loop_clock", LoopClock(self.clock))

    @property
    def loop_clock(self) -> LoopClock:
        """The clock that stops while the client's event loop is blocked."""
        assert self._loop_clock is not None
        return self._loop_clock

    async def write(self, write: Write) -> WriteResult:
        """Write, and retry while the store is unavailable.

        An attempt without a response may have been applied. The next attempt's
        condition fails then, and the caller must examine the returned row.
        """
        return await self.until_available(lambda: self.store.write(write))

    async def read(self, key: Key) -> Row | None:
        """Read one row consistently, and retry while the store is unavailable."""
        return await self.until_available(lambda: self.store.get(key))

    def parse_row(self, read: Callable[[Row], T], row: Row | None) -> T | None:
        """Return a row's value, or None if the row is missing or corrupt."""
        values = self.parse_rows(read, () if row is None else (row,))
        return values[0] if values else None

    def parse_rows(self, read: Callable[[Row], T], found: Iterable[Row]) -> list[T]:
        """Return what rows say, without those that can't be read."""
        said, wrong = rows.parse_rows(read, found)
        for _, error in wrong:
            self.failure_log.record_corrupt_row(error)
        return said

    async def until_available(
        self, call: Callable[[], Awaitable[T]], what: str = "state store"
    ) -> T:
        """Retry a call with backoff and jitter while the service is unavailable.

        Raise the last error after ``retry_seconds``.
        """
        delay, deadline = 0.1, self.clock.now() + self.retry_seconds
        while True:
            try:
                result = await call()
            except (StoreUnavailableError, SourceUnavailableError) as error:
                if self.clock.now() >= deadline:
                    raise
                self.failure_log.record_failure(what, error)
                await asyncio.sleep(delay * (0.5 + self.random.random()))
                delay = min(2 * delay, 2.0)
            else:
                self.failure_log.record_success(what)
                return result
