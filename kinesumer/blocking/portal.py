"""Run a client's event loop in its own thread, and call it from users' threads."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any, NamedTuple, Self, TypeVar, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

from kinesumer.errors import ConfigurationError, ThreadRefusedError
from kinesumer.runtime.threads import refusal_errors, require_system_threads

T = TypeVar("T")


class LoopThread:
    """Runs an event loop with an open client, in a thread, during a ``with`` block.

    If the interpreter ends within the block, ``at_exit`` is called. It must leave the
    block: later, the thread doesn't run any more, and leaving would wait for ever.
    """

    def __init__(
        self,
        client: AbstractAsyncContextManager[object],
        at_exit: Callable[[], None],
        name: str = "Kinesumer",
    ) -> None:
        self._client, self._at_exit = client, at_exit
        self._name = name  # of the user's class
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._loop: asyncio.AbstractEventLoop
        self._begun: set[asyncio.Task[Any]] = set()
        self.is_over = False
        self._process = os.getpid()

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise ConfigurationError("a client can be entered once: make a new one")
        require_system_threads()
        portal = start_blocking_portal("asyncio", name="kinesumer")
        with refusal_errors("the thread of the event loop", ThreadRefusedError):
            self._portal = self._stack.enter_context(portal)
        atexit.register(self._interpreter_ends)
        self._stack.callback(atexit.unregister, self._interpreter_ends)
        try:
            self._loop = self._portal.call(asyncio.get_running_loop)
            self._stack.callback(setattr, self, "is_over", True)
            wrapped = self._portal.wrap_async_context_manager(self._client)
            self._stack.enter_context(wrapped)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc_info: Any) -> None:
        # A forked child has a copy of this object, but only the parent has the threads.
        if self._process == os.getpid():
            self._stack.__exit__(*exc_info)

    def _interpreter_ends(self) -> None:
        if self._process == os.getpid():
            self._at_exit()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop. Raises ConfigurationError outside the block."""
        self.check_open()
        return self._loop

    def call(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Run a coroutine function on the loop and return its result.

        If the wait is interrupted, for example by Ctrl-C, the coroutine is cancelled.
        Raises ConfigurationError outside the block.
        """
        portal = self.check_open()
        future = portal.start_task_soon(_caught, function, arguments)
        try:
            result = future.result()
        except BaseException:  # a signal's handler may raise any error here
            future.cancel()
            raise
        if isinstance(result, _Raised):
            raise result.error
        return cast("T", result)

    def begin(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start a coroutine function on the loop, and return at once.

        Signal handlers may call this method.
        """

        def start() -> None:
            task = asyncio.ensure_future(function())
            self._begun.add(task)
            task.add_done_callback(self._begun.discard)

        self.loop.call_soon_threadsafe(start)

    def check_open(self) -> BlockingPortal:
        """Return the portal. Raises ConfigurationError outside the block."""
        if self._process != os.getpid():
            raise ConfigurationError(
                "this process was forked from the one that opened the client, whose "
                "threads it doesn't have: make a client of its own in it"
            )
        if self._portal is None or self.is_over:
            raise self.closed()
        return self._portal

    def closed(self) -> ConfigurationError:
        """Return the error of a call outside the block."""
        return ConfigurationError(f"use the client in `with {self._name}(...)`")


class _Raised(NamedTuple):
    """A task's error, such as SystemExit, that would end the loop if it were raised.

    The task returns it, and ``call()`` raises it in the calling thread.
    """

    error: BaseException


async def _caught(
    function: Callable[..., Awaitable[T]], arguments: tuple[object, ...]
) -> T | _Raised:
    try:
        return await function(*arguments)
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        return _Raised(error)
