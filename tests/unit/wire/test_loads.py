"""Test the text by which members report loads, and that rows with it stay small."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.loads import Load, LoadReport
from kinesumer.model.rows import MemberRow, Value
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey
from kinesumer.wire import rows, writes
from kinesumer.wire.loads import KEY_UNIT, load_text, max_entries, read_loads
from tests.support.stored_loads import stored_loads

A, B = (f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}" for name in "ab")
BOTH = frozenset({A, B})
rates = st.just(0.0) | st.floats(1e-3, 1e7)
loads = st.builds(Load, rates, rates, rates)


def shard(arn: str, number: int, count: int) -> tuple[ShardKey, int]:
    """Return the key and the starting hash key of one of a stream's equal shards."""
    return ShardKey(arn, f"shardId-{number:012}"), number * HASH_KEYS // count


def check(found: Load, load: Load) -> None:
    """Check that rates were read as they were written, up to their scale's steps."""
    for rate, written, error in zip(found, load, (0.1, 0.1, 0.002), strict=True):
        assert rate == pytest.approx(written, rel=error, abs=30)
    if load.handler_seconds_per_second > 1e-5:
        expected = load.handler_seconds_per_second
        assert found[2] == pytest.approx(expected, rel=0.002)


@given(st.lists(loads, min_size=1, max_size=20), st.sampled_from([1, 2, 94, 95, 8836]))
def test_reports_are_read_as_they_were_written(given: list[Load], last: int) -> None:
    bounded = [Load(*map(min, load, (2e7, 2e4, 900.0))) for load in given]
    written = [
        LoadReport(A, n * HASH_KEYS // len(bounded), 1, load)
        for n, load in enumerate(bounded)
    ]
    written.append(LoadReport(B, 0, last, bounded[0]))
    found = read_loads(load_text(written, BOTH), BOTH)
    for one, report in zip(found, written, strict=True):
        assert (one.stream_arn, one.shards) == (report.stream_arn, report.shards)
        assert report.first_hash - KEY_UNIT < one.first_hash <= report.first_hash
        check(one.load, report.load)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (Load(), Load()),
        (Load(29.0, 0.029, 9e-7), Load()),
        (Load(30.0, 0.03, 1e-6), Load(30.0, 0.03, 1e-6)),
        (Load(1e99, 1e99, 1e99), Load(3e7, 3e4, 1e3)),
    ],
)
def test_rates_have_a_least_and_a_greatest_value(load: Load, expected: Load) -> None:
    [found] = read_loads(load_text([LoadReport(A, 0, 1, load)], BOTH), BOTH)
    assert found.load == pytest.approx(expected)


def test_without_reports_there_is_no_text() -> None:
    assert load_text([], BOTH) == ""
    assert read_loads("", BOTH) == []


@pytest.mark.parametrize(
    "text",
    [
        "0 0:1|",
        "0 0:1|AAA!!!",
        "2 0:1|AAA!!!!",
        "1 0:1|AAA!!!!!",
        "0 0:1|AAA!!!!!",
        "0 0:1|AAA!!!\x7f",
        "0 0:1|A A!!!!",
        "3 0:1|AAA!!!!",
        "0 2:1|AAA!!!!",
        "0|AAA!!!!",
        "0 0:1 AAA!!!!",
        "x 0:1|AAA!!!!",
        "٣ 0:1|AAA!!!!",
    ],
)
def test_an_invalid_text_reports_nothing(text: str) -> None:
    assert read_loads(text, BOTH) == []
    assert read_loads("0 0:1|AAA!!!!", BOTH) == [LoadReport(A, 0, 1, Load())]


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    read_loads(text, BOTH)
    read_loads(f"0 0:1|{text}", BOTH)
    read_loads(f"2 0:1|{text}", BOTH)


def stored_bytes(member: MemberRow, text: str) -> int:
    """Return the size of a member's row, as DynamoDB counts it."""
    registered = writes.register("billing", member, None, "2026-11-23T00:00:00.000Z")
    beat = writes.heartbeat(
        "billing",
        member,
        10**7,
        state="degraded",
        lease_ms=86_400_000,
        fan_out=member.fan_out,
        load=text,
    )
    plan: dict[str, Value] = {
        "index": 1000,
        "range": rows.range_text(member.range or (), member.streams),
        "clients": 1000,
        "leader_epoch": 10**6,
        "plan_version": 10**9,
        "notice": 10**6,
    }
    key: dict[str, Value] = {"pk": "member#billing", "sk": member.client_id}
    row = {**key, **registered.set, **beat.set}
    size = 0
    for name, value in {**row, **plan}.items():
        size += len(name)
        match value:
            case str():
                size += len(value.encode())
            case frozenset():
                size += 3 + sum(1 + len(one.encode()) for one in value)
            case _:  # a number takes a byte, and one for each two digits
                size += 2 + len(str(value)) // 2
    return size


@pytest.mark.parametrize("count", [60, 600])
@pytest.mark.parametrize("streams", [[A], [A, B], [A, B, f"{A}-by-region-and-account"]])
def test_a_row_with_many_shards_takes_less_than_a_kilobyte(
    streams: list[str], count: int
) -> None:
    draw = random.Random(1)
    member = MemberRow(
        "consumer-6d9f7c5b8-x2x7k-1a2b3c4d",
        "0" * 32,
        streams=frozenset(streams),
        label="us-east-1a",
        max_shards=1000,
        range=tuple(Interval(arn, 2**126 + 1, 2**127 + 1) for arn in streams),
    )
    loads = {
        shard(arn, number, count): Load(draw.random(), draw.random(), draw.random())
        for arn in streams
        for number in range(count // len(streams))
    }
    text = stored_loads(loads, member.streams, max_entries(member, count))
    assert stored_bytes(member, text) < 1024
    found = read_loads(text, member.streams)
    assert sum(one.shards for one in found) == count
    if len(streams) == 1 and count == 60:
        assert len(found) == 60


def test_a_row_with_little_room_reports_a_few_entries() -> None:
    member = MemberRow("c1", "s1", streams=frozenset(f"{A}{n:0100}" for n in range(9)))
    assert max_entries(member, 10) == max_entries(member, 1000) == 10
