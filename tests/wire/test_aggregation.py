"""KPL aggregates are opened; what only looks like one is left as it is."""

from __future__ import annotations

from hashlib import md5
from typing import Any, NamedTuple

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.model import HASH_KEYS, Fence, Position, Record, ShardKey, Source
from kinesumer.wire import aggregation
from kinesumer.wire.aggregation import KEYS_HASHED, MAGIC, open_records

WHOLE = Source(
    Fence(ShardKey("arn:aws:kinesis:x:1:stream/s", "0"), 1), 0, HASH_KEYS - 1
)


def judge() -> Any:
    """Return protobuf's own class for the message, built from its definition."""
    file = descriptor_pb2.FileDescriptorProto(name="kpl.proto", syntax="proto2")
    layout: dict[str, list[tuple[str, int, str, str]]] = {
        "Tag": [("key", 1, "required", "string"), ("value", 2, "optional", "string")],
        "Record": [
            ("partition_key_index", 1, "required", "uint64"),
            ("explicit_hash_key_index", 2, "optional", "uint64"),
            ("data", 3, "required", "bytes"),
            ("tags", 4, "repeated", ".Tag"),
        ],
        "AggregatedRecord": [
            ("partition_key_table", 1, "repeated", "string"),
            ("explicit_hash_key_table", 2, "repeated", "string"),
            ("records", 3, "repeated", ".Record"),
        ],
    }
    field = descriptor_pb2.FieldDescriptorProto
    for name, fields in layout.items():
        message = file.message_type.add(name=name)
        for field_name, number, label, kind in fields:
            message.field.add(
                name=field_name,
                number=number,
                label=field.Label.Value(f"LABEL_{label.upper()}"),
                type=field.Type.Value(
                    "TYPE_MESSAGE" if kind[0] == "." else f"TYPE_{kind.upper()}"
                ),
                type_name=kind if kind[0] == "." else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("AggregatedRecord")
    return message_factory.GetMessageClass(found)


AggregatedRecord = judge()


class User(NamedTuple):
    """A user record as a producer puts it."""

    key: str
    hash_key: int | None
    data: bytes


def frame(message: bytes) -> bytes:
    """Return the message as the data of a Kinesis record."""
    return MAGIC + message + md5(message).digest()


def message(users: list[User]) -> bytes:
    """Return what a producer writes, by protobuf."""
    written = AggregatedRecord()
    names = dict.fromkeys(user.key for user in users)
    keys = {name: place for place, name in enumerate(names)}
    hashes = list(dict.fromkeys(u.hash_key for u in users if u.hash_key is not None))
    written.partition_key_table.extend(keys)
    written.explicit_hash_key_table.extend(map(str, hashes))
    for user in users:
        part = written.records.add()
        part.partition_key_index = keys[user.key]
        if user.hash_key is not None:
            part.explicit_hash_key_index = hashes.index(user.hash_key)
        part.data = user.data
    return bytes(written.SerializeToString())


def kinesis_record(data: bytes, number: str = "495") -> Record:
    """Return a record as a page holds it."""
    return Record(number, data, "first key", 1.5e9)


def opened(data: bytes) -> list[Record] | None:
    """Return the user records in one Kinesis record, or None if it stays as it is."""
    record = kinesis_record(data)
    result = open_records([record], WHOLE).records
    return None if result == [record] and result[0] is record else result


def users_in(data: bytes) -> list[User] | None:
    """Return what was opened, as it was put."""
    records = opened(data)
    if records is None:
        return None
    return [User(r.partition_key or "", given_hash(r), r.data) for r in records]


def given_hash(record: Record) -> int | None:
    text = record.explicit_hash_key
    return None if text is None else int(text)


def field(tag: int, value: bytes) -> bytes:
    """Return a field of bytes."""
    return bytes([tag]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    head = b""
    while value > 127:
        head += bytes([value & 127 | 128])
        value >>= 7
    return head + bytes([value])


KEY = field(0x0A, b"k")
PART = field(0x1A, b"\x08\x00\x1a\x01x")
ONE = User("k", None, b"x")

sizes = st.sampled_from([0, 1, 100, 119, 120, 123, 124, 127, 128, 300, 16_383, 16_400])
users = st.builds(
    User,
    st.text(max_size=40),
    st.none() | st.integers(0, HASH_KEYS - 1),
    st.binary(max_size=30) | sizes.map(bytes),
)


@given(st.lists(users, min_size=1, max_size=60))
@example([User(f"user-{n}", None, b"x" * 100) for n in range(300)])
@example([User("k", n, b"x") for n in range(300)])
@example([User(f"{n}", None, bytes(25)) for n in range(3400)])
def test_what_a_producer_aggregates_comes_out(put: list[User]) -> None:
    assert users_in(frame(message(put))) == put


def test_user_records_know_their_place() -> None:
    data = frame(message([User("a", None, b"1"), User("b", 7, b"2")]))
    first, second = open_records([kinesis_record(data)], WHOLE).records
    assert first.position == Position("495", 0)
    assert second.position == Position("495", 1)
    assert second.partition_key == "b"
    assert second.explicit_hash_key == "7"
    assert second.arrived_at == kinesis_record(data).arrived_at
    assert second.fence == WHOLE.fence


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
    assert open_records([], WHOLE) == ([], None, 0)


def test_an_aggregate_of_nothing_delivers_nothing_but_counts_as_read() -> None:
    for empty in (b"", KEY):
        result = open_records([kinesis_record(frame(empty), "88")], WHOLE)
        assert result == ([], "88", 0)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (KEY + PART[:-1], "cut off in the data"),
        (KEY + PART[:1], "cut off after a tag"),
        (KEY[:-1], "cut off in a key"),
        (KEY + b"\x1a\xff\xff\xff\xff\x7f", "claims 32 GB"),
        (KEY + b"\x1a\x05\x08\x00\x1a\xff\x7f", "data claims more than its record"),
        (b"\x0a\xff\x7f" + b"k" * 100, "key claims more than there is"),
        (KEY + PART + b"\x1a", "a tag without a length"),
        (KEY + PART + b"\x20" + b"\xff" * 10 + b"\x01", "a number of 11 bytes"),
        (PART, "no such partition key"),
        (KEY + field(0x1A, b"\x08\x01\x1a\x01x"), "no such partition key"),
        (KEY + field(0x1A, b"\x08\x00\x10\x00\x1a\x01x"), "no such hash key"),
        (KEY + field(0x1A, b"\x1a\x01x"), "no partition key"),
        (KEY + field(0x1A, b"\x08\x00"), "no data"),
        (KEY + field(0x1A, b""), "neither"),
        (field(0x0A, b"\xff") + PART, "a key that isn't UTF-8"),
        (KEY + field(0x12, b"") + PART, "an empty hash key"),
        (KEY + field(0x12, b"-1") + PART, "a negative hash key"),
        (KEY + field(0x12, b"\xc2\xb2") + PART, "a hash key of other digits"),
        (KEY + field(0x12, b"1_0") + PART, "a hash key as in Python"),
        (KEY + field(0x12, str(HASH_KEYS).encode()) + PART, "a hash key too large"),
        (KEY + field(0x12, b"9" * 5000) + PART, "a hash key of 5,000 digits"),
        (KEY + PART + b"\x23\x24", "a group"),
        (KEY + PART + b"\x26", "a wire type that doesn't exist"),
        (KEY + PART + b"\x00\x00", "a field numbered 0"),
        (KEY + PART + b"\x02\x01x", "a field numbered 0"),
        (KEY + PART + b"\x25abc", "a fixed field cut off"),
        (KEY + PART + b"\xda\x80\x80\x80\x70\x00", "a field number of 32 bits"),
        (KEY + PART + b"\xa0\x80\x80\x80\x80\x00\x00", "a tag of six bytes"),
        (b"\x0a\x81\x80\x80\x80\x80\x00k" + PART, "a length of six bytes"),
    ],
)
def test_what_isnt_valid_is_delivered_as_it_is(message: bytes, why: str) -> None:
    assert opened(frame(message)) is None, why


