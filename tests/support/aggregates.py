"""Write aggregates as producers do, and read them with protobuf."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import md5
from typing import Any, NamedTuple

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)

from kinesumer.model.records import Fence, PackedRecords, Record, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.wire.aggregation import (
    MAGIC,
    OpenedRecords,
    has_aggregates,
    open_in_steps,
    with_source,
)
from kinesumer.wire.cbor import compiled
from tests.support.cbor import packed_records

WHOLE = Source(
    Fence(ShardKey("arn:aws:kinesis:x:1:stream/s", "0"), 1), 0, HASH_KEYS - 1
)


def open_records(records: Sequence[Record], source: Source) -> OpenedRecords:
    """Return a page's records with all aggregates opened, as its steps do.

    With the compiled decoder, objects and packed records are opened alike. Kinesis's
    times, and those of packed records, are in milliseconds.
    """
    found = _opened(records, source)
    times = [record.approximate_arrival_timestamp for record in records]
    in_millis = all(time is not None and time == round(time, 3) for time in times)
    is_packed = isinstance(records, PackedRecords)
    if compiled is not None and records and not is_packed and in_millis:
        packed = _opened(packed_records(records), source)
        for one, other in zip(packed, found, strict=True):
            assert isinstance(one, int) or one == other
        assert bool(packed.outside) == bool(found.outside)
    return found


def _opened(records: Sequence[Record], source: Source) -> OpenedRecords:
    as_read = with_source(records, source)
    if not has_aggregates(records):
        return as_read
    steps = [step.opened for step in open_in_steps(records, source)]
    return OpenedRecords(
        [record for step in steps for record in step.records],
        next(step.last for step in reversed(steps) if step.records or step.last),
        sum(step.outside for step in steps),
        [record for step in steps for record in step.unopened],
    )


# The KPL's message without the tags of user records, which nothing reads. In the KPL's
# definition, the keys are strings. Python's protobuf reads only those that are UTF-8,
# unlike Java's.
FILE = """
name: "kpl.proto"
syntax: "proto2"
message_type {
  name: "Record"
  field {name: "partition_key_index" number: 1 type: TYPE_UINT64 label: LABEL_REQUIRED}
  field {name: "explicit_hash_key_index" number: 2 type: TYPE_UINT64}
  field {name: "data" number: 3 type: TYPE_BYTES label: LABEL_REQUIRED}
}
message_type {
  name: "AggregatedRecord"
  field {name: "partition_key_table" number: 1 type: TYPE_BYTES label: LABEL_REPEATED}
  field {
    name: "explicit_hash_key_table" number: 2 type: TYPE_BYTES label: LABEL_REPEATED
  }
  field {name: "records" number: 3 type_name: ".Record" label: LABEL_REPEATED}
}
"""
POOL = descriptor_pool.DescriptorPool()
POOL.Add(text_format.Parse(FILE, descriptor_pb2.FileDescriptorProto()))
AggregatedRecord: Any = message_factory.GetMessageClass(
    POOL.FindMessageTypeByName("AggregatedRecord")
)


class User(NamedTuple):
    """A user record as a producer sends it."""

    key: str
    hash_key: int | None
    data: bytes


def frame(message: bytes) -> bytes:
    """Return a message as the data of a Kinesis record."""
    return MAGIC + message + md5(message).digest()


def message(users: list[User]) -> bytes:
    """Return a producer's message, encoded by protobuf."""
    written = AggregatedRecord()
    names = dict.fromkeys(user.key for user in users)
    keys = {name: place for place, name in enumerate(names)}
    hashes = list(dict.fromkeys(u.hash_key for u in users if u.hash_key is not None))
    written.partition_key_table.extend(key.encode() for key in keys)
    written.explicit_hash_key_table.extend(str(key).encode() for key in hashes)
    for user in users:
        part = written.records.add()
        part.partition_key_index = keys[user.key]
        if user.hash_key is not None:
            part.explicit_hash_key_index = hashes.index(user.hash_key)
        part.data = user.data
    return bytes(written.SerializeToString())


def kinesis_record(data: bytes, number: str = "495") -> Record:
    """Return a record as it is in a page."""
    return Record(number, data, "first key", 1.5e9)


def opened(data: bytes) -> Sequence[Record] | None:
    """Return the user records in a Kinesis record, or None if it isn't an aggregate."""
    record = kinesis_record(data)
    result = open_records([record], WHOLE).records
    return None if result == [record] and result[0] is record else result


def users_in(data: bytes) -> list[User] | None:
    """Return an aggregate's user records as they were put, None for other data."""
    records = opened(data)
    if records is None:
        return None
    return [User(r.partition_key or "", given_hash(r), r.data) for r in records]


def given_hash(record: Record) -> int | None:
    text = record.explicit_hash_key
    return None if text is None else int(text)


def field(tag: int, value: bytes, length: int | None = None) -> bytes:
    """Return a protobuf field that contains bytes, optionally with a wrong length."""
    return bytes([tag]) + varint(len(value) if length is None else length) + value


def varint(value: int) -> bytes:
    """Return a number in protobuf's encoding."""
    head = b""
    while value > 127:
        head += bytes([value & 127 | 128])
        value >>= 7
    return head + bytes([value])


KEY = field(0x0A, b"k")
PART = field(0x1A, b"\x08\x00\x1a\x01x")
ONE = User("k", None, b"x")


def by_protobuf(body: bytes) -> list[User]:
    """Return the user records as protobuf reads them.

    Raises DecodeError for a message that it can't read, and IndexError for a user
    record without a partition key.
    """
    read = AggregatedRecord()
    read.ParseFromString(body)
    keys = [key.decode(errors="replace") for key in read.partition_key_table]
    hashes = list(map(valid_hash, read.explicit_hash_key_table))
    return [
        User(
            keys[part.partition_key_index],
            dict(enumerate(hashes)).get(part.explicit_hash_key_index)
            if part.HasField("explicit_hash_key_index")
            else None,
            part.data,
        )
        for part in read.records
    ]


def valid_hash(text: bytes) -> int | None:
    """Return a hash key as a number, or None if the text isn't one."""
    if re.fullmatch(rb"[0-9]{1,39}", text) and int(text) < HASH_KEYS:
        return int(text)
    return None


def hash_of(key: str) -> int:
    """Return a partition key's hash key."""
    return int.from_bytes(md5(key.encode()).digest())


inside = [f"k{n}" for n in range(500) if hash_of(f"k{n}") < HASH_KEYS // 2]


outside = [f"k{n}" for n in range(500) if hash_of(f"k{n}") >= HASH_KEYS // 2]


def count_outside(put: list[User], source: Source) -> int:
    """Open an aggregate, and return how many of its records lie outside the shard."""
    result = open_records([kinesis_record(frame(message(put)))], source)
    assert len(result.records) == len(put)
    return result.outside
