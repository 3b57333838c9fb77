"""Decode JSON as a type, and say why a record cannot be decoded.

The errors of msgspec and Pydantic quote the data. Texts with the type of the error, the
path of the value and the position in the data are enough to find the cause, and may be
logged.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import msgspec

from kinesumer.errors import MAX_REASONS, ConfigurationError

MAX_CAUSE_CHARACTERS = 500  # chosen: some lines of a log
# The texts of msgspec that tell about the type, and not about the data.
_OF_THE_TYPE = re.compile(
    r"Expected `[^`]*`(?: of length [-\w <>=]*| of at (?:least|most) length \d+"
    r"| [<>=]+ [-\w.+]+| that's a multiple of \d+| with (?:a|no) timezone component"
    r"| matching regex .*)?(?:, got (?:`[^`]*`|\d+))?"
    r"|Object missing required field `[^`]*`"
    r"|Invalid (?:ISO8601 duration|MessagePack timestamp(?:: nanoseconds out of range)?"
    r"|RFC3339 encoded (?:date|datetime|time)|UUID(?: bytes)?|base64 encoded string"
    r"|decimal string|epoch timestamp)"
    r"|(?:Duration|Timestamp|Number|Integer value) (?:is )?out of range ?"
    r"|JSON is malformed: [^'\"`]* \(byte \d+\)|Input data was truncated"
)
# These texts go on with a value, or with a name of the data.
_OF_THE_DATA = ("Invalid enum value", "Invalid value", "Object contains unknown field")
_PATH = re.compile(r" - at ((?:`key` in )?`\$[^`]*`)")
_PLACE = re.compile(r"line \d+ column \d+")


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


def item_decoder(type_: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that makes a value of a type of an item's plain values.

    ``json_decoder()`` must accept the type.
    """
    if isinstance(type_, type) and hasattr(type_, "model_validate"):
        validate: Callable[[Mapping[str, Any]], Any] = type_.model_validate
        return validate
    return partial(msgspec.convert, type=type_)


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


def cause_text(cause: BaseException) -> str:
    """Return the type of a decoder's error, and what of its text is not data."""
    kind = type(cause)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(cause, msgspec.MsgspecError):
        return f"{name}: {_text_of_msgspec(str(cause))}"
    if isinstance(cause, UnicodeDecodeError):
        return f"{kind.__name__}: not {cause.encoding} (position {cause.start:,})"
    if name.startswith("pydantic_core.") and hasattr(cause, "errors"):
        return f"{name}: {_text_of_pydantic(cause)}"
    words = "".join(traceback.format_exception_only(cause)).split()
    return " ".join(words)[:MAX_CAUSE_CHARACTERS]


def _text_of_msgspec(text: str) -> str:
    found = list(_PATH.finditer(text))
    path = found[-1] if found and found[-1].end() == len(text) else None
    what = text[: path.start()] if path else text
    if not _OF_THE_TYPE.fullmatch(what):
        known = (start for start in _OF_THE_DATA if what.startswith(start))
        what = next(known, "a check of the type failed")
    return f"{what} - at {path[1]}" if path else what


def _text_of_pydantic(error: Any) -> str:
    found = error.errors(include_input=False, include_url=False, include_context=False)
    names = field_names(error.title)
    # A model may refuse each value of a long list.
    shown = [_refusal(one, names) for one in found[:MAX_REASONS]]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more:,} more" if more else "")


def _refusal(one: dict[str, Any], names: frozenset[str]) -> str:
    if place := _PLACE.search(one["msg"] if one["type"] == "json_invalid" else ""):
        return f"{one['type']} at {place[0]}"
    # A key of a dictionary, and a field that the model does not have, are data.
    path = "".join(
        f".{part}" if part in names else f"[{part if type(part) is int else '...'}]"
        for part in one["loc"]
    )
    return f"{one['type']} at ${path}"