@pytest.mark.parametrize("size", range(len(MAGIC) + 17))
def test_less_than_a_frame_is_delivered_as_it_is(size: int) -> None:
    assert opened((MAGIC + bytes(17))[:size]) is None


def test_a_frame_with_another_digest_is_delivered_as_it_is() -> None:
    data = frame(KEY + PART)
    assert opened(data[:-1] + bytes([data[-1] ^ 1])) is None
    assert opened(data + b"x") is None


@pytest.mark.parametrize(
    "unknown",
    [b"\x20\x96\x01", b"\x25abcd", b"\x21abcdefgh", field(0x22, b"new"), b"\x08\x05"],
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


def test_tables_may_come_last_and_numbers_be_longer_than_needed() -> None:
    assert users_in(frame(PART + KEY)) == [ONE]
    long = b"\x1a\x88\x80\x00" + b"\x08\x80\x80\x00" + b"\x1a\x81\x00x"
    assert users_in(frame(KEY + long.replace(b"\x88", b"\x88", 1))) == [ONE]


def test_of_a_field_given_twice_the_last_counts() -> None:
    twice = field(0x1A, b"\x08\x09\x1a\x01y\x10\x09\x08\x00\x1a\x01x\x10\x00")
    assert users_in(frame(KEY + field(0x12, b"5") + twice)) == [User("k", 5, b"x")]


HASH = field(0x12, b"7")
WITH_HASH = field(0x1A, b"\x08\x00\x10\x00\x1a\x01x")
snippets = st.lists(
    st.sampled_from(
        [KEY, PART, HASH, WITH_HASH, b"\x20\x01", b"\x1a", b"\x08", b"\x80"]
    )
    | st.binary(max_size=3),
    max_size=12,
).map(b"".join)


@given(snippets)
def test_whatever_we_open_protobuf_reads_alike(body: bytes) -> None:
    ours = users_in(frame(body))
    if ours is not None:
        assert ours == by_protobuf(body)


@given(snippets)
def test_both_readers_agree_on_what_the_common_one_reads(body: bytes) -> None:
    record = kinesis_record(frame(body))
    try:
        common = aggregation._read_common(record, body)
    except (IndexError, ValueError):
        return
    assert common == aggregation._read_any(record, body)


def test_an_entry_that_could_be_taken_for_another_is_read_as_protobuf_does() -> None:
    # 1,028 bytes that begin with an unknown field, but whose first six bytes look like
    # an entry of 132 with 128 bytes of data; the rest looks like entries of its own.
    look_alike = b"\x1a\x84\x08\x20\x1a\x80\x01\x00\x08\x00\x1a"
    rest = bytes(134 - len(look_alike) - 2) + PART * 127
    rest += field(0x1A, b"\x08\x00\x1a\x02xy")
    body = KEY * 33 + look_alike + varint(len(rest)) + rest
    assert users_in(frame(body)) == by_protobuf(body) == [User("k", None, rest)]


def by_protobuf(body: bytes) -> list[User]:
    """Return the users as protobuf reads them. Raises DecodeError."""
    read = AggregatedRecord()
    read.ParseFromString(body)
    return [
        User(
            read.partition_key_table[part.partition_key_index],
            int(read.explicit_hash_key_table[part.explicit_hash_key_index])
            if part.HasField("explicit_hash_key_index")
            else None,
            part.data,
        )
        for part in read.records
    ]


def test_the_judge_refuses_what_we_refuse() -> None:
    with pytest.raises(DecodeError):
        by_protobuf(KEY + PART[:-1])


# --- the shard's range ---------------------------------------------------------------


def hash_of(key: str) -> int:
    """Return a partition key's hash key."""
    return int.from_bytes(md5(key.encode()).digest())


def half() -> Source:
    """Return a shard with the lower half of the hash keys."""
    return Source(WHOLE.fence, 0, HASH_KEYS // 2 - 1)


inside = [f"k{n}" for n in range(500) if hash_of(f"k{n}") < HASH_KEYS // 2]
outside = [f"k{n}" for n in range(500) if hash_of(f"k{n}") >= HASH_KEYS // 2]


def count_outside(put: list[User], source: Source) -> int:
    """Open an aggregate; return the count after looking that all is delivered."""
    result = open_records([kinesis_record(frame(message(put)))], source)
    assert len(result.records) == len(put)
    return result.outside


def test_records_within_the_shards_range_arent_counted() -> None:
    assert count_outside([User(k, None, b"") for k in inside], half()) == 0


@given(st.lists(st.sampled_from(inside + outside), max_size=KEYS_HASHED))
def test_records_outside_the_shards_range_are_delivered_and_counted(
    keys: list[str],
) -> None:
    put = [User(key, None, b"") for key in keys]
    assert count_outside(put, half()) == sum(key in outside for key in keys)


def test_a_large_aggregate_is_counted_whole_once_one_key_is_found_outside() -> None:
    put = [User(key, None, b"") for key in outside[:1] + inside + outside]
    assert count_outside(put, half()) == 1 + len(outside)


def test_explicit_hash_keys_take_the_place_of_the_partition_keys_and_all_count() -> (
    None
):
    put = [User(outside[0], 5, b"")] * 50
    assert count_outside(put, half()) == 0
    lost = User(inside[0], HASH_KEYS - 1, b"")
    assert count_outside([*put, lost, *put], half()) == 1


def test_nothing_lies_outside_a_shard_that_has_all_hash_keys() -> None:
    assert count_outside([User(k, 9, b"") for k in outside], WHOLE) == 0


def test_nothing_is_counted_of_records_whose_hash_key_isnt_known() -> None:
    records = [Record("1", b"x", outside[0])]
    assert open_records(records, half()).outside == 0
