"""KPL frames that a producer can make up: opened, or delivered as they are."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING
from unittest import mock

from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.spark.columnar.arrow import Columns
from kinesumer.spark.columnar.rows import Slice, parse
from kinesumer.spark.options.table import COLUMNS
from kinesumer.wire import aggregation
from kinesumer.wire.aggregation import MAGIC, open_records
from tests.system.spark.reading_bench import schema
from tests.unit.wire.aggregates import AggregatedRecord, frame

if TYPE_CHECKING:
    from collections.abc import Callable

SHARD = ShardKey("arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "shard-7")
UPPER = Source(Fence(SHARD, 1), HASH_KEYS // 2, HASH_KEYS - 1)
ALL = Columns(schema(*COLUMNS))


def field(tag: int, value: bytes, claimed: int | None = None) -> bytes:
    """Return a protobuf field, whatever length it claims to have."""
    return bytes([tag]) + number(len(value) if claimed is None else claimed) + value


def number(value: int) -> bytes:
    """Return a varint."""
    text = b""
    while value > 127:
        text += bytes([value & 127 | 128])
        value >>= 7
    return text + bytes([value])


def user(key: int, data: bytes, claimed: int | None = None) -> bytes:
    """Return a user record of a frame."""
    return field(0x1A, b"\x08" + number(key) + field(0x1A, data, claimed))


GIGABYTE = 1 << 30
CORPUS = [
    b"",
    field(0x0A, b"k", GIGABYTE),
    field(0x0A, b"k") + field(0x1A, b"", GIGABYTE),
    field(0x0A, b"k") + user(0, b"x", GIGABYTE),
    field(0x0A, b"k") + user(0, b"x", (1 << 64) - 1),
    field(0x0A, b"k") + user((1 << 64) - 1, b"x"),
    field(0x0A, b"k") + user((1 << 70) - 1, b"x"),
    field(0x0A, b"k") + user(1, b"x"),
    field(0x0A, b"\xff") + user(0, b"x"),
    field(0x0A, b"k") + field(0x12, b"9" * 39) + user(0, b"x"),
    field(0x0A, b"k") + field(0x12, "٩".encode()) + user(0, b"x"),
    user(0, b"x") + field(0x0A, b"k"),
    field(0x0A, b"k") + b"\x1b" * 100_000,
    field(0x0A, b"k") + b"\x80" * 100_000,
    field(0x0A, b"k") + field(0x22, b"unknown") + user(0, b"x"),
]
pieces = st.one_of(
    st.binary(max_size=8),
    st.builds(field, st.sampled_from([0x0A, 0x12, 0x1A, 0x22, 8]), st.binary()),
    st.builds(user, st.integers(0, 3), st.binary(max_size=200)),
    st.builds(user, st.integers(0, 300), st.binary(max_size=5), st.integers(0, 300)),
    st.builds(field, st.just(0x12), st.integers(0, 1 << 129).map(str).map(str.encode)),
)
messages = st.lists(pieces, max_size=6).map(b"".join)


@example(CORPUS[0])
@given(messages)
def test_a_frame_is_what_protobuf_takes_it_for_or_no_frame(message: bytes) -> None:
    record = Record("1", frame(message))
    opened = open_records([record], UPPER)
    try:
        expected = AggregatedRecord.FromString(message)
    except DecodeError:
        assert opened.records == [record]
        return
    if opened.records == [record]:
        return
    assert [r.data for r in opened.records] == [r.data for r in expected.records]
    assert opened.outside <= len(opened.records)


def test_a_frame_that_claims_what_it_does_not_hold_is_delivered_as_it_is() -> None:
    for message in CORPUS:
        record = Record("1", frame(message))
        opened = open_records([record], UPPER)
        assert opened.last == "1"
        assert sum(len(part.data) for part in opened.records) <= len(record.data)


@given(st.binary(max_size=40).map(MAGIC.__add__))
def test_what_only_begins_like_a_frame_is_delivered_as_it_is(data: bytes) -> None:
    record = Record("1", data)
    assert open_records([record], UPPER).records == [record]


@given(messages)
def test_spark_opens_a_frame_like_anybody(message: bytes) -> None:
    data = frame(message)
    entry = {
        "SequenceNumber": "1",
        "ApproximateArrivalTimestamp": 1.5,
        "PartitionKey": "k",
        "Data": base64.b64encode(data).decode(),
    }
    body = json.dumps({"Records": [entry], "MillisBehindLatest": 0}).encode()
    _, rows = parse(body, ALL.names, deaggregate=True)
    found = rows.batch(SHARD, ALL, Slice(0, len(rows))).to_pylist()
    opened = open_records([Record("1", data)], UPPER)
    assert [row["data"] for row in found] == [r.data for r in opened.records]


def test_a_key_that_a_thousand_records_share_is_hashed_once() -> None:
    key = b"k" * 100_000
    message = field(0x0A, key) + 1000 * user(0, b"x")
    hashed = counted(lambda: open_records([Record("1", frame(message))], UPPER))
    assert hashed < 5 * len(message)


def counted(work: Callable[[], object]) -> int:
    """Return how many bytes a call hashes."""
    total = 0

    def counting(data: bytes, *, usedforsecurity: bool) -> object:
        nonlocal total
        total += len(data)
        return hashlib.md5(data, usedforsecurity=False)

    with mock.patch.object(aggregation, "md5", counting):
        work()
    return total
