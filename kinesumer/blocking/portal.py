"""The way from a thread to the client's event loop, which runs in one of its own."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

from anyio.from_thread import start_blocking_portal

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from anyio.from_thread import BlockingPortal

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread while the block runs, with a client entered in it."""

    def __init__(self, client: AbstractAsyncContextManager[object]) -> None:
        self._client = client
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._loop: asyncio.AbstractEventLoop
        self._begun: set[asyncio.Task[Any]] = set()
        self.is_over = False
        self._process = os.getpid()

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise ConfigurationError("a client can be entered once: make a new one")
        portal = start_blocking_portal("asyncio", name="kinesumer")
        self._portal = self._stack.enter_context(portal)
        try:
            self._loop = self.call(_running_loop)
            self._stack.callback(self._end)
            wrapped = self._portal.wrap_async_context_manager(self._client)
            self._stack.enter_context(wrapped)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process == os.getpid():
            self._stack.__exit__(kind, error, trace)

    def _end(self) -> None:
        self.is_over = True

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop. Raises ConfigurationError outside the block."""
        self.check_open()
        return self._loop

    def call(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Run a coroutine function on the loop and return what it returns.

        It is cancelled if the wait for it is interrupted, as by Ctrl-C. Raises
        ConfigurationError outside the block.
        """
        portal = self.check_open()
        future = portal.start_task_soon(_caught, function, arguments)
        try:
            found = future.result()
        except BaseException:
            future.cancel()
            raise
        if isinstance(found, _Raised):
            raise found.error
        return cast("T", found)

    def begin(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a coroutine function on the loop, and don't wait for it.

        Waits for nothing at all, so that a signal handler may call it anywhere.
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
            raise ConfigurationError("use the client in `with Kinesumer(...)`")
        return self._portal


class _Raised(NamedTuple):
    """What may not leave a task: SystemExit and its like would end the loop."""

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


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
