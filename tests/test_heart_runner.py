"""The heart's thread: started, told, and gone when it is stopped."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

from kinesumer.clock import SystemClock
from kinesumer.config import Config
from kinesumer.context import Context, Health
from kinesumer.heart_runner import ThreadHeart
from kinesumer.heartbeat import Alive, Event, Heart
from kinesumer.testing.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


def runner(store: MemoryStore) -> ThreadHeart:
    clock = SystemClock()
    context = Context(
        app="app",
        client_id="c1",
        config=Config(),
        store=store,
        clock=clock,
        random=Random(1),
        new_id=lambda: "s1",
        health=Health(clock),
    )

    @asynccontextmanager
    async def open_store() -> AsyncIterator[MemoryStore]:
        yield store

    return ThreadHeart(context, open_store)


def make(context: Context, notify: Callable[[Event], None]) -> Heart:
    return Heart(
        context, streams=frozenset({"s"}), notify=notify, oldest_work=lambda: None
    )


async def test_it_registers_and_is_gone_after_stop() -> None:
    store = MemoryStore(SystemClock())
    heart = runner(store)
    registered = asyncio.Event()
    events: list[Event] = []

    def take(event: Event) -> None:
        events.append(event)
        registered.set()

    heart.start(make, take)
    await registered.wait()
    assert isinstance(events[0], Alive)
    await heart.stop()
    assert heart._thread is not None
    assert not heart._thread.is_alive()


async def test_it_is_gone_even_if_it_is_stopped_before_it_got_anywhere() -> None:
    for _ in range(5):
        heart = runner(MemoryStore(SystemClock()))
        heart.start(make, lambda _: None)
        thread = heart._thread
        assert thread is not None
        async with asyncio.timeout(5):
            await heart.stop()
        assert not thread.is_alive()
