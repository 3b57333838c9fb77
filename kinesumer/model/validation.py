"""Refuse mistakes in the use of the library: arguments, names, kinds of clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

from kinesumer.errors import ConfigurationError

# DynamoDB's sort keys have up to 1,024 bytes, and some consist of several names.
MAX_NAME_BYTES = 255
MAX_PAUSE_SECONDS = 86_400.0  # a pause of more than a day is a mistake
NOT_UNICODE = "has half of a character, a lone surrogate, which UTF-8 can't encode"


def require_list(name: str, value: object) -> tuple[Any, ...]:
    """Return the values of an argument that takes an iterable.

    Raise ConfigurationError for a single value. Also raise it for a string, although a
    string is an iterable of characters.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigurationError(
            f"{name}={value!r} isn't a list: write {name}=[...], even for one value"
        )
    return tuple(value)


def require_error_types(name: str, value: object) -> tuple[type[Exception], ...]:
    """Return an argument's exception types.

    Raise ConfigurationError if a value isn't an exception type.
    """
    types = require_list(name, value)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ConfigurationError(
                f"{name} names {kind!r}, which is not a subclass of Exception: name "
                "exception classes only"
            )
    return types


def require_text(name: str, value: object) -> None:
    """Raise ConfigurationError if an argument isn't text that can be encoded."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name}={value!r} must be text")
    if not is_unicode(value):
        raise ConfigurationError(f"{name}={value!r} {NOT_UNICODE}: correct the text")


def is_unicode(text: str) -> bool:
    """Return whether text can be encoded, unlike text with a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_arrow(what: str) -> None:
    """Raise ConfigurationError if pyarrow, which ``what`` needs, isn't installed."""
    try:
        import pyarrow  # noqa: F401 - only to know
    except ImportError as error:
        raise ConfigurationError(
            f"{what} needs pyarrow: pip install 'kinesumer[arrow]'"
        ) from error


def require_flag(name: str, value: object) -> None:
    """Raise ConfigurationError if an argument isn't a bool."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name}={value!r} must be True or False")


def validate_name(what: str, name: str) -> str:
    """Return ``name``. Raise ConfigurationError if it can't be part of a key."""
    require_text(what, name)
    problem = ""
    if not name.strip():
        problem = "is empty"
    elif "#" in name:
        problem = "contains '#', which separates the parts of a key"
    elif not name.isprintable():
        problem = "contains characters that can't be printed"
    elif len(name.encode()) > MAX_NAME_BYTES:
        problem = f"is longer than {MAX_NAME_BYTES} bytes"
    if problem:
        raise ConfigurationError(f"{what}={name!r} {problem}: choose another one")
    return name


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


class ForAsyncio:
    """Refuses ``with`` and ``for``, because the object is for asyncio."""

    def __enter__(self) -> NoReturn:
        raise _for_asyncio()

    # Without it, `with` raises an error of its own before it calls __enter__().
    def __exit__(self, *_: object) -> None:
        raise _for_asyncio()

    def __iter__(self) -> NoReturn:
        raise _for_asyncio()


class ForThreads:
    """Refuses ``async with`` and ``async for``, because the object is for threads."""

    async def __aenter__(self) -> NoReturn:
        raise _for_threads()

    async def __aexit__(self, *_: object) -> None:
        raise _for_threads()

    def __aiter__(self) -> NoReturn:
        raise _for_threads()


def _for_asyncio() -> ConfigurationError:
    return ConfigurationError(
        "this object is for asyncio: use `async with` and `async for`, or, without "
        "asyncio, kinesumer.blocking.Kinesumer"
    )


def _for_threads() -> ConfigurationError:
    return ConfigurationError(
        "this object is for code without asyncio: use `with` and `for`, or, with "
        "asyncio, kinesumer.Kinesumer"
    )
