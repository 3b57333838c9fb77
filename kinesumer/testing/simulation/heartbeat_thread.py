"""The heartbeat thread of a simulated process."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING

from kinesumer.coordination.heartbeat_thread import HeartbeatTask
from kinesumer.testing.simulation.machine import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.coordination.heartbeat import Heartbeater
    from kinesumer.coordination.heartbeat_thread import MakeHeartbeater
    from kinesumer.coordination.membership import Event, Notify
    from kinesumer.runtime.context import ClientContext
    from kinesumer.testing.simulation.machine import Machine


class SimulatedHeartbeatThread(HeartbeatTask):
    """Sends heartbeats on a second thread, even while the first thread is blocked.

    As with real threads, a function that one thread calls on the other runs later.
    """

    def __init__(self, context: ClientContext, thread: Machine) -> None:
        super().__init__(context)
        self._thread = thread
        self._on_thread = copy_context()
        self._on_thread.run(MACHINE.set, thread)

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeats. ``notify`` will be called on the caller's thread."""
        loop, home = self._thread.loop, copy_context()

        def pass_on(event: Event) -> None:
            loop.call_soon(notify, event, context=home)

        self._heartbeater = make_heartbeater(self._context, pass_on)
        self.task: asyncio.Task[None] | None = loop.create_task(
            self._heartbeater.run(), context=self._on_thread
        )

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Call a function with the heartbeater, on the heartbeat thread."""
        loop, heartbeater = self._thread.loop, self._heartbeater
        if heartbeater is not None:
            loop.call_soon(change, heartbeater, context=self._on_thread)

    async def stop(self) -> None:
        """Stop the heartbeats. No heartbeat is sent after this method returns."""
        if self.task is not None:
            self._thread.loop.call_soon(self.task.cancel, context=self._on_thread)
            await asyncio.wait([self.task])
