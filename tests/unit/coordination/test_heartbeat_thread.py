"""A heart on a thread: started, told, and silent when it is stopped."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

from kinesumer.config import Config
from kinesumer.coordination.events import Event, Failed, SessionRenewed
from kinesumer.coordination.heartbeat import Heartbeater
from kinesumer.coordination.heartbeat_thread import HeartbeatThread
from kinesumer.coordination.store_thread import StoreThread, StoreThreadEndedError
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.testing.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@asynccontextmanager
async def running(store: MemoryStore) -> AsyncIterator[HeartbeatThread]:
    """Return a heart's runner on a thread that ends with the block."""

    @asynccontextmanager
    async def open_store() -> AsyncIterator[MemoryStore]:
        yield store

    thread = StoreThread(open_store)
    clock = SystemClock()
    context = ClientContext(
        app="app",
        client_id="c1",
        config=Config(heartbeat_interval_seconds=0.1, lease_duration_seconds=1.0),
        store=await thread.start(),
        clock=clock,
        random=Random(1),
        new_id=lambda: "s1",
        failure_log=FailureLog(clock),
    )
    try:
        yield HeartbeatThread(context, thread)
    finally:
        await thread.stop()


def make(context: ClientContext, notify: Callable[[Event], None]) -> Heartbeater:
    return Heartbeater(
        context, streams=frozenset({"s"}), notify=notify, oldest_work=lambda: None
    )


class Events:
    """What a heart told, in order."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self._changed = asyncio.Event()

    def take(self, event: Event) -> None:
        self.seen.append(event)
        self._changed.set()

    async def until(self, kind: type[Event]) -> Event:
        """Return the next event of a kind that has come or comes."""
        async with asyncio.timeout(10):
            while not any(isinstance(event, kind) for event in self.seen):
                self._changed.clear()
                await self._changed.wait()
        return next(event for event in self.seen if isinstance(event, kind))


def beats(store: MemoryStore) -> object:
    [row] = store.rows("member#app")
    return row["beat"]


async def test_it_registers_and_sends_no_beat_after_stop() -> None:
    store, events = MemoryStore(SystemClock()), Events()
    async with running(store) as heart:
        heart.start(make, events.take)
        await events.until(SessionRenewed)
        await heart.stop()
        last = beats(store)
        await asyncio.sleep(0.3)
        assert beats(store) == last


async def test_it_ends_even_if_it_is_stopped_before_it_got_anywhere() -> None:
    for _ in range(5):
        store = MemoryStore(SystemClock())
        async with running(store) as heart:
            heart.start(make, lambda _: None)
            async with asyncio.timeout(5):
                await heart.stop()
                await heart.stop()


async def test_the_end_of_its_thread_is_reported() -> None:
    events = Events()
    async with running(MemoryStore(SystemClock())) as heart:
        heart.start(make, events.take)
        await events.until(SessionRenewed)
    failed = await events.until(Failed)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, StoreThreadEndedError)
    await heart.stop()
