"""Limit the writes to a state store to a rate that the table accepts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from kinesumer.core.backoff import CHECK_SECONDS
from kinesumer.core.congestion import WriteRate
from kinesumer.errors import StoreThrottledError
from kinesumer.ports import Clock, StateStore, Write, WriteResult

PARALLEL_WRITES = 32  # maximum concurrent writes of one client


class PacedStore:
    """A ``ports.StateStore`` with a limited write rate.

    Throttled writes reduce the rate. No write is sent while ``must_wait()`` is true: it
    is after a throttled heartbeat, whose retry comes first. Reads aren't limited.
    """

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        random: random.Random,
        must_wait: Callable[[], bool] = bool,
    ) -> None:
        self.rate: WriteRate = WriteRate(clock.now())
        self.get, self.query, self.verify = store.get, store.query, store.verify
        self.query_not_updated_since = store.query_not_updated_since
        self._store = store
        self._clock = clock
        self._random = random
        self._must_wait = must_wait
        self._slots = asyncio.Semaphore(PARALLEL_WRITES)
        self._turn = asyncio.Lock()

    async def write(self, write: Write) -> WriteResult:
        """Apply a conditional write when the rate permits: see ``ports.StateStore``."""
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

    async def _wait(self) -> float:
        """Wait until a write may be sent; return the time at the end of the wait."""
        async with self._turn:
            while True:
                if self._must_wait():
                    await asyncio.sleep(CHECK_SECONDS)
                    continue
                now = self._clock.now()
                wait = self.rate.wait_seconds(now)
                if not wait:
                    return now
                await asyncio.sleep(wait)
