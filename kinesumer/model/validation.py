"""Arguments that take several values, checked where they are given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kinesumer.errors import (
    ConfigurationError,
)


def require_list(name: str, given: object) -> tuple[Any, ...]:
    """Return the values of an argument that takes a list, a tuple or the like.

    Raises ConfigurationError for text, which is a list of its characters in Python, and
    for a single value.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"{name}={given!r} is not a list: write {name}=[...], also for one value"
        )
    return tuple(given)


def require_error_types(name: str, given: object) -> tuple[type[Exception], ...]:
    """Return the types of errors that an argument names. Raises ConfigurationError."""
    found = require_list(name, given)
    for kind in found:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ConfigurationError(
                f"{name} names {kind!r}, which is not a subclass of Exception"
            )
    return found


MAX_NAME_BYTES = 255


def validate_name(what: str, name: str) -> str:
    """Return a name that can be part of a key. Raises ConfigurationError."""
    problem = ""
    if not isinstance(name, str) or not name.strip():
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
