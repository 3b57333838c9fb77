"""Read how to call a handler's function, and put hooks and traces around each call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, get_origin

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.model.batches import Batch, ColumnBatch
from kinesumer.model.records import Record
from kinesumer.model.validation import (
    code_of,
    is_async,
    require_arrow,
    require_function,
)
from kinesumer.telemetry.api import Telemetry

TakesBatches = bool | Literal["columns"]
Traceparent = Callable[[Record], str | None]
HOOKS = ("before", "after", "on_error")


class HandlerFunction(NamedTuple):
    """User code's function, and how to call it."""

    call: Callable[[Any], Any]
    takes_batches: bool
    is_async: bool
    batch_kind: type[Batch] = Batch


def read_function(handler: object, batch: TakesBatches | None) -> HandlerFunction:
    """Return a handler's function with what its signature says.

    The annotation of the first parameter tells whether it takes a record or a batch.

    If ``batch`` is given, the annotation is ignored. Raises ConfigurationError if the
    function can't be called with one record or one batch, or if it takes columns and
    pyarrow isn't installed.
    """
    function = require_function("handler", handler)
    if batch is not None and not isinstance(batch, bool) and batch != "columns":
        raise ConfigurationError(f'batch={batch!r} must be True, False or "columns"')
    first = _first_parameter(function)
    if batch is None:
        batch = _says_batch(function, first)
    if batch != "columns":
        return HandlerFunction(function, batch, is_async(function))
    require_arrow('batch="columns"')
    return HandlerFunction(function, True, is_async(function), ColumnBatch)


def _first_parameter(function: Callable[..., object]) -> inspect.Parameter | None:
    """Return the parameter for the record or the batch; None if it can't be known.

    Raises ConfigurationError if the function needs other arguments.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function written in C
        return None
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigurationError(
            f"handler {_name(function)}{signature} can't be called with one record or "
            f"batch ({error}): give the other parameters defaults, or bind them with "
            "functools.partial"
        ) from None
    return next(iter(signature.parameters.values()))


def _says_batch(
    function: Callable[..., object], first: inspect.Parameter | None
) -> TakesBatches:
    annotation = (
        inspect.Parameter.empty if first is None else _resolved(function, first)
    )
    # ``Record[Order]`` says as much as ``Record``.
    kind = get_origin(annotation) or annotation
    # A name imported only for type checkers can't be looked up, so its text is used.
    text = annotation.strip("'\" ") if isinstance(annotation, str) else ""
    name = text.partition("[")[0].rpartition(".")[2]
    if kind is ColumnBatch or name == "ColumnBatch":
        return "columns"
    if kind is Batch or name == "Batch":
        return True
    if kind is Record or name == "Record":
        return False
    missing = annotation is inspect.Parameter.empty
    raise ConfigurationError(
        f"the first parameter of handler {_name(function)} has "
        f"{'no annotation' if missing else f'the annotation {annotation!r}'}: write "
        "`record: Record`, `batch: Batch` or `batch: ColumnBatch`, or give run() "
        'batch=False, True or "columns"'
    )


def _resolved(function: Callable[..., object], parameter: inspect.Parameter) -> object:
    """Return an annotation. If it is the name of a known type, return the type."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    names = getattr(inspect.unwrap(code_of(function)), "__globals__", {})
    found = names.get(parameter.annotation.partition("[")[0])
    return found if isinstance(found, type) else parameter.annotation


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


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


def read_traceparent(option: object) -> Traceparent | None:
    """Return a function that finds a record's W3C traceparent.

    The option ``"headers.traceparent"`` means the field ``traceparent`` of the object
    ``headers`` in a record's JSON data. Raises ConfigurationError.
    """
    if option is None:
        return None
    if isinstance(option, str) and all(option.split(".")):
        return _field_at(option)
    if isinstance(option, str) or not callable(option):
        raise ConfigurationError(
            f"traceparent={option!r} must be a path into JSON, such as "
            "'headers.traceparent', or a function of a record"
        )
    return option


def _field_at(path: str) -> Traceparent:
    """Return a function that reads a field of a record's JSON data.

    The function returns None if the data has no such field.
    """
    names, decode = path.split("."), msgspec.json.Decoder().decode

    def find(record: Record) -> str | None:
        try:
            value: Any = decode(record.data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value if isinstance(value, str) else None

    return find


def traced(
    handler: HandlerFunction, telemetry: Telemetry, find: Traceparent
) -> HandlerFunction:
    """Return a handler of records that continues the producers' traces."""
    call = handler.call

    def span(record: Record) -> AbstractContextManager[object]:
        text = find(record)
        if not text:
            return nullcontext()
        return telemetry.trace_record(record.fence.shard, record.position.text, text)

    async def awaited(record: Record) -> None:
        with span(record):
            await call(record)

    def called(record: Record) -> object:
        with span(record):
            return call(record)

    return handler._replace(call=awaited if handler.is_async else called)
