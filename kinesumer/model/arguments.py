"""Arguments that take several values, checked where they are given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kinesumer.errors import (
    ConfigurationError,
)


def several(name: str, given: object) -> tuple[Any, ...]:
    """Return the values of an argument that takes a list, a tuple or the like.

    Raises ConfigurationError for text, which is a list of its characters in Python, and
    for a single value.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"{name}={given!r} is not a list: write {name}=[...], also for one value"
        )
    return tuple(given)


def error_types(name: str, given: object) -> tuple[type[Exception], ...]:
    """Return the types of errors that an argument names. Raises ConfigurationError."""
    found = several(name, given)
    for kind in found:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ConfigurationError(
                f"{name} names {kind!r}, which is not a subclass of Exception"
            )
    return found


LONGEST_NAME_BYTES = 255


def checked_name(what: str, name: str) -> str:
    """Return a name that can be part of a key. Raises ConfigurationError."""
    problem = ""
    if not isinstance(name, str) or not name.strip():
        problem = "is empty"
    elif "#" in name:
        problem = "contains '#', which separates the parts of a key"
    elif not name.isprintable():
        problem = "contains characters that can't be printed"
    elif len(name.encode()) > LONGEST_NAME_BYTES:
        problem = f"is longer than {LONGEST_NAME_BYTES} bytes"
    if problem:
        raise ConfigurationError(f"{what}={name!r} {problem}: choose another one")
    return name
