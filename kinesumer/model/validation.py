"""Checks of arguments: lists, error types and names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kinesumer.errors import ConfigurationError


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


NOT_UNICODE = "has half of a character, a lone surrogate, which UTF-8 can't encode"


def is_unicode(text: str) -> bool:
    """Return whether text can be encoded, unlike text with a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_flag(name: str, value: object) -> None:
    """Raise ConfigurationError if an argument isn't a bool."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name}={value!r} must be True or False")


MAX_NAME_BYTES = 255
MAX_PAUSE_SECONDS = 86_400.0  # a longer pause is a mistake


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
