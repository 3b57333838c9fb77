"""The encoder of KPL aggregates, judged by the decoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.wire.aggregation import hash_key_of, open_records
from kinesumer.wire.put_records import Aggregate, UserRecord, aggregate

EVERYTHING = Source(Fence(ShardKey("arn/s", "shardId-0"), 1), 0, HASH_KEYS - 1)
user_records = st.builds(
    UserRecord,
    st.binary(max_size=300),
    st.text(min_size=1, max_size=200),
    st.none() | st.integers(0, HASH_KEYS - 1).map(str),
)


@given(st.lists(user_records, min_size=1, max_size=300))
def test_what_is_aggregated_comes_out_again(users: list[UserRecord]) -> None:
    record = Record("495", aggregate(users))
    opened = open_records([record], EVERYTHING).records
    assert [
        UserRecord(r.data, r.partition_key or "", r.explicit_hash_key) for r in opened
    ] == users
    assert [r.sub_sequence_number for r in opened] == list(range(len(users)))


@given(st.lists(user_records, max_size=300))
def test_an_aggregates_size_is_known_before_it_is_encoded(
    users: list[UserRecord],
) -> None:
    whole = Aggregate()
    for user in users:
        whole.add(user)
    assert (len(whole), whole.size) == (len(users), len(whole.encode()))


@pytest.mark.parametrize(
    ("size", "bytes_of_its_length"),
    [(0, 1), (126, 1), (127, 1), (128, 2), (129, 2), (16_383, 2), (16_384, 3)],
)
def test_lengths_take_as_few_bytes_as_they_can(
    size: int, bytes_of_its_length: int
) -> None:
    frame = aggregate([UserRecord(b"x" * size, "key")])
    (opened,) = open_records([Record("495", frame)], EVERYTHING).records
    assert len(opened.data) == size
    head = frame.partition(b"\x08\x00\x1a")[2]
    assert head[bytes_of_its_length:].partition(frame[-16:])[0] == b"x" * size


def test_where_a_record_goes_is_told_by_its_keys() -> None:
    assert hash_key_of("a") == 0x0CC175B9C0F1B6A831C399E269772661
    assert hash_key_of("a", "7") == 7
