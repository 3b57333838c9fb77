"""Run a client's state store on a real thread, in real time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from kinesumer.coordination.state_store import StoreThread
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.testing.memory import MemoryStore
from tests.support.world import context_of


@asynccontextmanager
async def store_thread(store: MemoryStore) -> AsyncIterator[StoreThread]:
    """Yield a thread that uses this store. The thread ends with the block."""

    @asynccontextmanager
    async def open_store() -> AsyncIterator[MemoryStore]:
        yield store

    thread = StoreThread(open_store)
    try:
        yield thread
    finally:
        await thread.stop()


async def thread_context(thread: StoreThread, **config: Any) -> ClientContext:
    """Start a thread, and return the context of a client that uses its store."""
    clock, ids = SystemClock(), map(str, count())
    config = {"heartbeat_interval_seconds": 0.1, **config}
    store = await thread.start()
    return context_of("c1", store, clock, lambda: next(ids), **config)
