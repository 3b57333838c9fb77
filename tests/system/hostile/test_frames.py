"""Test that Spark opens forged KPL frames like other clients, and in linear time.

tests/unit/wire/test_aggregation.py compares the results of other clients with those of
protobuf.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import deque
from typing import NamedTuple
from unittest import mock

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.model.records import RECORD_OVERHEAD_BYTES, Record
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.rows import Columns, Slice, rows_of
from kinesumer.wire import aggregate_readers, aggregation
from kinesumer.wire.aggregation import MAGIC, open_in_steps
from kinesumer.wire.records import decode_page
from tests.support.aggregates import (
    User,
    by_protobuf,
    field,
    frame,
    open_records,
    varint,
)
from tests.support.spark_reading import schema
from tests.support.steps import peak_bytes, steps_of_each
from tests.system.hostile.strategies import (
    SHARD,
    UPPER_HALF,
    user,
    with_examples,
)

ALL = Columns(schema(*COLUMNS))
KEY, GIGABYTE = field(0x0A, b"k"), 1 << 30


def odd_user(key: int, hash_key: int, data: bytes) -> bytes:
    """Return a user record with a hash key's index and fields that no one knows."""
    start = b"\x08" + varint(key) + b"\x10" + varint(hash_key)
    return field(0x1A, start + b"\x22\x01\xff\x2b\x2c" + field(0x1A, data))


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
    KEY + field(0x12, b"undefined") + user(0, b"x"),
    KEY + field(0x1A, b"\x08\x00\x10\x05\x1a\x01x"),
    user(0, b"x") + KEY,
    KEY + b"\x1b" * 100_000,
    KEY + b"\x1b\x1c" * 50_000 + user(0, b"x"),
    KEY + b"\x80" * 100_000,
    KEY + field(0x22, b"unknown") + user(0, b"x"),
]
# Hash keys as other writers put them into the table, whether user records refer to them
# or not.
odd_hash_keys = st.sampled_from(
    [b"undefined", b"null", b"-1", b"", b"\xff", b"0x10", b"9" * 39, b"9" * 5000]
)
pieces = st.one_of(
    st.binary(max_size=8),
    st.just(KEY),
    st.builds(field, st.just(0x12), odd_hash_keys),
    st.builds(odd_user, st.integers(0, 2), st.integers(0, 3), st.binary(max_size=5)),
    st.sampled_from([b"\x20\x07", b"\x25abcd", b"\x21abcdefgh", b"\x23\x20\x01\x24"]),
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
    rows = rows_of(decode_page(body), deaggregate=True)
    read = rows.batch(SHARD, ALL, Slice(0, len(rows))).to_pylist()
    opened = open_records([Record("1", data)], UPPER_HALF)
    assert [row["data"] for row in read] == [r.data for r in opened.records]
    assert opened.last == "1"
    assert opened.outside <= len(opened.records)
    assert len(opened.unopened) == (expected_users(data) is None)
    # A forged length yields no more data than the record has.
    assert sum(len(part.data) for part in opened.records) <= len(data)


def expected_users(data: bytes) -> list[User] | None:
    """Return a frame's user records by protobuf, or None if it can't be opened."""
    message = data[len(MAGIC) : -16]
    if frame(message) != data:
        return None
    try:
        return by_protobuf(message)
    except (DecodeError, IndexError):
        return None


def test_a_key_that_a_thousand_records_share_is_hashed_once() -> None:
    hashed_bytes = 0

    class Counting:
        """A digest that counts what it digests."""

        def __init__(self, data: bytes = b"", *, usedforsecurity: bool) -> None:
            self._digest = hashlib.md5(usedforsecurity=usedforsecurity)
            self.digest = self._digest.digest
            self.update(data)

        def update(self, data: bytes) -> None:
            nonlocal hashed_bytes
            hashed_bytes += len(data)
            self._digest.update(data)

    for count in (1000, 50_000):
        message = field(0x0A, b"k" * 1_000_000) + count * user(0, b"x")
        hashed_bytes = 0
        with mock.patch.object(aggregation, "md5", Counting):
            open_records([Record("1", frame(message))], UPPER_HALF)
        assert hashed_bytes < 5 * len(message)


# --- steps ---

EMPTY = b"\x1a\x04\x08\x00\x1a\x00"
# What frames are filled with. Each takes one reader or the other as long as it can.
FILLINGS: dict[str, tuple[bytes, bytes, bytes]] = {
    "empty records": (KEY, EMPTY, b""),
    "long numbers": (KEY, b"\x1a\x05\x08\x80\x00\x1a\x00", b""),
    "very long numbers": (KEY, b"\x1a\x84\x80\x80\x00\x08\x00\x1a\x00", b""),
    "the table comes last": (b"", EMPTY, KEY),
    "an end that is invalid": (KEY, EMPTY, b"\x1a"),
    "no table": (b"", EMPTY, b""),
    "hash keys": (KEY, b"\x1a\x06\x08\x00\x10\x00\x1a\x00", b""),
    "unknown fields": (KEY, b"\x20\x00", b""),
    "groups": (KEY, b"\x23\x24", b""),
    "partition keys": (b"", b"\x0a\x00", b""),
    "explicit hash keys": (KEY, b"\x12\x011", b""),
    "odd hash keys": (KEY, b"\x12\x01x", user(0, b"")),
    "records outside": (field(0x0A, b"a"), EMPTY, b""),
}


def filled(name: str, size: int) -> bytes:
    """Return a frame of about this many bytes."""
    if name == "fields in a record":
        return frame(KEY + field(0x1A, EMPTY[2:] + b"\x20\x00" * (size // 2)))
    first, filling, last = FILLINGS[name]
    return frame(first + filling * (size // len(filling)) + last)


class Cost(NamedTuple):
    """The cost of opening a frame."""

    longest: int  # lines of Python of the longest step
    lines: int  # of all steps
    held_bytes: int  # the most memory that a step says to hold


def cost_of(data: bytes) -> Cost:
    """Open a frame step by step, and return what it costs."""
    found = list(open_in_steps([Record("1", data)], UPPER_HALF))
    assert all(len(step.opened.records) <= STEP for step in found)
    lines = steps_of_each(open_in_steps([Record("1", data)], UPPER_HALF))
    return Cost(max(lines), sum(lines), max(step.held_bytes for step in found))


def drain(data: bytes) -> None:
    """Open a frame, and forget its user records."""
    deque(open_in_steps([Record("1", data)], UPPER_HALF), maxlen=0)


STEP = 100  # the records, and fields, of a step in these tests


@pytest.mark.parametrize("name", [*FILLINGS, "fields in a record"])
def test_no_frame_takes_a_long_step_or_much_memory(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for module in (aggregation, aggregate_readers):
        monkeypatch.setattr(module, "STEP_RECORDS", STEP)
    monkeypatch.setattr(aggregate_readers, "STEP_FIELDS", STEP)
    monkeypatch.setattr(aggregate_readers, "KEPT_STEPS", 2)
    monkeypatch.setattr(aggregate_readers, "TABLE_ENTRIES", STEP)
    small, large = filled(name, 10_000), filled(name, 40_000)
    cost_of(small)  # fills caches
    cost, more = cost_of(small), cost_of(large)
    assert more.longest < 100 * STEP
    assert more.longest < 1.1 * cost.longest
    assert more.lines < 5 * cost.lines
    kept = RECORD_OVERHEAD_BYTES * STEP * 2
    # For each six bytes, which is the least that a user record has, an index of its
    # places has 16 bytes; for each entry of a table, of at least two bytes, it has 8.
    assert more.held_bytes <= max(4 * len(large), kept)
    peak = peak_bytes(lambda: drain(large))
    assert peak < 6 * len(large) + 3 * kept
