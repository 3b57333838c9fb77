"""Find out from a handler's signature what it takes and how to call it."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.errors import ConfigurationError
from kinesumer.model.batch import Batch
from kinesumer.model.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

HOW_TO = "write `record: Record` or `batch: Batch`, or give run() batch=False or True"


class Handler(NamedTuple):
    """A function that user code is."""

    call: Callable[[Any], Any]
    takes_batches: bool
    is_async: bool


def read_handler(function: object, batch: bool | None) -> Handler:
    """Return what a function is, as its first parameter's annotation says.

    ``batch`` says it in place of the annotation. Raises ConfigurationError for what
    can't be called with one record or one batch.
    """
    if not callable(function):
        raise ConfigurationError(f"handler={function!r} can't be called")
    if batch is not None and not isinstance(batch, bool):
        raise ConfigurationError(f"batch={batch!r} must be True or False")
    code = _code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ConfigurationError(
            f"handler {_name(function)} is a generator, which does nothing when it is "
            "called: take the `yield` out"
        )
    if batch is None:
        batch = _says_batch(function)
    return Handler(function, batch, inspect.iscoroutinefunction(code))


def _code_of(function: Any) -> Any:
    """Return the function behind a partial, or an object that can be called."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


def _says_batch(function: Callable[..., object]) -> bool:
    annotation = _annotation(function)
    # Names that only type checkers import can't be looked up: then the text decides.
    text = annotation.strip("'\" ") if isinstance(annotation, str) else ""
    name = text.rpartition(".")[2]
    if annotation is Batch or name == "Batch":
        return True
    if annotation is Record or name == "Record":
        return False
    said = "" if annotation is inspect.Parameter.empty else f" says {annotation!r}"
    raise ConfigurationError(
        f"the first parameter of handler {_name(function)}{said or ' says nothing'}, "
        f"so it isn't known what it takes: {HOW_TO}"
    )


def _annotation(function: Callable[..., object]) -> object:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return inspect.Parameter.empty
    for parameter in signature.parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            return _resolved(function, parameter)
    raise ConfigurationError(
        f"handler {_name(function)} takes no argument: it is called with a record or a "
        "batch"
    )


def _resolved(function: Callable[..., object], parameter: inspect.Parameter) -> object:
    """Return an annotation, looked up if it is text and its name is known."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    names = getattr(inspect.unwrap(_code_of(function)), "__globals__", {})
    found = names.get(parameter.annotation)
    return found if isinstance(found, type) else parameter.annotation


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
