"""A state store whose writes keep to a rate that the table accepts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.core.write_rate import WriteRate
from kinesumer.errors import StoreThrottledError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from kinesumer.model.rows import Key, Row
    from kinesumer.ports import Clock, StateStore, Write, WriteResult

PARALLEL_WRITES = 32
"""Maximum concurrent writes of one client."""
THROTTLE_CHECK_SECONDS = 0.05


class PacedStore:
    """A ``ports.StateStore`` with a limited write rate.

    Throttling reduces the rate. No write is sent while ``must_wait()`` is true, which
    means that a heartbeat was throttled: the heartbeat comes first. Reads aren't
    limited.
    """

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        random: random.Random,
        must_wait: Callable[[], bool] = bool,
    ) -> None:
        self.rate = WriteRate(clock.now())
        self._store = store
        self._clock = clock
        self._random = random
        self._must_wait = must_wait
        self._slots = asyncio.Semaphore(PARALLEL_WRITES)
        self._turn = asyncio.Lock()

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write in turn. See ``ports.StateStore``."""
        async with self._slots:
            sent_at = await self._wait()
            try:
                written = await self._store.write(write)
            except StoreThrottledError:
                jitter = self._random.random()
                self.rate.refused(sent_at, self._clock.now(), jitter)
                raise
            self.rate.accepted(self._clock.now())
            return written

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row, or None."""
        return await self._store.get(key, consistent=consistent)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return all rows of a partition with first <= sk <= last, ordered by sk."""
        return await self._store.query(
            pk, first=first, last=last, consistent=consistent
        )

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return the keys of a partition whose ``last_update`` is <= moment."""
        return await self._store.query_not_updated_since(pk, moment)

    async def verify(self) -> str:
        """Check that the table exists; return its id."""
        return await self._store.verify()

    async def _wait(self) -> float:
        """Wait until a write may be sent; return the time."""
        async with self._turn:
            while True:
                if self._must_wait():
                    await asyncio.sleep(THROTTLE_CHECK_SECONDS)
                    continue
                now = self._clock.now()
                wait = self.rate.wait_seconds(now)
                if not wait:
                    return now
                await asyncio.sleep(wait)
