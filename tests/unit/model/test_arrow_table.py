"""Test the Arrow tables of batches."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa
import pydantic
import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.testing import batch, record

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
METADATA = [
    "stream",
    "shard",
    "sequence_number",
    "sub_sequence_number",
    "partition_key",
    "arrived_at",
]


def table_of(*values: object) -> Any:
    """Return the table of a batch with these values."""
    return batch([record(b"", value=value) for value in values]).to_arrow()


def columns_of(table: Any) -> dict[str, list[object]]:
    """Return the columns that come from values."""
    found: dict[str, list[object]] = table.drop_columns(METADATA).to_pydict()
    return found


def test_records_have_their_metadata_and_their_data() -> None:
    one = record(b"\x00a", arrived_at=NOON, sequence_number="49", sub_sequence_number=2)
    table = batch([one, record(b"b", arrived_at=NOON, partition_key="k")]).to_arrow()
    assert table.schema.equals(
        pa.schema(
            {
                "stream": pa.string(),
                "shard": pa.string(),
                "sequence_number": pa.string(),
                "sub_sequence_number": pa.int64(),
                "partition_key": pa.string(),
                "arrived_at": pa.timestamp("us", "UTC"),
                "data": pa.binary(),
            }
        )
    )
    assert table.to_pylist()[0] == {
        "stream": "orders",
        "shard": "shardId-000000000000",
        "sequence_number": "49",
        "sub_sequence_number": 2,
        "partition_key": "key",
        "arrived_at": NOON,
        "data": b"\x00a",
    }
    assert table["sub_sequence_number"].to_pylist() == [2, None]


def test_a_batch_without_records_has_the_same_columns() -> None:
    empty, full = batch([]).to_arrow(), batch([b"a"]).to_arrow()
    assert empty.schema == full.schema
    assert empty.num_rows == 0


class Kind(Enum):
    SALE = "sale"
    GIFT = "gift"


class Address(msgspec.Struct):
    city: str
    zip: int | None = None


class Order(msgspec.Struct, omit_defaults=True, rename="camel"):
    order_id: int
    total: float = 1.5
    kind: Kind = Kind.SALE
    note: str | None = None
    ship_to: Address | None = None
    tags: list[str] = []
    at: datetime | None = None
    on: date | None = None
    took: timedelta | None = None
    key: UUID | None = None
    price: Decimal | None = None
    state: Literal["open", "done"] = "open"
    raw: bytes = b""
    is_paid: bool = False


def test_a_types_fields_are_columns_of_their_types_whatever_the_values_are() -> None:
    table = table_of(Order(7), Order(8, ship_to=Address("Ulm"), tags=["a"]))
    address = pa.struct({"city": pa.string(), "zip": pa.int64()})
    assert {
        name: table.schema.field(name).type for name in Order.__struct_fields__
    } == {
        "order_id": pa.int64(),
        "total": pa.float64(),
        "kind": pa.string(),
        "note": pa.string(),
        "ship_to": address,
        "tags": pa.list_(pa.string()),
        "at": pa.timestamp("us", "UTC"),
        "on": pa.date32(),
        "took": pa.duration("us"),
        "key": pa.string(),
        "price": pa.string(),
        "state": pa.string(),
        "raw": pa.binary(),
        "is_paid": pa.bool_(),
    }
    rows = table.to_pylist()
    assert rows[0]["total"] == 1.5
    assert rows[0]["kind"] == "sale"
    assert rows[1]["ship_to"] == {"city": "Ulm", "zip": None}


@dataclass
class Point:
    x: int
    next: Point | None = None


class Pair(NamedTuple):
    key: str
    size: int


class Model(pydantic.BaseModel):
    id: UUID
    within: Inner | None = None


class Inner(pydantic.BaseModel):
    size: int = 3


KEY = UUID(int=1)


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        (Point(1, Point(2)), {"x": [1], "next": [{"x": 2, "next": None}]}),
        (Pair("a", 2), {"key": ["a"], "size": [2]}),
        (
            Model(id=KEY, within=Inner()),
            {"id": [str(KEY)], "within": [{"size": 3}]},
        ),
        ({"a": 1, "b": {"c": [2]}}, {"a": [1], "b": [{"c": [2]}]}),
        (7, {"value": [7]}),
        ([1, 2], {"value": [[1, 2]]}),
        (b"unpacked", {"value": [b"unpacked"]}),
    ],
)
def test_values_of_each_kind_become_columns(
    value: object, columns: dict[str, list[object]]
) -> None:
    assert columns_of(table_of(value)) == columns


def test_an_inner_models_type_is_known() -> None:
    schema = table_of(Model(id=KEY)).schema
    assert schema.field("within").type == pa.struct({"size": pa.int64()})


class Created(msgspec.Struct, tag=True):
    id: int


class Deleted(msgspec.Struct, tag=True):
    id: int
    why: str


def test_values_of_several_types_share_a_table() -> None:
    assert columns_of(table_of(Created(1), Deleted(2, "old"), {"more": 1.5})) == {
        "type": ["Created", "Deleted", None],
        "id": [1, 2, None],
        "why": [None, "old", None],
        "more": [None, None, 1.5],
    }


def test_a_field_with_the_name_of_metadata_keeps_its_name() -> None:
    table = table_of({"stream": "mine", "kinesis_shard": 1, "shard": 2})
    assert table["stream"].to_pylist() == ["mine"]
    assert table["kinesis_stream"].to_pylist() == ["orders"]
    assert table["kinesis_kinesis_shard"].to_pylist() == ["shardId-000000000000"]
    assert "sequence_number" in table.column_names


def test_values_that_do_not_fit_a_column_name_it() -> None:
    with pytest.raises(OverflowError) as caught:
        table_of(Created(1 << 70))
    assert caught.value.__notes__ == [
        "the values are those of column 'id' of to_arrow()"
    ]


def test_without_pyarrow_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigurationError, match=r"pip install 'kinesumer\[arrow\]'"):
        batch([b"a"]).to_arrow()
