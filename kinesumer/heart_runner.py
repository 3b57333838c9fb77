"""Where a heart runs: on a thread with an event loop and a connection of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kinesumer.heartbeat import Event, Failed, Heart

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kinesumer.context import Context
    from kinesumer.ports import StateStore


Notify = Callable[[Event], None]
MakeHeart = Callable[["Context", Notify], Heart]


class HeartRunner(Protocol):
    """What the group needs of whatever runs its heart."""

    def start(self, make_heart: MakeHeart, notify: Notify) -> None:
        """Start it; ``notify`` is called on the loop that calls this."""
        ...

    def tell(self, change: Callable[[Heart], None]) -> None:
        """Change something of the heart, on its own loop."""
        ...

    async def stop(self) -> None:
        """Stop it; no beat is sent after this returns."""
        ...


class TaskHeart:
    """Runs a heart as a task of the client's own loop: for simulations and tests."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._heart: Heart | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, make_heart: MakeHeart, notify: Notify) -> None:
        """Start the heart."""
        self._heart = make_heart(self._context, notify)
        self._task = asyncio.get_running_loop().create_task(self._heart.run())

    def tell(self, change: Callable[[Heart], None]) -> None:
        """Change something of the heart."""
        if self._heart is not None:
            change(self._heart)

    async def stop(self) -> None:
        """Stop the heart; no beat is sent after this returns."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class ThreadHeart:
    """Runs a heart where user code that blocks the client's loop can't stop it."""

    def __init__(
        self,
        context: Context,
        open_store: Callable[[], AbstractAsyncContextManager[StateStore]],
    ) -> None:
        self._context = context
        self._open_store = open_store
        self._thread: threading.Thread | None = None
        self._heart: Heart | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, make_heart: MakeHeart, notify: Notify) -> None:
        """Start the thread; events are passed to the loop that calls this."""
        home = asyncio.get_running_loop()

        def pass_on(event: Event) -> None:
            # The client's loop may be gone while a last answer comes in.
            if not home.is_closed():
                home.call_soon_threadsafe(notify, event)

        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live(make_heart, pass_on)),
            name="kinesumer-heartbeat",
            daemon=True,
        )
        self._thread.start()

    async def _live(self, make_heart: MakeHeart, notify: Notify) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        try:
            async with self._open_store() as store:
                self._heart = make_heart(replace(self._context, store=store), notify)
                await self._heart.run()
        except asyncio.CancelledError:
            pass  # stop() asked for it
        except Exception as error:
            notify(Failed(error))

    def tell(self, change: Callable[[Heart], None]) -> None:
        """Change something of the heart, on its own loop."""
        heart, loop = self._heart, self._loop
        if heart is not None and loop is not None:
            with suppress(RuntimeError):  # its loop is closed: it is ending
                loop.call_soon_threadsafe(change, heart)

    async def stop(self) -> None:
        """Stop the heart; no beat is sent after this returns."""
        thread, told = self._thread, False
        while thread is not None and thread.is_alive():
            # A thread that has just begun has no task to cancel yet.
            if not told and self._task is not None and self._loop is not None:
                told = True
                with suppress(RuntimeError):  # its loop is closed: it is ending
                    self._loop.call_soon_threadsafe(self._task.cancel)
            await asyncio.sleep(0.005)
