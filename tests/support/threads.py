"""Run a client's state store on a real thread, in real time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from kinesumer.config import Config
from kinesumer.coordination.store_thread import StoreThread
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.runtime.incidents import IncidentLog
from tests.support.world import APP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesumer.testing.memory import MemoryStore


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
    return ClientContext(
        app=APP,
        client_id="c1",
        config=Config(heartbeat_interval_seconds=0.1, **config),
        store=await thread.start(),
        clock=clock,
        random=Random(1),
        new_id=lambda: next(ids),
        failure_log=FailureLog(clock),
        incidents=IncidentLog(clock),
    )
