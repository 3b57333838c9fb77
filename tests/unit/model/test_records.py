"""The values that users see: positions, starts, records."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import ShardKey, Start

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"

numbers = st.integers(0, 10**56)
parts = st.none() | st.integers(0, 1000)


@given(numbers, parts, numbers, parts)
def test_positions_order_as_numbers_then_parts_then_the_whole(
    number: int, part: int | None, other: int, other_part: int | None
) -> None:
    def key(number: int, part: int | None) -> tuple[int, float]:
        return number, float("inf") if part is None else part

    one, two = Position(str(number), part), Position(str(other), other_part)
    expected = key(number, part), key(other, other_part)
    assert (one < two) == (expected[0] < expected[1])
    assert (one <= two) == (expected[0] <= expected[1])
    assert (one > two) == (expected[0] > expected[1])
    assert (one >= two) == (expected[0] >= expected[1])
    assert (one == two) == (expected[0] == expected[1])


@given(numbers, parts)
def test_a_position_is_stored_as_text(number: int, part: int | None) -> None:
    position = Position(str(number), part)
    assert Position.of_text(position.text) == position


@pytest.mark.parametrize("text", ["", "x", "-1", "1:", ":1", "1:2:3", " 1", "1\n", "٣"])
def test_text_that_is_no_position_is_refused(text: str) -> None:
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
def test_a_start_that_no_row_could_be_read_with_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="outside 1970 to 9999"):
        Start(type="AT_TIMESTAMP", timestamp=seconds)


def test_starts_are_values() -> None:
    assert Start(type="LATEST") == Start.LATEST
    assert Start.LATEST != Start.TRIM_HORIZON
    assert len({Start.LATEST, Start(type="LATEST"), Start.TRIM_HORIZON}) == 2


FENCE = Fence(ShardKey(ARN, "shardId-000000000001"), 3)


def test_a_record_tells_its_shard_and_fence() -> None:
    record = Record("49", b"data", source=Source(FENCE, 0, 9))
    assert record.stream == "orders"
    assert record.stream_arn == ARN
    assert record.shard_id == "shardId-000000000001"
    assert record.fence == FENCE.at(Position("49"))
    assert record.position == Position("49")


def test_a_user_record_of_an_aggregate_has_a_position_of_its_own() -> None:
    record = Record("49", b"data", sub_sequence_number=2)
    assert record.position == Position("49", 2)


def test_a_record_made_by_hand_says_so_when_asked_for_its_shard() -> None:
    with pytest.raises(AttributeError, match="wasn't delivered by a client"):
        assert Record("49", b"data").shard_id


def test_arrival_is_utc_or_unknown() -> None:
    record = Record("49", b"data", approximate_arrival_timestamp=1.5)
    assert record.arrived_at == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert Record("49", b"data").arrived_at is None


def test_a_later_owner_of_a_shard_has_a_larger_fence() -> None:
    assert FENCE._replace(epoch=10) > FENCE
