"""Test that a heartbeat thread starts, reports its end, and then sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kinesumer.coordination.heartbeat import Heartbeater
from kinesumer.coordination.heartbeat_thread import HeartbeatThread
from kinesumer.coordination.membership import Event, Failed, SessionRenewed
from kinesumer.coordination.store_thread import StoreThreadEndedError
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.testing.memory import MemoryStore
from tests.support.threads import store_thread, thread_context


@asynccontextmanager
async def running(store: MemoryStore) -> AsyncIterator[HeartbeatThread]:
    """Return the runner of a heartbeat, on a thread that ends when the block ends."""
    async with store_thread(store) as thread:
        context = await thread_context(thread, lease_duration_seconds=1.0)
        yield HeartbeatThread(context, thread)


def make(context: ClientContext, notify: Callable[[Event], None]) -> Heartbeater:
    return Heartbeater(
        context, streams=frozenset({"s"}), notify=notify, oldest_work=lambda: None
    )


class Events:
    """The events of a heartbeater, in order."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self._changed = asyncio.Event()

    def take(self, event: Event) -> None:
        self.seen.append(event)
        self._changed.set()

    async def until(self, kind: type[Event]) -> Event:
        """Return the first event of a kind; wait for it if there is none yet."""
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
