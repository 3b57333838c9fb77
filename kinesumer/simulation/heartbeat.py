"""A heartbeat thread in virtual time."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.simulation.machine import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.coordination.events import Event, Notify
    from kinesumer.coordination.heartbeat import Heartbeater
    from kinesumer.coordination.heartbeat_thread import MakeHeartbeater
    from kinesumer.ports import StateStore
    from kinesumer.runtime.context import ClientContext
    from kinesumer.simulation.machine import Machine


class SimulatedHeartbeatThread:
    """Sends heartbeats on a machine's second thread, while the first may be blocked.

    Calls between the threads arrive later, as between real threads.
    """

    def __init__(
        self, context: ClientContext, thread: Machine, store: StateStore
    ) -> None:
        self._context = replace(context, store=store)
        self._thread = thread
        self._heart: Heartbeater | None = None
        self._task: asyncio.Task[None] | None = None
        self._place = copy_context()
        self._place.run(MACHINE.set, thread)

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeats, and call ``notify`` on the caller's machine."""
        loop, home = self._thread.loop, copy_context()

        def pass_on(event: Event) -> None:
            loop.call_soon(notify, event, context=home)

        self._heart = make_heartbeater(self._context, pass_on)
        self._task = loop.create_task(self._heart.run(), context=self._place)

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Change the heartbeater, on its thread."""
        if self._heart is not None:
            self._thread.loop.call_soon(change, self._heart, context=self._place)

    async def stop(self) -> None:
        """Stop the heartbeats; none is sent after this returns."""
        if self._task is not None:
            self._thread.loop.call_soon(self._task.cancel, context=self._place)
            await asyncio.wait([self._task])
