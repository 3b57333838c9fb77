"""Test that calls to the state store run on a thread apart from the caller's loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kinesumer.coordination.store_thread import StoreThread, StoreThreadEndedError
from kinesumer.errors import StateStoreMissingError, StoreUnavailableError
from kinesumer.model.rows import Key, Row
from kinesumer.ports import StateStore
from kinesumer.runtime.clock import SystemClock
from kinesumer.testing.memory import MemoryStore
from tests.support.threads import store_thread

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
    @asynccontextmanager
    async def open_store() -> AsyncIterator[SlowStore]:
        yield SlowStore()

    thread = StoreThread(open_store)
    store = await thread.start()
    call = asyncio.create_task(store.query("pk"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await thread.stop()
    gc.collect()  # a coroutine that was never awaited would warn


async def test_what_opening_the_store_raises_is_raised_at_the_start() -> None:
    def missing() -> SlowStore:
        raise StateStoreMissingError("table t doesn't exist")

    @asynccontextmanager
    async def open_store() -> AsyncIterator[SlowStore]:
        yield missing()

    thread = StoreThread(open_store)
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
