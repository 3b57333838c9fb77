"""Test that the reason of a decoding error names types and places, but no data."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import uuid
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import DecodeError
from kinesumer.model.json_decoding import MAX_CAUSE_CHARACTERS, cause_text
from kinesumer.model.records import Record

DATA = "SECRET"  # each text in the data has it


class Colour(enum.Enum):
    RED = "red"


class Cat(msgspec.Struct, tag="cat"):
    name: str


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    known: int = 0


class Checked(msgspec.Struct):
    text: str

    def __post_init__(self) -> None:
        if DATA in self.text:
            raise ValueError(f"{self.text} - at `$.{self.text}`")


class Fields(msgspec.Struct):
    """A field for each kind of error."""

    number: int = 0
    positive: Annotated[int, msgspec.Meta(ge=1, multiple_of=3)] = 3
    real: Annotated[float, msgspec.Meta(lt=5.5)] = 0.0
    code: Annotated[str, msgspec.Meta(max_length=3)] = ""
    pattern: Annotated[str, msgspec.Meta(pattern="^a'b$")] = "a'b"
    items: Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)] | None = None
    pair: tuple[int, int] = (0, 0)
    names: dict[str, int] = {}
    numbers: dict[int, str] = {}
    day: datetime.date | None = None
    moment: Annotated[datetime.datetime, msgspec.Meta(tz=True)] | None = None
    time: datetime.time | None = None
    length: datetime.timedelta | None = None
    id: uuid.UUID | None = None
    blob: bytes = b""
    money: decimal.Decimal = decimal.Decimal(0)
    colour: Colour = Colour.RED
    word: Literal["a", "b"] = "a"
    pet: Cat | Dog | None = None
    strict: Strict | None = None
    checked: Checked | None = None


class Inner(pydantic.BaseModel):
    price: int = 0


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    number: int = 0
    inner: list[Inner] = []
    names: dict[str, int] = {}
    word: Literal["a", "b"] = "a"
    either: int | list[int] = 0
    checked: str = ""

    @pydantic.field_validator("checked")
    @classmethod
    def check(cls, value: str) -> str:
        if DATA in value:
            raise ValueError(f"{value} is refused")
        return value


texts = st.text(max_size=6).map(DATA.__add__)
values = st.recursive(
    texts | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner),
    max_leaves=5,
)
FIELDS = sorted({*Fields.__struct_fields__, *Model.model_fields})


def reason(type_: Any, data: bytes) -> str:
    """Return why data cannot be decoded; nothing if it can."""
    try:
        Record("1", data).json(type_)
    except DecodeError as error:
        assert error.reason in str(error)
        return error.reason
    return ""


@pytest.mark.parametrize("type_", [Fields, Model, list[Strict], dict[str, Colour]])
@given(
    st.dictionaries(st.sampled_from(FIELDS) | texts, values, max_size=3)
    | st.dictionaries(
        st.sampled_from(["pet", "strict", "checked", "inner"]),
        st.fixed_dictionaries({"type": texts, "text": texts, "price": texts})
        | st.lists(st.fixed_dictionaries({"price": texts}), max_size=5),
        min_size=1,
    ),
    st.integers(0, 200),
)
def test_no_reason_quotes_the_data(type_: Any, value: Any, cut: int) -> None:
    text = json.dumps(value)
    for data in (text, f"[{text}]", text[:cut], text + "x", f'"{text}'):
        assert DATA not in reason(type_, data.encode())
    assert DATA not in reason(type_, text.encode() + b"\xff")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"number": "x"}', "Expected `int`, got `str` - at `$.number`"),
        ('{"names": {"x": "y"}}', "Expected `int`, got `str` - at `$.names[...]`"),
        (
            '{"numbers": {"x": "y"}}',
            "Expected `int`, got `str` - at `key` in `$.numbers`",
        ),
        ('{"positive": 0}', "Expected `int` >= 1 - at `$.positive`"),
        ('{"positive": 4}', "Expected `int` that's a multiple of 3 - at `$.positive`"),
        ('{"real": 5.5}', "Expected `float` < 5.5 - at `$.real`"),
        ('{"code": "abcd"}', "Expected `str` of length <= 3 - at `$.code`"),
        ('{"pattern": ""}', 'Expected `str` matching regex "^a\'b$" - at `$.pattern`'),
        ('{"items": []}', "Expected `array` of length >= 1 - at `$.items`"),
        ('{"pair": [1]}', "Expected `array` of length 2 - at `$.pair`"),
        ('{"day": "x"}', "Invalid RFC3339 encoded date - at `$.day`"),
        (
            '{"moment": "2026-01-01T00:00:00"}',
            "Expected `datetime` with a timezone component - at `$.moment`",
        ),
        ('{"length": "x"}', "Invalid ISO8601 duration - at `$.length`"),
        ('{"id": "x"}', "Invalid UUID - at `$.id`"),
        ('{"blob": "x"}', "Invalid base64 encoded string - at `$.blob`"),
        ('{"money": "x"}', "Invalid decimal string - at `$.money`"),
        ('{"number": 1e999}', "Number out of range - at `$.number`"),
        ('{"colour": "x"}', "Invalid enum value - at `$.colour`"),
        ('{"word": "x"}', "Invalid enum value - at `$.word`"),
        ('{"pet": {"type": "x"}}', "Invalid value - at `$.pet.type`"),
        (
            '{"pet": {"type": "cat"}}',
            "Object missing required field `name` - at `$.pet`",
        ),
        ('{"strict": {"x": 1}}', "Object contains unknown field - at `$.strict`"),
        (
            f'{{"checked": {{"text": "{DATA}"}}}}',
            "a check of the type failed - at `$.checked`",
        ),
        ("{", "Input data was truncated"),
        ("{}x", "JSON is malformed: trailing characters (byte 3)"),
    ],
)
def test_msgspecs_reason_has_the_type_and_the_path(data: str, expected: str) -> None:
    assert reason(Fields, data.encode()).partition(": ")[2] == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"number": "x"}', "int_parsing at $.number"),
        ('{"inner": [{}, {"price": "x"}]}', "int_parsing at $.inner[1].price"),
        ('{"names": {"x": "y"}}', "int_parsing at $.names[...]"),
        ('{"x": 1}', "extra_forbidden at $[...]"),
        ('{"word": "x"}', "literal_error at $.word"),
        (f'{{"checked": "{DATA}"}}', "value_error at $.checked"),
        ('{"either": "x"}', "int_parsing at $.either[...]; list_type at $.either[...]"),
        ("{", "json_invalid at line 1 column 1"),
        (
            '{"inner": [1, 2, 3, 4, 5]}',
            "model_type at $.inner[0]; model_type at $.inner[1]; "
            "model_type at $.inner[2]; and 2 more",
        ),
    ],
)
def test_pydantics_reason_has_the_types_and_the_paths(data: str, expected: str) -> None:
    assert reason(Model, data.encode()).partition(": ")[2] == expected


def test_a_model_that_was_not_given_as_a_type_has_no_known_fields() -> None:
    class Unknown(pydantic.BaseModel):
        number: int

    with pytest.raises(pydantic.ValidationError) as caught:
        Unknown.model_validate({"number": DATA})
    assert cause_text(caught.value).endswith("int_parsing at $[...]")


def test_a_model_without_a_schema_has_the_names_of_its_own_fields() -> None:
    class Odd(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        number: int
        other: Record[Any] | None = None

    assert reason(Odd, b'{"number": "x"}').endswith("int_parsing at $.number")


def test_bytes_that_are_not_text_are_named_by_their_position() -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        b"abc\xff".decode()
    assert cause_text(caught.value) == "UnicodeDecodeError: not utf-8 (position 3)"


def test_other_errors_are_told_in_a_line() -> None:
    assert cause_text(KeyError("a\n b")) == "KeyError: 'a\\n b'"
    assert len(cause_text(ValueError("x" * 1000))) == MAX_CAUSE_CHARACTERS
