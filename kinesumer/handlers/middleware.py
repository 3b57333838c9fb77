"""Hooks around each call of a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from kinesumer.errors import ConfigurationError
from kinesumer.handlers.signature import HandlerFunction
from kinesumer.model.records import Batch, Record

HOOKS = ("before", "after", "on_error")


class Middleware:
    """Hooks around each call of a handler. Override the hooks that you need.

    Hooks run where the handler runs: in its thread or, if the handler is async, in its
    task. Hooks of an async handler may be ``async def``. Each hook gets the handler's
    argument. If a hook raises an error, the handler counts as failed. If ``run()`` gets
    several middleware objects, the first is the outermost.
    Hooks choose the names of their parameters.
    """

    def before(self, item: Any, /) -> Any:
        """Run before each call of the handler."""

    def after(self, item: Any, /) -> Any:
        """Run after the handler has returned."""

    def on_error(self, item: Any, error: Exception, /) -> Any:
        """Run after the handler or an inner hook has raised an error."""


def wrapped(
    handler: HandlerFunction, middleware: Sequence[Middleware]
) -> HandlerFunction:
    """Return a handler that also calls the hooks. Raises ConfigurationError."""
    for hooks in reversed(middleware):
        if not isinstance(hooks, Middleware):
            raise ConfigurationError(
                f"middleware={hooks!r} must be a kinesumer.Middleware"
            )
        for name in HOOKS:
            if inspect.iscoroutinefunction(getattr(hooks, name)) > handler.is_async:
                raise ConfigurationError(
                    f"{type(hooks).__name__}.{name} is async, but the handler isn't: "
                    "write both with `async def`, or neither"
                )
        wrap = _around if handler.is_async else _around_in_thread
        handler = handler._replace(call=wrap(handler.call, hooks))
    return handler


def _around(call: Callable[[Any], Any], hooks: Middleware) -> Callable[[Any], Any]:
    async def hooked(item: Record | Batch) -> None:
        try:
            await _awaited(hooks.before(item))
            await call(item)
            await _awaited(hooks.after(item))
        except Exception as error:
            await _awaited(hooks.on_error(item, error))
            raise

    return hooked


async def _awaited(result: Any) -> None:
    if result is not None and inspect.isawaitable(result):
        await result


def _around_in_thread(
    call: Callable[[Any], Any], hooks: Middleware
) -> Callable[[Any], Any]:
    def hooked(item: Record | Batch) -> object:
        try:
            hooks.before(item)
            result = call(item)
            hooks.after(item)
        except Exception as error:
            hooks.on_error(item, error)
            raise
        return result

    return hooked
