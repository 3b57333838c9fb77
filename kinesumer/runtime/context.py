"""The identity, configuration and ports of one client."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Self, TypeVar

from kinesumer.config import Config
from kinesumer.core.backoff import CALL_BACKOFF, Backoff
from kinesumer.errors import (
    SourceThrottledError,
    SourceUnavailableError,
    StoreUnavailableError,
)
from kinesumer.model.rows import Key, Row
from kinesumer.ports import Clock, RowLeases, StateStore, Write, WriteResult
from kinesumer.runtime.clock import LoopClock
from kinesumer.runtime.failure_log import FailureLog, IncidentLog
from kinesumer.telemetry.api import Telemetry
from kinesumer.wire import rows

T = TypeVar("T")

# All users of an account share the few calls that Kinesis allows it a second.
THROTTLED_BACKOFF = Backoff(1.0, CALL_BACKOFF.longest_seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientContext:
    """One client's identity, configuration and ports, as ``create()`` joins them."""

    app: str
    client_id: str
    config: Config
    store: StateStore
    clock: Clock
    random: Random
    new_id: Callable[[], str]
    failure_log: FailureLog
    incidents: IncidentLog
    telemetry: Telemetry
    # How long to retry while a service is unavailable.
    retry_seconds: float
    # The leases of single shards, if the state store has such leases.
    row_leases: RowLeases | None
    # This clock stops while the client's event loop is blocked.
    loop_clock: LoopClock

    @classmethod
    def create(
        cls,
        *,
        app: str,
        client_id: str,
        store: StateStore,
        clock: Clock,
        random: Random,
        new_id: Callable[[], str],
        config: Config | None = None,
        incidents: IncidentLog | None = None,
        telemetry: Telemetry | None = None,
        row_leases: RowLeases | None = None,
        retry_seconds: float = math.inf,
    ) -> Self:
        """Return a context that has its own logs and its own clock of the event loop.

        Copies made by ``replace()`` share them. Clients use the default of
        ``retry_seconds``, and retry forever.
        """
        telemetry = telemetry or Telemetry()
        return cls(
            app=app,
            client_id=client_id,
            config=config or Config(),
            store=store,
            clock=clock,
            random=random,
            new_id=new_id,
            failure_log=FailureLog(clock, telemetry),
            incidents=incidents or IncidentLog(clock),
            telemetry=telemetry,
            retry_seconds=retry_seconds,
            row_leases=row_leases,
            loop_clock=LoopClock(clock),
        )

    async def write(self, write: Write) -> WriteResult:
        """Write, and retry while the store is unavailable.

        If an attempt got no response, the store may have applied it nevertheless. In
        this case the next attempt's condition fails, and the caller must examine the
        returned row.
        """
        return await self.until_available(lambda: self.store.write(write))

    async def read(self, key: Key) -> Row | None:
        """Read one row consistently, and retry while the store is unavailable."""
        return await self.until_available(lambda: self.store.get(key))

    async def query(
        self, pk: str, *, first: str = "", consistent: bool = True
    ) -> list[Row]:
        """Read a partition's rows from ``first`` on, and retry as in ``read()``."""
        return await self.until_available(
            lambda: self.store.query(pk, first=first, consistent=consistent)
        )

    def parse_row(self, read: Callable[[Row], T], row: Row | None) -> T | None:
        """Return a row's value, or None if the row is missing or corrupt."""
        values = self.parse_rows(read, () if row is None else (row,))
        return values[0] if values else None

    def parse_rows(self, read: Callable[[Row], T], stored: Iterable[Row]) -> list[T]:
        """Return the values of rows, and leave out rows that can't be parsed."""
        # A corrupt row must not affect the streams, shards and members of the other
        # rows.
        values, errors = rows.parse_rows(read, stored)
        for _, error in errors:
            self.failure_log.record_corrupt_row(error)
        return values

    async def until_available(
        self, call: Callable[[], Awaitable[T]], what: str = "state store"
    ) -> T:
        """Retry a call with backoff and jitter while the service is unavailable.

        Raise the last error after ``retry_seconds``.
        """
        failures, deadline = 0, self.clock.now() + self.retry_seconds
        while True:
            try:
                result = await call()
            except (StoreUnavailableError, SourceUnavailableError) as error:
                if self.clock.now() >= deadline:
                    raise
                self.failure_log.record_failure(what, error)
                failures += 1
                is_throttled = isinstance(error, SourceThrottledError)
                backoff = THROTTLED_BACKOFF if is_throttled else CALL_BACKOFF
                await asyncio.sleep(
                    backoff.wait_seconds(failures, self.random.random())
                )
            else:
                self.failure_log.record_success(what)
                return result
