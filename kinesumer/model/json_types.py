"""Decode JSON as a type that msgspec or Pydantic knows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

from kinesumer.errors import ConfigurationError


def json_decoder(type_: Any) -> Callable[[bytes], Any]:
    """Return a function that decodes JSON as a value of a type.

    ``type_`` is a type that msgspec can decode, or a Pydantic model of version 2. The
    function is cached. Raises ConfigurationError for any other object.
    """
    try:
        return _decoder_of(type_)
    except (TypeError, NameError) as error:  # NameError: an annotation is unknown
        raise ConfigurationError(
            f"{type_!r} is not a type that JSON can be decoded as ({error}): use a "
            "msgspec Struct, a dataclass, a TypedDict, a NamedTuple or a Pydantic "
            "model with fields of such types, or a function of the record"
        ) from error


@lru_cache(maxsize=256)
def _decoder_of(type_: Any) -> Callable[[bytes], Any]:
    """Return a type's decoder. Raise TypeError or NameError if it has none."""
    decode: Callable[[bytes], Any]
    if isinstance(type_, type) and hasattr(type_, "model_validate_json"):
        decode = type_.model_validate_json
        model: Any = type_
        title = model.model_config.get("title") or model.__name__
        _MODELS.setdefault(title, set()).add(model)
        return decode
    if (unknown := _unknown_type(type_)) is not None:
        raise TypeError(f"msgspec cannot decode {unknown!r}: use another type")
    decode = msgspec.json.Decoder(type_).decode
    return decode


# Pydantic's models by the titles that their errors have.
_MODELS: dict[str, set[Any]] = {}


def field_names(title: str) -> frozenset[str]:
    """Return the names of all fields in Pydantic's models with a title."""
    return frozenset().union(*map(_field_names, _MODELS.get(title, ())))


@lru_cache(maxsize=256)
def _field_names(model: Any) -> frozenset[str]:
    """Return the names of all fields in a model and in those within it."""
    found = set(model.model_fields)
    with suppress(Exception):  # custom types may have no schema
        waiting: list[Any] = [model.model_json_schema()]
        while waiting:
            node = waiting.pop()
            if isinstance(node, list):
                waiting += node
            elif isinstance(node, dict):
                found.update(node.get("properties", ()))
                waiting += node.values()
    return frozenset(found)


def _unknown_type(type_: Any) -> type | None:
    """Return a type that msgspec cannot decode, if ``type_`` contains one.

    msgspec's decoder reports such a type only when data for it arrives.
    """
    from msgspec import inspect

    waiting: list[object] = [inspect.type_info(type_)]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, inspect.CustomType):
            return node.cls
        if isinstance(node, tuple):
            waiting += node
        elif isinstance(node, inspect.Type | inspect.Field) and id(node) not in seen:
            seen.add(id(node))
            waiting += (getattr(node, name) for name in node.__struct_fields__)
    return None
