"""Run a heartbeater on the event loop that makes the calls to the state store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from kinesumer.coordination.heartbeat import Heartbeater
from kinesumer.coordination.membership import Event, Failed, Notify
from kinesumer.coordination.store_thread import StoreThread, StoreThreadEndedError
from kinesumer.runtime.context import ClientContext

MakeHeartbeater = Callable[[ClientContext, Notify], Heartbeater]


class HeartbeatTask:
    """Runs a heartbeater as a task of the event loop that starts it."""

    def __init__(self, context: ClientContext) -> None:
        self.task: asyncio.Task[None] | None = None
        self._context = context
        self._heartbeater: Heartbeater | None = None

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeater; ``notify`` is called on the caller's event loop."""
        self._heartbeater = make_heartbeater(self._context, notify)
        self.task = asyncio.create_task(self._heartbeater.run())

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Call ``change`` with the heartbeater, on its event loop."""
        if self._heartbeater is not None:
            change(self._heartbeater)

    async def stop(self) -> None:
        """Stop the heartbeater. No heartbeat is sent after this returns."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])


class HeartbeatThread(HeartbeatTask):
    """Runs a heartbeater on a thread, where user code can't block it."""

    def __init__(self, context: ClientContext, thread: StoreThread) -> None:
        super().__init__(replace(context, store=thread.store))
        self._thread = thread
        self._is_stopping = False

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeater; ``notify`` is called on the caller's event loop."""
        home, start_task = asyncio.get_running_loop(), super().start

        def pass_on(event: Event) -> None:
            # The last event may come after the client's event loop was closed.
            if not home.is_closed():
                home.call_soon_threadsafe(notify, event)

        def begin() -> None:
            start_task(make_heartbeater, pass_on)
            assert self.task is not None
            self.task.add_done_callback(report_end)

        def report_end(task: asyncio.Task[None]) -> None:
            # If the thread has ended, it has cancelled the task. Then the client must
            # end, too, since it sends no more heartbeats.
            if task.cancelled() and not self._is_stopping:
                pass_on(Failed(StoreThreadEndedError()))

        self._thread.call_soon(begin)

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Call ``change`` with the heartbeater, on the thread."""
        self._thread.call_soon(super().call_in_loop, change)

    async def stop(self) -> None:
        """Stop the heartbeater. No heartbeat is sent after this returns."""
        self._is_stopping = True
        with suppress(StoreThreadEndedError):
            await self._thread.call(super().stop())
