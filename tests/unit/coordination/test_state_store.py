"""Test the store of a client: its thread, the pace of its writes, and its heartbeat."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import NoReturn

import pytest

from kinesumer.coordination.heartbeat import Heartbeater, HeartbeatThread
from kinesumer.coordination.membership import Event, Failed, SessionRenewed
from kinesumer.coordination.state_store import (
    PARALLEL_WRITES,
    PacedStore,
    StoreThread,
    StoreThreadEndedError,
)
from kinesumer.errors import (
    StateStoreMissingError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.rows import Key, Row
from kinesumer.ports import AllOf, StateStore, Write, WriteResult
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.testing.memory import MemoryStore
from tests.support.faulty import FaultyStore
from tests.support.members import store_thread, thread_context
from tests.support.world import World

KEY = Key("pk", "sk")


class SlowStore(MemoryStore):
    """A table that answers after some time, or not at all."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(SystemClock())
        self.seconds = seconds
        self.error: Exception | None = None
        self.asked = threading.Event()
        self.was_cancelled = threading.Event()
        self.threads: set[int] = set()

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return a row after some time, or time out as a call to AWS does."""
        self.threads.add(threading.get_ident())
        self.asked.set()
        try:
            async with asyncio.timeout(2 * self.seconds or None):
                await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise
        except TimeoutError:
            raise StoreUnavailableError("timed out") from None
        if self.error is not None:
            raise self.error
        return await super().get(key, consistent=consistent)


@asynccontextmanager
async def used(store: SlowStore) -> AsyncIterator[tuple[StateStore, StoreThread]]:
    """Return a store whose calls run on a thread, and this thread, for the block."""
    async with store_thread(store) as thread:
        yield await thread.start(), thread


async def test_an_answer_counts_though_the_callers_loop_was_blocked() -> None:
    slow = SlowStore(0.1)
    async with used(slow) as (store, _):
        asked = asyncio.create_task(store.get(KEY))
        await asyncio.sleep(0)
        assert slow.asked.wait(5)
        threading.Event().wait(0.3)  # block for longer than the call may take
        assert await asked is None
    assert threading.get_ident() not in slow.threads


async def test_each_call_reaches_the_store() -> None:
    async with used(SlowStore()) as (store, _):
        assert await store.get(KEY, consistent=False) is None
        assert await store.query("pk", first="a", last="b", consistent=True) == []
        assert await store.query_not_updated_since("pk", "2026") == []
        assert await store.verify()


async def test_what_the_store_raises_is_raised() -> None:
    slow = SlowStore()
    slow.error = StateStoreMissingError("table t doesn't exist")
    async with used(slow) as (store, _):
        with pytest.raises(StateStoreMissingError, match="table t doesn't exist"):
            await store.get(KEY)


async def test_a_call_that_is_cancelled_ends_on_the_thread_too() -> None:
    slow = SlowStore(30)
    async with used(slow) as (store, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await store.get(KEY)
        assert slow.was_cancelled.wait(5)


async def test_a_call_to_an_ended_thread_is_an_error() -> None:
    slow = SlowStore(30)
    async with used(slow) as (store, thread):
        asked = asyncio.create_task(store.get(KEY))
        await asyncio.sleep(0)
        assert slow.asked.wait(5)
        await thread.stop()
        with pytest.raises(StoreThreadEndedError):
            await asked
        with pytest.raises(StoreThreadEndedError):
            await store.get(KEY)
        thread.call_soon(print, "never")


@pytest.mark.parametrize(
    ("is_cancelled", "error"),
    [(False, StoreThreadEndedError), (True, asyncio.CancelledError)],
)
async def test_a_call_that_an_ending_thread_never_begins_is_an_error(
    error: type[BaseException], *, is_cancelled: bool
) -> None:
    closing, may_close = threading.Event(), threading.Event()

    @asynccontextmanager
    async def open_store() -> AsyncIterator[SlowStore]:
        loop = asyncio.get_running_loop()
        close = loop.close

        def wait_and_close() -> None:  # what is called meanwhile is never run
            closing.set()
            may_close.wait(5)
            close()

        loop.close = wait_and_close  # type: ignore[method-assign]
        yield SlowStore(30)

    thread = StoreThread(open_store)
    store = await thread.start()
    stopping = asyncio.create_task(thread.stop())
    await asyncio.to_thread(closing.wait, 5)
    asked = [asyncio.create_task(store.query("pk")) for _ in range(3)]
    await asyncio.sleep(0)
    for call in asked * is_cancelled:
        call.cancel()
    await asyncio.sleep(0)
    may_close.set()
    for call in asked:
        with pytest.raises(error):
            await call
    await stopping
    del asked, call
    gc.collect()  # a coroutine that was never awaited would warn


async def test_a_call_that_is_cancelled_before_it_begins_leaves_nothing() -> None:
    async with used(SlowStore()) as (store, _):
        call = asyncio.create_task(store.query("pk"))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    gc.collect()  # a coroutine that was never awaited would warn


async def test_what_opening_the_store_raises_is_raised_at_the_start() -> None:
    def missing() -> NoReturn:
        raise StateStoreMissingError("table t doesn't exist")

    thread = StoreThread(missing)
    with pytest.raises(StateStoreMissingError, match="table t doesn't exist"):
        await thread.start()
    await thread.stop()


async def test_stop_ends_a_cancelled_start() -> None:
    @asynccontextmanager
    async def open_store() -> AsyncIterator[SlowStore]:
        await asyncio.sleep(0.05)
        yield SlowStore()

    thread = StoreThread(open_store)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await thread.start()
    await thread.stop()


class Slow(FaultyStore):
    """A store that counts its concurrent writes, and keeps the largest count."""

    under_way = most = 0

    async def write(self, write: Write) -> WriteResult:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await super().write(write)
        finally:
            self.under_way -= 1


def write_of(number: int) -> Write:
    return Write(Key("p", str(number)), AllOf(), {"n": number})


async def test_some_writes_are_under_way_at_a_time(world: World) -> None:
    store = Slow(world.table)
    store.latency = 1.0
    paced = PacedStore(store, world.clock, Random(1))
    count = 2 * PARALLEL_WRITES
    await asyncio.gather(*(paced.write(write_of(n)) for n in range(count)))
    assert store.most == PARALLEL_WRITES
    assert [write.set["n"] for write in store.sent] == [*range(count)]


async def test_a_throttled_write_raises_and_slows_the_others(world: World) -> None:
    store = FaultyStore(world.table)
    paced = PacedStore(store, world.clock, Random(1))
    before = paced.rate.per_second
    store.spoil("throttled", "n")
    with pytest.raises(StoreThrottledError):
        await paced.write(write_of(1))
    assert paced.rate.per_second < before
    await paced.write(write_of(2))
    assert [row["n"] for row in world.table.rows("p")] == [2]


async def test_writes_wait_while_the_heartbeat_is_throttled(world: World) -> None:
    throttled = [True]
    store = FaultyStore(world.table)
    paced = PacedStore(store, world.clock, Random(1), lambda: throttled[-1])
    tasks = [
        asyncio.ensure_future(paced.write(write_of(n)))
        for n in range(2 * PARALLEL_WRITES)
    ]
    await asyncio.sleep(3)
    assert store.sent == []
    for task in tasks[:-1]:
        task.cancel()  # cancelled writes don't block later ones
    throttled.append(False)
    await asyncio.wait_for(tasks[-1], 1)
    assert len(store.sent) == 1


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
