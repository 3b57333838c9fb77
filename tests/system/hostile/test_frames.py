"""Test that Spark opens forged KPL frames like other clients, and in linear time.

tests/unit/wire/test_aggregation.py compares the results of other clients with those of
protobuf.
"""

from __future__ import annotations

import base64
import hashlib
import json
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.model.records import Record
from kinesumer.spark.columnar.arrow import Columns
from kinesumer.spark.columnar.rows import Slice, parse
from kinesumer.spark.options.table import COLUMNS
from kinesumer.wire import aggregation
from kinesumer.wire.aggregation import MAGIC, open_records
from tests.support.spark_reading import schema
from tests.system.hostile.strategies import (
    SHARD,
    UPPER_HALF,
    field,
    user,
    with_examples,
)
from tests.unit.wire.aggregates import frame

ALL = Columns(schema(*COLUMNS))
KEY, GIGABYTE = field(0x0A, b"k"), 1 << 30
CORPUS = [
    b"",
    field(0x0A, b"k", GIGABYTE),
    KEY + field(0x1A, b"", GIGABYTE),
    KEY + user(0, b"x", GIGABYTE),
    KEY + user(0, b"x", (1 << 64) - 1),
    KEY + user((1 << 64) - 1, b"x"),
    KEY + user((1 << 70) - 1, b"x"),
    KEY + user(1, b"x"),
    field(0x0A, b"\xff") + user(0, b"x"),
    KEY + field(0x12, b"9" * 39) + user(0, b"x"),
    KEY + field(0x12, "٩".encode()) + user(0, b"x"),
    user(0, b"x") + KEY,
    KEY + b"\x1b" * 100_000,
    KEY + b"\x80" * 100_000,
    KEY + field(0x22, b"unknown") + user(0, b"x"),
]
pieces = st.one_of(
    st.binary(max_size=8),
    st.builds(field, st.sampled_from([0x0A, 0x12, 0x1A, 0x22, 8]), st.binary()),
    st.builds(user, st.integers(0, 3), st.binary(max_size=200)),
    st.builds(user, st.integers(0, 300), st.binary(max_size=5), st.integers(0, 300)),
    st.builds(field, st.just(0x12), st.integers(0, 1 << 129).map(str).map(str.encode)),
)
frames = st.lists(pieces, max_size=6).map(lambda parts: frame(b"".join(parts)))


@with_examples(map(frame, CORPUS))
@given(frames | st.binary(max_size=40).map(MAGIC.__add__))
@settings(max_examples=settings().max_examples // 2)
def test_spark_opens_a_frame_like_other_clients(data: bytes) -> None:
    entry = {
        "SequenceNumber": "1",
        "ApproximateArrivalTimestamp": 1.5,
        "PartitionKey": "k",
        "Data": base64.b64encode(data).decode(),
    }
    body = json.dumps({"Records": [entry], "MillisBehindLatest": 0}).encode()
    _, rows = parse(body, ALL.names, deaggregate=True)
    read = rows.batch(SHARD, ALL, Slice(0, len(rows))).to_pylist()
    opened = open_records([Record("1", data)], UPPER_HALF)
    assert [row["data"] for row in read] == [r.data for r in opened.records]
    assert opened.last == "1"
    assert opened.outside <= len(opened.records)
    # A forged length yields no more data than the record has.
    assert sum(len(part.data) for part in opened.records) <= len(data)


def test_a_key_that_a_thousand_records_share_is_hashed_once() -> None:
    hashed_bytes = 0

    def count(data: bytes, *, usedforsecurity: bool) -> object:
        nonlocal hashed_bytes
        hashed_bytes += len(data)
        return hashlib.md5(data, usedforsecurity=False)

    message = field(0x0A, b"k" * 100_000) + 1000 * user(0, b"x")
    with mock.patch.object(aggregation, "md5", count):
        open_records([Record("1", frame(message))], UPPER_HALF)
    assert hashed_bytes < 5 * len(message)
