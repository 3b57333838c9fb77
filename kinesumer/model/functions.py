"""Tell whether a function of user code is async, and refuse generators."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from kinesumer.errors import ConfigurationError


def code_of(function: Any) -> Any:
    """Return the function inside a partial, or the method of a callable object."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


def is_async(function: object) -> bool:
    """Return whether a call of a function returns a coroutine."""
    return any(map(inspect.iscoroutinefunction, (function, code_of(function))))


def require_function(name: str, function: object) -> Callable[..., Any]:
    """Return an argument that is a function.

    Raises ConfigurationError if it can't be called, or is a generator.
    """
    if not callable(function):
        raise ConfigurationError(f"{name}={function!r} must be a function")
    code = code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ConfigurationError(
            f"{name}={function!r} is a generator, which does nothing when it is "
            "called: take the `yield` out"
        )
    return function
