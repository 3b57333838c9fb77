"""Test the values that users see: positions, starts and records."""

from __future__ import annotations

import gc
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from operator import eq, ge, gt, le, lt
from typing import Any, NamedTuple, TypedDict, assert_type

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import ConfigurationError, DecodeError
from kinesumer.model.batches import Batch
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import ShardKey, Start

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"

numbers = st.integers(0, 10**56)
parts = st.none() | st.integers(0, 1000)


@given(numbers, parts, numbers, parts)
def test_positions_sort_by_number_then_part_then_whole_and_are_stored_as_text(
    number: int, part: int | None, other: int, other_part: int | None
) -> None:
    one, two = Position(str(number), part), Position(str(other), other_part)
    first = number, math.inf if part is None else part
    second = other, math.inf if other_part is None else other_part
    for compare in (lt, le, gt, ge, eq):
        assert compare(one, two) == compare(first, second)
    assert Position.of_text(one.text) == one


@pytest.mark.parametrize("text", ["", "x", "-1", "1:", ":1", "1:2:3", " 1", "1\n", "٣"])
def test_invalid_text_of_a_position_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="invalid position"):
        Position.of_text(text)


@pytest.mark.parametrize("other", ["5", ("5", None), 5, None])
def test_a_position_is_compared_with_positions_only(other: Any) -> None:
    with pytest.raises(TypeError):
        assert Position("5") < other


def test_a_start_by_time_keeps_the_moment() -> None:
    moment = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
    assert Start.at(moment).timestamp == moment.timestamp()
    there = moment.astimezone(timezone(timedelta(hours=9)))
    assert Start.at(there) == Start.at(moment)


def test_a_naive_datetime_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"no time zone; use datetime\.now"):
        Start.at(datetime(2026, 11, 21))


@pytest.mark.parametrize("seconds", [-1.0, -6.2e10, 253_402_300_800.0, math.nan])
def test_a_start_that_rows_cant_store_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="outside 1970 to 9999"):
        Start(type="AT_TIMESTAMP", timestamp=seconds)


def test_starts_are_values() -> None:
    assert Start(type="LATEST") == Start.LATEST
    assert Start.LATEST != Start.TRIM_HORIZON
    assert len({Start.LATEST, Start(type="LATEST"), Start.TRIM_HORIZON}) == 2


FENCE = Fence(ShardKey(ARN, "shardId-000000000001"), 3)


@pytest.mark.parametrize("part", [None, 2])
def test_records_and_batches_have_the_shard_and_the_fence(part: int | None) -> None:
    source = Source(FENCE, 0, 9)
    record = Record("49", b"data", sub_sequence_number=part, source=source)
    assert record.position == Position("49", part)
    for value in (record, Batch([Record("48", b"", source=source), record], 7, source)):
        assert value.stream == "orders"
        assert value.stream_arn == ARN
        assert value.shard_id == "shardId-000000000001"
        assert value.fence == FENCE.at(record.position)
    assert Batch([], 7, source).fence == FENCE


def test_a_record_made_by_hand_has_no_shard() -> None:
    with pytest.raises(AttributeError, match="wasn't delivered by a client"):
        assert Record("49", b"data").shard_id


def test_arrival_is_utc_or_unknown() -> None:
    record = Record("49", b"data", approximate_arrival_timestamp=1.5)
    assert record.arrived_at == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert Record("49", b"data").arrived_at is None


def test_a_later_owner_of_a_shard_has_a_larger_fence() -> None:
    assert FENCE._replace(epoch=10) > FENCE


# --- values ---


class Event(msgspec.Struct):
    id: int


@dataclass
class Order:
    id: int
    next: Order | None = None


class Row(TypedDict):
    id: int


class Pair(NamedTuple):
    id: int
    other: int = 0


class Model(pydantic.BaseModel):
    id: int


class Unknown:
    """A class that nothing can decode."""


ORDER = Record("49", b'{"id": 7}', source=Source(FENCE, 0, 9))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Event, Event(7)),
        (Order, Order(7)),
        (Row, {"id": 7}),
        (Model, Model(id=7)),
        (dict[str, int], {"id": 7}),
        (Order | None, Order(7)),
        (Any, {"id": 7}),
    ],
)
def test_json_is_decoded_as_a_type(type_: Any, value: object) -> None:
    assert ORDER.json(type_) == value
    assert ORDER.json() == {"id": 7}
    assert Record("1", b"[7]").json(Pair) == Pair(7)


@pytest.mark.parametrize("data", [b"", b"{", b'{"id": "x"}', b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("type_", [Event, Model])
def test_data_that_cannot_be_decoded_names_its_record(data: bytes, type_: Any) -> None:
    record = Record("49", data, sub_sequence_number=2, source=ORDER.source)
    with pytest.raises(DecodeError) as caught:
        record.json(type_)
    error = caught.value
    assert str(error).startswith(
        "record 49:2 of stream orders, shardId-000000000001, cannot be decoded: "
    )
    assert "\n" not in str(error)
    assert error.record is record
    assert error.__cause__ is not None
    copy = pickle.loads(pickle.dumps(error))
    assert copy.record.position == record.position
    assert copy.reason == error.reason
    assert f"cannot be decoded: {error.reason}; correct" in str(error)


def test_a_record_made_by_hand_is_named_by_its_number() -> None:
    with pytest.raises(DecodeError, match=r"^record 49 cannot be decoded: msgspec\."):
        Record("49", b"{").json()


@pytest.mark.parametrize("type_", [Unknown, list[Unknown], [Order], "Order", 7])
def test_a_type_that_json_cannot_be_decoded_as_is_refused(type_: Any) -> None:
    with pytest.raises(ConfigurationError, match="not a type that JSON can be decoded"):
        ORDER.json(type_)


def test_the_value_is_the_data_until_it_is_decoded() -> None:
    decoded = ORDER.with_value(Order(7))
    assert ORDER.value == ORDER.data
    assert decoded.value == Order(7)
    assert (decoded.data, decoded.fence) == (ORDER.data, ORDER.fence)


def test_a_value_may_refer_to_its_record() -> None:
    class Holder:
        record: Record[Holder] | None = None

    collected: list[bool] = []
    holder = Holder()
    holder.record = ORDER.with_value(holder)
    Holder.__del__ = lambda self: collected.append(True)  # type: ignore[attr-defined]
    del holder
    gc.collect()
    assert collected == [True]


def test_types_of_values_are_known_to_type_checkers() -> None:
    def check(plain: Record, batch: Batch, order: Record[Order]) -> None:
        assert_type(plain.value, bytes)
        assert_type(batch.records, Sequence[Record[bytes]])
        assert_type(order.value, Order)
        assert_type(plain.json(Order), Order)
        assert_type(plain.with_value(7), Record[int])

    handle: Callable[[Record, Batch, Record[Order]], None] = check
    assert handle is check


def test_the_text_of_a_batch_says_which_records_it_has() -> None:
    assert ORDER.source is not None
    place = "stream='orders', shard_id='shardId-000000000001'"
    assert place in repr(ORDER)
    batch = Batch([ORDER, ORDER], 0, ORDER.source)
    position = ORDER.position.text
    assert repr(batch) == (
        f"<Batch: {place}, records=2, first='{position}', last='{position}'>"
    )
    assert repr(Batch([], 0, ORDER.source)) == f"<Batch: {place}, no records>"
