"""Test the readers of the messages in KPL aggregates."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.records import Record, Source
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire import aggregate_readers, aggregation
from kinesumer.wire.aggregate_readers import Part, check_any, check_common
from tests.support.aggregates import (
    KEY,
    ONE,
    PART,
    WHOLE,
    User,
    by_protobuf,
    count_outside,
    field,
    frame,
    given_hash,
    kinesis_record,
    message,
    opened,
    users_in,
    varint,
)

# The most groups within groups that protobuf reads.
GROUPS = b"\x23" * 100 + b"\x24" * 100


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (KEY + PART[:-1], "cut off in the data"),
        (KEY + PART[:1], "cut off after a tag"),
        (KEY[:-1], "cut off in a key"),
        (KEY + b"\x1a\xff\xff\xff\xff\x7f", "claims 32 GB"),
        (KEY + b"\x1a\x05\x08\x00\x1a\xff\x7f", "data claims more than its record"),
        (KEY + b"\x1a\x05\x08\x00\x1a\x03abc" + PART, "data longer than its record"),
        (b"\x0a\xff\x7f" + b"k" * 100, "key claims more than there is"),
        (KEY + PART + b"\x1a", "a tag without a length"),
        (KEY + PART + b"\x20" + b"\xff" * 10 + b"\x01", "a number of 11 bytes"),
        (PART, "no such partition key"),
        (KEY + field(0x1A, b"\x08\x01\x1a\x01x"), "no such partition key"),
        (KEY + field(0x1A, b"\x1a\x01x"), "no partition key"),
        (KEY + field(0x1A, b"\x08\x00"), "no data"),
        (KEY + field(0x1A, b""), "neither"),
        (KEY + field(0x1A, b"\x08\x00\x12\x01x"), "something else than data"),
        (KEY + field(0x1A, b"\x08\x00\x22\x01x"), "a tag and no data"),
        (KEY + PART + varint(1 << 32) + b"\x00", "a field number of 30 bits"),
        (KEY + PART + b"\x23", "a group that doesn't end"),
        (KEY + PART + b"\x24", "the end of no group"),
        (KEY + PART + b"\x23\x24\x24", "the end of no other group"),
        (KEY + PART + b"\x23\x2c", "the end of another group"),
        (KEY + PART + b"\x23\x2b\x24\x2c", "groups that overlap"),
        (KEY + PART + b"\x23\x22\x05x\x24", "a field that is longer than its group"),
        (KEY + PART + b"\x23" + GROUPS + b"\x24", "101 groups in groups"),
        (KEY + PART + b"\x26", "a wire type that doesn't exist"),
        (KEY + PART + b"\x00\x00", "a field numbered 0"),
        (KEY + PART + b"\x02\x01x", "a field numbered 0"),
        (KEY + PART + b"\x25abc", "a fixed field cut off"),
        (KEY + PART + b"\xda\x80\x80\x80\x70\x00", "a field number of 32 bits"),
        (KEY + PART + b"\xa0\x80\x80\x80\x80\x00\x00", "a tag of six bytes"),
        (b"\x0a\x81\x80\x80\x80\x80\x00k" + PART, "a length of six bytes"),
    ],
)
def test_an_invalid_message_is_delivered_unchanged(message: bytes, why: str) -> None:
    assert opened(frame(message)) is None, why


@pytest.mark.parametrize(
    "hash_key",
    [
        b"undefined",  # by JavaScript
        b"",
        b"-123",  # by Java, from a partition key's digest
        b" 5",
        "²".encode(),
        b"1_0",
        b"\xff",
        str(HASH_KEYS).encode(),
        str(HASH_KEYS + 1).encode(),
        b"0" * 40,
        b"9" * 5000,
    ],
)
def test_a_hash_key_that_is_none_counts_as_missing(hash_key: bytes) -> None:
    odd = field(0x12, hash_key)
    assert users_in(frame(KEY + odd + PART)) == [ONE]
    assert users_in(frame(KEY + odd + WITH_HASH)) == [ONE]
    second = field(0x1A, b"\x08\x00\x10\x01\x1a\x01x")
    expected = [ONE, ONE, User("k", 7, b"x")]
    for tables in (KEY + odd + HASH, KEY + b"\x20\x01" + odd + HASH):
        assert users_in(frame(tables + PART + WITH_HASH + second)) == expected


def test_a_hash_key_index_without_an_entry_counts_as_missing() -> None:
    for index in (0, 7, 300, (1 << 64) - 1):
        part = field(0x1A, b"\x08\x00\x10" + varint(index) + b"\x1a\x01x")
        assert users_in(frame(KEY + part)) == [ONE]
        assert users_in(frame(part + KEY)) == [ONE]


def test_a_partition_key_that_is_not_utf_8_is_read_as_the_kcl_does() -> None:
    odd = field(0x0A, b"a\xffb")
    assert users_in(frame(KEY + odd + PART)) == [ONE]  # nothing refers to the odd key
    for body in (odd + PART, PART + odd):
        assert users_in(frame(body)) == [User("a\ufffdb", None, b"x")]


@pytest.mark.parametrize(
    "unknown",
    [
        b"\x20\x96\x01",
        b"\x20" + b"\xff" * 9 + b"\x01",
        b"\x25abcd",
        b"\x21abcdefgh",
        field(0x22, b"new"),
        b"\x22\x81\x80\x80\x80\x00x",
        b"\x08\x05",
        b"\x08\x03",  # read as a length, it would cover the key that follows
        varint((1 << 32) - 8) + b"\x05",
        b"\x23\x24",
        b"\x23\x2b\x2c\x0a\x01z\x08\x09\x25abcd\x24",  # a group with known fields in it
        GROUPS,
    ],
)
def test_unknown_fields_are_skipped(unknown: bytes) -> None:
    inside = field(0x1A, field(0x22, b"\x0a\x01t") + PART[2:] + field(0x22, b""))
    for valid in (
        unknown + KEY + PART,
        KEY + unknown + PART,
        KEY + PART + unknown,
        KEY + inside,
    ):
        assert users_in(frame(valid)) == [ONE]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("kind", [0, 1, 2, 5])
def test_known_numbers_of_another_kind_are_unknown_fields(
    number: int, kind: int
) -> None:
    value = {0: b"\x07", 1: b"abcdefgh", 2: b"\x01x", 5: b"abcd"}[kind]
    entry = b"\x08\x00\x1a\x01x" + bytes([number << 3 | kind]) + value
    body = KEY + field(0x1A, entry)
    if (number, kind) == (1, 0):
        assert opened(frame(body)) is None  # the last index counts: it has no key
    else:
        assert users_in(frame(body)) == by_protobuf(body)


HASH = field(0x12, b"7")


ODD_HASH = field(0x12, b"undefined")


WITH_HASH = field(0x1A, b"\x08\x00\x10\x00\x1a\x01x")


ODD_BYTES = [b"\x20\x01", b"\x1a", b"\x08", b"\x80", b"\x23", b"\x24"]


snippets = st.lists(
    st.sampled_from([KEY, PART, HASH, ODD_HASH, WITH_HASH, *ODD_BYTES])
    | st.binary(max_size=3),
    max_size=12,
).map(b"".join)


def read_if_valid(body: bytes) -> list[User] | None:
    """Return what protobuf reads, or None if it finds no valid user records."""
    try:
        return by_protobuf(body)
    except (DecodeError, IndexError):
        return None


def read_by(
    check: Callable[[Record, bytes], Generator[int, None, Iterator[Part]]],
    record: Record,
    body: bytes,
) -> list[Record]:
    """Return the user records of a valid message, as one of the readers reads them."""
    steps = check(record, body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return [user for part in end.value for user in part.records]


@given(snippets)
def test_both_readers_and_protobuf_agree_on_what_each_reads(body: bytes) -> None:
    assert users_in(frame(body)) == read_if_valid(body)
    record = kinesis_record(frame(body))
    try:
        common = read_by(check_common, record, body)
    except (IndexError, ValueError):
        return
    assert common == read_by(check_any, record, body)


def read_quickly(put: list[User]) -> list[User]:
    """Read an aggregate with the fast reader, which raises for uncommon layouts."""
    body = message(put)
    read = read_by(check_common, kinesis_record(frame(body)), body)
    return [User(r.partition_key or "", given_hash(r), r.data) for r in read]


@pytest.mark.parametrize(
    "put",
    [
        [User("k", None, bytes(n)) for n in (0, 1, 122, 123, 124, 125, 126, 127, 128)],
        [User("k", None, bytes(n)) for n in (129, 255, 256, 300, 16_000)],
        [User("k", n, bytes(n)) for n in (0, 1, 117, 118, 123, 124, 127, 128, 300)],
        [User(f"key {n}", None, b"data") for n in range(300)],
        [User(f"key {n}", n, b"data") for n in range(300)],
        [User("k" * n, None, b"data") for n in (1, 126, 127, 128, 129, 255, 16_383)],
    ],
)
def test_the_usual_layout_is_read_by_the_fast_reader(put: list[User]) -> None:
    assert read_quickly(put) == put


@pytest.mark.parametrize(
    "put", [[User("k" * 16_384, None, b"")], [User("k", None, bytes(16_384))]]
)
def test_longer_keys_and_data_are_left_to_the_other_reader(put: list[User]) -> None:
    with pytest.raises(ValueError):
        read_quickly(put)
    assert users_in(frame(message(put))) == put


@pytest.mark.parametrize(
    ("body", "user"),
    [
        # the table of partition keys comes last
        (PART + KEY, ONE),
        # numbers that are longer than needed
        (KEY + b"\x1a\x88\x80\x00\x08\x80\x80\x00\x1a\x81\x00x", ONE),
        (b"\x0a\x81\x80\x00k" + PART, ONE),
        # a field twice, of which the last counts
        (
            KEY
            + HASH
            + field(0x1A, b"\x08\x09\x1a\x01y\x10\x09\x08\x00\x1a\x01x\x10\x00"),
            User("k", 7, b"x"),
        ),
        (KEY + HASH + field(0x1A, b"\x08\x00\x08\x00\x1a\x01x"), ONE),
        # four bytes, or an unknown field, that look like a hash key
        (KEY + b"\x0d\x03123" + HASH + WITH_HASH, User("k", 7, b"x")),
        (KEY + field(0x22, b"5") + HASH + WITH_HASH, User("k", 7, b"x")),
        # data that looks like an entry
        (KEY + field(0x1A, b"\x08\x00\x1a\x01x" + PART), User("k", None, PART[2:])),
    ],
)
def test_an_unusual_layout_is_read_as_protobuf_does(body: bytes, user: User) -> None:
    assert users_in(frame(body)) == by_protobuf(body) == [user]


def test_an_entry_that_could_be_taken_for_another_is_read_as_protobuf_does() -> None:
    # An entry of 1,028 bytes that begins with an unknown field. Its first six bytes
    # look like the start of an entry of 132 bytes, with 128 bytes of data, and the
    # rest looks like further entries.
    look_alike = b"\x1a\x84\x08\x20\x1a\x80\x01\x00\x08\x00\x1a"
    rest = bytes(134 - len(look_alike) - 2) + PART * 127
    rest += field(0x1A, b"\x08\x00\x1a\x02xy")
    body = KEY * 33 + look_alike + varint(len(rest)) + rest
    assert users_in(frame(body)) == by_protobuf(body) == [User("k", None, rest)]


def test_texts_of_a_table_are_decoded_again_if_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregate_readers, "KEPT_TEXTS", 3)
    monkeypatch.setattr(aggregate_readers, "TABLE_ENTRIES", 2)
    monkeypatch.setattr(aggregation, "KEPT_TEXTS", 2)
    put = [User(f"k{n % 8}", n % 5, b"") for n in range(20)]
    assert users_in(frame(message(put))) == put
    assert count_outside(put, Source(WHOLE.fence, 1, 9)) == 4
