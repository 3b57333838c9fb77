"""Say why a record cannot be decoded, without what the record holds.

The errors of msgspec and Pydantic quote the data. Texts with the type of the error, the
path of the value and the position in the data are enough to find the cause, and may be
logged.
"""

from __future__ import annotations

import re
import traceback
from typing import Any

import msgspec

from kinesumer.errors import MAX_REASONS
from kinesumer.model.json_types import field_names

MAX_CAUSE_CHARACTERS = 500

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
