"""Test that KPL aggregates are opened, and other records are left as they are."""

from __future__ import annotations

from hashlib import md5
from typing import TYPE_CHECKING

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.model.positions import Position
from kinesumer.model.records import Record, Source
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire import aggregate_readers, aggregation
from kinesumer.wire.aggregate_readers import check_any, check_common
from kinesumer.wire.aggregation import (
    KEYS_HASHED,
    MAGIC,
    open_in_steps,
    open_records,
)
from tests.unit.wire.aggregates import (
    KEY,
    ONE,
    PART,
    WHOLE,
    User,
    by_protobuf,
    field,
    frame,
    given_hash,
    kinesis_record,
    message,
    opened,
    users_in,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kinesumer.wire.aggregate_readers import Part

# The most groups within groups that protobuf reads.
GROUPS = b"\x23" * 100 + b"\x24" * 100
sizes = st.sampled_from([0, 1, 100, 119, 120, 123, 124, 127, 128, 300, 16_383, 16_400])
users = st.builds(
    User,
    st.text(max_size=40),
    st.none() | st.integers(0, HASH_KEYS - 1),
    st.binary(max_size=30) | sizes.map(bytes),
)


@given(st.lists(users, min_size=1, max_size=20))
@example([User(f"user-{n}", None, b"x" * 100) for n in range(300)])
@example([User("k", n, b"x") for n in range(300)])
@example([User(f"{n}", None, bytes(25)) for n in range(3400)])
def test_a_producers_user_records_come_out_again(put: list[User]) -> None:
    assert users_in(frame(message(put))) == put


def test_user_records_have_their_own_position_and_keys() -> None:
    data = frame(message([User("a", None, b"1"), User("b", 7, b"2")]))
    first, second = open_records([kinesis_record(data)], WHOLE).records
    assert first.position == Position("495", 0)
    assert second.position == Position("495", 1)
    assert second.partition_key == "b"
    assert second.explicit_hash_key == "7"
    assert second.arrived_at == kinesis_record(data).arrived_at
    assert second.fence == WHOLE.fence._replace(position=second.position)


def test_a_record_without_a_hash_key_doesnt_get_anothers() -> None:
    put = [User("a", 7, b"1"), User("b", None, b"2")]
    assert users_in(frame(message(put))) == put


def test_other_records_keep_their_order_around_an_aggregate() -> None:
    records = [
        kinesis_record(b"before", "1"),
        kinesis_record(frame(message([ONE, ONE])), "2"),
        kinesis_record(b"\xff after", "3"),
    ]
    result = open_records(records, WHOLE)
    assert [record.position for record in result.records] == [
        Position("1"),
        Position("2", 0),
        Position("2", 1),
        Position("3"),
    ]
    assert {record.source for record in result.records} == {WHOLE}
    assert result.last == "3"


def test_plain_records_get_their_source_and_stay_themselves() -> None:
    records = [kinesis_record(b"a"), kinesis_record(b"")]
    result = open_records(records, WHOLE)
    assert result.records is records
    assert records[0].stream == "s"


def test_a_page_of_nothing_has_no_last_record() -> None:
    assert open_records([], WHOLE) == ([], None, 0, [])


def test_an_aggregate_of_nothing_delivers_nothing_but_counts_as_read() -> None:
    for empty in (b"", KEY):
        result = open_records([kinesis_record(frame(empty), "88")], WHOLE)
        assert result == ([], "88", 0, [])


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


def test_only_aggregates_that_cannot_be_opened_are_reported() -> None:
    broken = frame(KEY + PART)[:-1] + b"!"
    whole = [kinesis_record(broken, "2"), kinesis_record(MAGIC, "4")]
    one = kinesis_record(frame(KEY + PART), "3")
    records = [kinesis_record(b"\xff", "1"), whole[0], one, whole[1]]
    result = open_records(records, WHOLE)
    assert result.unopened == whole
    assert [record.sequence_number for record in result.records] == list("1234")


def test_less_than_a_frame_or_another_digest_is_delivered_unchanged() -> None:
    for size in range(len(MAGIC) + 17):
        assert opened((MAGIC + bytes(17))[:size]) is None
    data = frame(KEY + PART)
    assert opened(data[:-1] + bytes([data[-1] ^ 1])) is None
    assert opened(data + b"x") is None


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


# --- the shard's range ---------------------------------------------------------------


def hash_of(key: str) -> int:
    """Return a partition key's hash key."""
    return int.from_bytes(md5(key.encode()).digest())


LOWER = Source(WHOLE.fence, 0, HASH_KEYS // 2 - 1)
inside = [f"k{n}" for n in range(500) if hash_of(f"k{n}") < HASH_KEYS // 2]
outside = [f"k{n}" for n in range(500) if hash_of(f"k{n}") >= HASH_KEYS // 2]


def count_outside(put: list[User], source: Source) -> int:
    """Open an aggregate, and return how many of its records lie outside the shard."""
    result = open_records([kinesis_record(frame(message(put)))], source)
    assert len(result.records) == len(put)
    return result.outside


@given(st.lists(st.sampled_from(inside + outside), max_size=KEYS_HASHED))
def test_in_small_aggregates_each_record_outside_is_counted(
    keys: list[str],
) -> None:
    put = [User(key, None, b"") for key in keys]
    assert count_outside(put, LOWER) == sum(key in outside for key in keys)


def plain(*keys: str, hash_key: int | None = None) -> list[User]:
    """Return user records with these partition keys."""
    return [User(key, hash_key, b"") for key in keys]


UPPER = Source(WHOLE.fence, HASH_KEYS // 2, HASH_KEYS - 1)
LOST = User(inside[0], HASH_KEYS - 1, b"")


@pytest.mark.parametrize(
    ("put", "source", "expected"),
    [
        (plain(*inside), LOWER, 0),
        (plain(*inside[:4], *outside[:3]), UPPER, 4),
        # All keys of a large aggregate are hashed as soon as one lies outside.
        (plain(*outside[:1], *inside, *outside), LOWER, 1 + len(outside)),
        # Explicit hash keys replace the partition keys, and each of them is checked.
        (plain(*outside[:1] * 50, hash_key=5), LOWER, 0),
        ([*plain(*inside[:1] * 50, hash_key=5), LOST], LOWER, 1),
        # The first and the last hash key lie inside.
        ([User("k", n, b"") for n in (4, 5, 6, 9, 10)], Source(WHOLE.fence, 5, 9), 2),
        # Nothing lies outside a shard that has all hash keys.
        (plain(*outside, hash_key=9), WHOLE, 0),
    ],
)
def test_records_outside_the_shards_range_are_counted(
    put: list[User], source: Source, expected: int
) -> None:
    assert count_outside(put, source) == expected


def test_only_records_of_aggregates_are_counted() -> None:
    records = [Record("1", b"x", outside[0])]
    assert open_records(records, LOWER).outside == 0


# --- steps ---------------------------------------------------------------------------


def parts_of(number: int, count: int, *, last_key: bool = False) -> Record:
    """Return an aggregate of this many user records; its table may come last."""
    parts = PART * count
    body = parts + KEY if last_key else KEY + parts
    return kinesis_record(frame(body), str(number))


@pytest.mark.parametrize("last_key", [False, True])
@pytest.mark.parametrize("count", [1, 9, 10, 11, 49, 50, 51, 200])
def test_a_large_aggregate_is_opened_in_steps(
    monkeypatch: pytest.MonkeyPatch, count: int, last_key: bool
) -> None:
    for module in (aggregation, aggregate_readers):
        monkeypatch.setattr(module, "STEP_RECORDS", 10)
    monkeypatch.setattr(aggregate_readers, "STEP_FIELDS", 10)
    steps = list(open_in_steps([parts_of(7, count, last_key=last_key)], WHOLE))
    found = [record for step in steps for record in step.opened.records]
    assert [record.position for record in found] == [
        Position("7", n) for n in range(count)
    ]
    assert [record.data for record in found] == [b"x"] * count
    assert all(len(step.opened.records) <= 10 for step in steps)
    *others, last = steps
    assert last.opened.last == "7"
    assert (last.done, last.data_bytes) == (1, len(parts_of(7, count).data))
    assert last.held_bytes == 0
    assert all(step.opened.last is None and step.done == 0 for step in others)
    if last_key and count > 10:
        assert max(step.held_bytes for step in others) >= 16 * count


def test_no_user_record_comes_before_the_aggregate_is_known_to_be_valid() -> None:
    body = KEY + PART * 50_000
    for data in (frame(body + b"\x1a"), frame(body)[:-1] + b"!", frame(PART * 50_000)):
        record = kinesis_record(data)
        steps = [s.opened for s in open_in_steps([record], WHOLE)]
        assert [r for step in steps for r in step.records] == [record]
        assert steps[-1].unopened == [record]
        assert steps[-1].last == "495"


def test_steps_end_between_records_and_within_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (aggregation, aggregate_readers):
        monkeypatch.setattr(module, "STEP_RECORDS", 10)
    counts = [3, 3, 3, 25, 0, 9, 9]
    records = [parts_of(n, count) for n, count in enumerate(counts)]
    steps = list(open_in_steps(records, WHOLE))
    working = [step for step in steps if step.opened.records or step.done]
    assert [(len(s.opened.records), s.opened.last, s.done) for s in working] == [
        (9, "2", 3),
        (10, None, 0),
        (10, None, 0),
        (5, "4", 2),
        (9, "5", 1),
        (9, "6", 1),
    ]


def test_a_step_has_limited_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "STEP_BYTES", 100)
    records = [kinesis_record(b"x" * 40, str(n)) for n in range(7)]
    steps = list(open_in_steps(records, WHOLE))
    assert [(step.done, step.data_bytes) for step in steps] == [
        (3, 120),
        (3, 120),
        (1, 40),
    ]
    [digest, *_] = open_in_steps([parts_of(1, 60)], WHOLE)
    assert digest.opened.records == []
    assert list(open_in_steps([], WHOLE)) == []


def test_texts_of_a_table_are_decoded_again_if_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregate_readers, "KEPT_TEXTS", 3)
    monkeypatch.setattr(aggregate_readers, "TABLE_ENTRIES", 2)
    monkeypatch.setattr(aggregation, "KEPT_RESULTS", 2)
    put = [User(f"k{n % 8}", n % 5, b"") for n in range(20)]
    assert users_in(frame(message(put))) == put
    assert count_outside(put, Source(WHOLE.fence, 1, 9)) == 4
