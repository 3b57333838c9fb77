"""Hooks around each call of a handler."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesumer.handlers.signature import Handler
    from kinesumer.model.batch import Batch
    from kinesumer.model.records import Record

HOOKS = ("before", "after", "on_error")


class Middleware:
    """Hooks around each call of a handler: override those that you need.

    Hooks run where the handler runs: in its thread, or in its task if the handler is
    async; then hooks may be ``async def``. Each hook gets the handler's argument. An
    error of a hook counts as the handler's failure. The first of several hooks is the
    outermost.
    """

    def before(self, item: Any) -> Any:
        """Be called before the handler is."""

    def after(self, item: Any) -> Any:
        """Be called when the handler has returned."""

    def on_error(self, item: Any, error: Exception) -> Any:
        """Be called when the handler, or a hook further in, has raised."""


def wrapped(handler: Handler, middleware: Sequence[Middleware]) -> Handler:
    """Return a handler with its hooks around it. Raises ConfigurationError."""
    for hooks in reversed(middleware):
        if not isinstance(hooks, Middleware):
            raise ConfigurationError(
                f"middleware={hooks!r} must be a kinesumer.Middleware"
            )
        for name in HOOKS:
            if inspect.iscoroutinefunction(getattr(hooks, name)) > handler.is_async:
                raise ConfigurationError(
                    f"{type(hooks).__name__}.{name} is async, but the handler isn't: "
                    "it runs in a thread, and so do its hooks"
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


async def _awaited(found: Any) -> None:
    if found is not None and inspect.isawaitable(found):
        await found


def _around_in_thread(
    call: Callable[[Any], Any], hooks: Middleware
) -> Callable[[Any], Any]:
    def hooked(item: Record | Batch) -> object:
        try:
            hooks.before(item)
            found = call(item)
            hooks.after(item)
        except Exception as error:
            hooks.on_error(item, error)
            raise
        return found

    return hooked
