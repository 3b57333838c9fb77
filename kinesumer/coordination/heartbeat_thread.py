"""Runs a heartbeater on the event loop that makes the calls to the state store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kinesumer.coordination.events import Failed
from kinesumer.coordination.store_thread import StoreThreadEndedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.coordination.events import Event, Notify
    from kinesumer.coordination.heartbeat import Heartbeater
    from kinesumer.coordination.store_thread import StoreThread
    from kinesumer.runtime.context import ClientContext

    MakeHeartbeater = Callable[[ClientContext, Notify], Heartbeater]


class HeartbeatRunner(Protocol):
    """Runs a client's heartbeater."""

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeater; ``notify`` is called on the caller's event loop."""
        ...

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Call ``change`` with the heartbeater, on its event loop."""
        ...

    async def stop(self) -> None:
        """Stop it; no heartbeat is sent after this returns."""
        ...


class HeartbeatTask:
    """Runs a heartbeater as a task of the client's own event loop, for tests."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._heartbeater: Heartbeater | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeater."""
        self._heartbeater = make_heartbeater(self._context, notify)
        self._task = asyncio.get_running_loop().create_task(self._heartbeater.run())

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Call ``change`` with the heartbeater."""
        if self._heartbeater is not None:
            change(self._heartbeater)

    async def stop(self) -> None:
        """Stop it; no heartbeat is sent after this returns."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class HeartbeatThread:
    """Runs a heartbeater on a thread, where user code can't block it."""

    def __init__(self, context: ClientContext, thread: StoreThread) -> None:
        self._context = context
        self._thread = thread
        self._heartbeater: Heartbeater | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeater; ``notify`` is called on the caller's event loop."""
        home = asyncio.get_running_loop()

        def pass_on(event: Event) -> None:
            # A last answer may arrive after the client's event loop was closed.
            if not home.is_closed():
                home.call_soon_threadsafe(notify, event)

        self._thread.call_soon(self._begin, make_heartbeater, pass_on)

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Call ``change`` with the heartbeater, on its event loop."""
        self._thread.call_soon(self._change, change)

    async def stop(self) -> None:
        """Stop it; no heartbeat is sent after this returns."""
        self._is_stopping = True
        with suppress(StoreThreadEndedError):
            await self._thread.call(self._end())

    # --- on the thread --------------------------------------------------------------

    def _begin(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        context = replace(self._context, store=self._thread.store)
        self._heartbeater = make_heartbeater(context, notify)
        self._task = asyncio.get_running_loop().create_task(self._run(notify))

    async def _run(self, notify: Notify) -> None:
        assert self._heartbeater is not None
        try:
            await self._heartbeater.run()
        except asyncio.CancelledError:
            if not self._is_stopping:
                notify(Failed(StoreThreadEndedError()))
            raise

    def _change(self, change: Callable[[Heartbeater], None]) -> None:
        if self._heartbeater is not None:
            change(self._heartbeater)

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
