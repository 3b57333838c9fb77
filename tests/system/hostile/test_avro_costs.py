"""Test that Avro data becomes few values for each byte, whatever schema it names."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.decoding.avro import (
    MAX_DECIMAL_BYTES,
    MAX_FREE_VALUES,
    MAX_VALUES_PER_BYTE,
    MAX_VARINT_BYTES,
    AvroSchema,
    payload_decoder,
)
from tests.support.aggregates import varint
from tests.support.steps import growth, peak_bytes

LIST = {
    "type": "record",
    "name": "List",
    "fields": [
        {"name": "value", "type": "long"},
        {"name": "next", "type": ["null", "List"]},
    ],
}
REFUSED = r"no bytes|bytes of data would become"
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


def record_of(name: str, *types: Any) -> dict[str, Any]:
    """Return a record's schema with fields of these types."""
    fields = [{"name": f"f{n}", "type": type_} for n, type_ in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def doubling(depth: int, inner: Any, name: str = "R") -> dict[str, Any]:
    """Return records of two fields, each a record of two fields, and so on."""
    schema = record_of(f"{name}0", inner)
    for n in range(1, depth):
        schema = record_of(f"{name}{n}", schema, f"{name}{n - 1}")
    return schema


def chain(depth: int) -> dict[str, Any]:
    """Return records of one field, each within another."""
    schema = record_of("C0", "boolean")
    for n in range(1, depth):
        schema = record_of(f"C{n}", schema)
    return schema


def decode(schema: Any, data: bytes) -> Any:
    """Return data decoded with a schema."""
    return payload_decoder(AvroSchema(schema), None, None)(data)


def number(value: int) -> bytes:
    """Return a number as Avro encodes it."""
    return varint(2 * value)


def values_in(value: Any) -> int:
    """Return how many values a decoded value is made of."""
    if isinstance(value, dict):
        return 1 + sum(map(values_in, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(values_in, value))
    return 1


# --- what no byte pays for ---

ZERO = {"type": "fixed", "name": "Zero", "size": 0}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": ZERO},
        {"type": "array", "items": record_of("Empty")},
        {"type": "array", "items": record_of("Empty", "null", record_of("Inner"))},
        {"type": "map", "values": record_of("Wide", *["null"] * 20)},
        ["null", record_of("Wide", *["null"] * 20)],
        {"type": "array", "items": record_of("Wide", "boolean", *["null"] * 20)},
        {"type": "array", "items": chain(20)},
        record_of("Wide", "null", {"type": "array", "items": "null"}),
        record_of("Wide", *["null"] * (MAX_FREE_VALUES + 1), *["long"] * 1000),
        doubling(5, "null"),
        doubling(40, "null"),
        record_of("Both", doubling(40, "null"), doubling(40, "long", "L")),
    ],
    ids=lambda schema: json.dumps(schema)[:60],
)
def test_a_schema_whose_data_is_mostly_free_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match=REFUSED):
        AvroSchema(schema)
    with pytest.raises(ValueError, match=REFUSED):
        AvroSchema(json.dumps(record_of("Outer", schema)))


def test_usual_schemas_are_accepted() -> None:
    assert decode(record_of("One", "null", "boolean"), b"\1")
    assert decode({"type": "array", "items": chain(7)}, number(1) + b"\1\0")
    assert decode(record_of("Empty"), b"") == {}
    assert decode({"type": "map", "values": "null"}, number(1) + b"\2k\0") == {
        "k": None
    }
    wide = record_of("Wide", *[["null", "long"]] * 500, *["null"] * 50)
    assert len(decode(wide, bytes(500))) == 550


def test_the_check_of_a_schema_is_linear() -> None:
    def check(depth: int) -> Any:
        return lambda: AvroSchema(doubling(depth, "boolean"))

    assert growth(check, 15) < 6


@pytest.mark.parametrize("depth", [900, 5_000, 1_000_000])
def test_a_deeply_nested_schema_is_refused(depth: int) -> None:
    text = '{"type":"array","items":' * depth + '"long"' + "}" * depth
    with pytest.raises(ValueError, match="RecursionError"):
        AvroSchema(text)


# --- numbers ---


@pytest.mark.parametrize("kind", ["bytes", "fixed"])
def test_a_decimal_has_a_limited_length(kind: str) -> None:
    def schema(size: int) -> Any:
        extra = {"type": "fixed", "name": "F", "size": size} if kind == "fixed" else {}
        return DECIMAL | extra

    def data(size: int) -> bytes:
        return b"" if kind == "fixed" else number(size)

    one = data(MAX_DECIMAL_BYTES) + bytes(MAX_DECIMAL_BYTES - 1) + b"\x7b"
    assert decode(schema(MAX_DECIMAL_BYTES), one) == Decimal("1.23")
    size = MAX_DECIMAL_BYTES + 1
    with pytest.raises(ValueError, match="a decimal of 1,025 bytes"):
        decode(schema(size), data(size) + bytes(size))


def test_a_number_in_a_recursive_schema_has_a_limited_length() -> None:
    assert decode(LIST, b"\x80" * (MAX_VARINT_BYTES - 1) + b"\0\0")["value"] == 0
    assert decode(LIST, b"\1\0")["value"] == -1
    with pytest.raises(ValueError, match="more than 10 bytes"):
        decode(LIST, b"\xff" * MAX_VARINT_BYTES + b"\1\0")
    with pytest.raises(ValueError, match="EOFError"):
        decode(LIST, b"\xff")


# --- any schema ---

leaves = st.sampled_from(
    ["null", "boolean", "long", "string", "bytes", "double", "R0", "R1", "R2"]
) | st.integers(0, 2).map(lambda n: {"type": "fixed", "name": f"F{n}", "size": n})


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """Return a schema, valid or not, whose records refer to one another."""

    def node(depth: int) -> Any:
        kind = draw(st.integers(0, 9))
        if depth > 3 or kind < 4:
            return draw(leaves)
        if kind < 6:
            return {"type": "array", "items": node(depth + 1)}
        if kind == 6:
            return {"type": "map", "values": node(depth + 1)}
        if kind == 7:
            return ["null", node(depth + 1)]
        fields = [node(depth + 1) for _ in range(draw(st.integers(0, 4)))]
        return record_of(f"R{draw(st.integers(0, 2))}", *fields)

    return record_of("Root", *(node(0) for _ in range(draw(st.integers(1, 4)))))


bodies = st.lists(
    st.sampled_from([b"\0", b"\2", b"\4", b"\x14", b"\xfe\xff\x07", b"\1", b"\xff"])
    | st.binary(max_size=4),
    max_size=12,
).map(b"".join)


@given(schemas(), bodies)
def test_each_byte_becomes_few_values(schema: Any, data: bytes) -> None:
    try:
        checked = AvroSchema(schema)
        found = payload_decoder(checked, None, None)(data)
    except ValueError:
        return
    assert values_in(found) <= MAX_VALUES_PER_BYTE * (len(data) + 1)


@settings(max_examples=settings().max_examples // 4)  # tracemalloc is slow
@given(schemas(), bodies)
def test_no_data_takes_memory_far_beyond_its_size(schema: Any, data: bytes) -> None:
    try:
        checked = AvroSchema(schema)
    except ValueError:
        return

    def read() -> None:
        with pytest.raises(ValueError):
            payload_decoder(checked, None, None)(data)
            raise ValueError

    read()
    assert peak_bytes(read) < 200_000
