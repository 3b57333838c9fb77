"""Convert decoded values to the type that the user asks for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer.model.json_types import json_decoder

if TYPE_CHECKING:
    from collections.abc import Callable

    # Without ``type=``, values consist of dictionaries, lists and other plain values.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


def converter(type_: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts plain values to a type; None if there is none.

    Raises ConfigurationError if neither msgspec nor Pydantic knows the type.
    """
    if type_ is None:
        return None
    json_decoder(type_)  # checks the type
    if hasattr(type_, "model_validate"):
        validate: Callable[[Any], Any] = type_.model_validate
        return validate
    return partial(msgspec.convert, type=type_)


def is_message(type_: Any) -> bool:
    """Return whether a type is a message class that protoc generated."""
    return hasattr(type_, "FromString") and hasattr(type_, "DESCRIPTOR")
