"""Test the entries, aggregates and results of PutRecords."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Record
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire.aggregation import hash_key_of
from kinesumer.wire.put_records import (
    AGGREGATED_RECORD_BYTES,
    HASH_KEY_DIGITS,
    Entry,
    EntryResult,
    aggregate,
    decode_results,
    refusal,
)
from tests.support.aggregates import WHOLE, open_records
from tests.support.toy_stream import INFO


def test_results_are_in_the_order_of_the_records() -> None:
    body = (
        b'{"FailedRecordCount": 1, "Records": ['
        b'{"SequenceNumber": "495", "ShardId": "shardId-0"}, '
        b'{"ErrorCode": "InternalFailure", "ErrorMessage": "Internal"}]}'
    )
    assert decode_results(body, 2) == [
        EntryResult(shard_id="shardId-0", sequence_number="495"),
        EntryResult(error_code="InternalFailure", error_message="Internal"),
    ]


ONE_RESULT = b'{"Records": [{"SequenceNumber": "495"}]}'


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (b"", 1, "results of 1 records"),
        (b"{}", 1, "results of 1 records"),
        (b"<html>", 1, "results of 1 records"),
        (b'{"Records": [\xff]}', 1, "results of 1 records"),
        (b'{"Records": []}', 1, "it has 0"),
        (ONE_RESULT, 0, "it has 1"),
        (ONE_RESULT, 2, "it has 1"),
    ],
)
def test_an_incomplete_response_is_refused(
    body: bytes, count: int, reason: str
) -> None:
    with pytest.raises(SourceUnavailableError, match=reason):
        decode_results(body, count)


def test_an_entry_without_a_hash_key_names_none() -> None:
    assert b"Hash" not in msgspec.json.encode(Entry(b"12345", "key"))
    assert b"ExplicitHashKey" in msgspec.json.encode(Entry(b"12345", "key", "7"))


def test_a_records_size_is_its_data_and_its_keys_bytes() -> None:
    assert Entry(b"12345", "ä").size == 7


LAST = str(2**128 - 1)
OF_100_BYTES = INFO._replace(max_record_bytes=100)


@pytest.mark.parametrize(
    ("data", "key", "hash_key", "reason"),
    [
        (b"x", None, None, "partition_key is null, but the stream distributes"),
        (b"x", "", None, "partition_key is empty"),
        (b"x", "k" * 257, None, "has 257 characters"),
        (b"x", "k\ud800", None, "partition_key has half of a character"),
        (b"x", "k", "\ud800", "not a decimal number"),
        (b"x" * 98, "key", None, "have 101 bytes, more than the 100"),
        (b"x", "k", "", "is ''"),
        (b"x", "k", "-1", "not a decimal number"),
        (b"x", "k", "٣", "not a decimal number"),
        (b"x", "k", "07", "not a decimal number"),
        (b"x", "k", str(2**128), "not a decimal number"),
        (b"x", "k", str(2**128 + 1), "not a decimal number"),
        (b"x", "k", "9" * 40, "not a decimal number"),
    ],
)
def test_an_invalid_record_is_refused_with_the_reason(
    data: bytes, key: str | None, hash_key: str | None, reason: str
) -> None:
    assert reason in (refusal(Entry(data, key, hash_key), OF_100_BYTES) or "")


@pytest.mark.parametrize("hash_key", [None, "0", "10", LAST])
def test_a_valid_record_is_not_refused(hash_key: str | None) -> None:
    assert refusal(Entry(b"", "k" * 100, hash_key), OF_100_BYTES) is None
    assert refusal(Entry(b"", "k" * 256, hash_key), INFO) is None


def test_a_stream_that_distributes_by_auto_needs_no_key() -> None:
    auto = OF_100_BYTES._replace(routes_by_key=False)
    for key in (None, "key"):
        assert refusal(Entry(b"x" * 97, key), auto) is None
    assert "have 101 bytes" in (refusal(Entry(b"x" * 101), auto) or "")
    assert refusal(Entry(b"x", ""), auto) == "partition_key is empty"
    assert b"Key" not in msgspec.json.encode(Entry(b"x"))


# --- aggregates ----------------------------------------------------------------------

user_records = st.builds(
    Entry,
    st.binary(max_size=300),
    st.text(min_size=1, max_size=200),
    st.none() | st.integers(0, HASH_KEYS - 1).map(str),
)


@given(st.lists(user_records, max_size=60))
def test_an_aggregates_records_come_out_again_and_its_size_is_limited(
    users: list[Entry],
) -> None:
    data = aggregate(users)
    hash_keys = sum(user.explicit_hash_key is not None for user in users)
    most = sum(user.size + AGGREGATED_RECORD_BYTES for user in users)
    assert len(data) <= 20 + most + hash_keys * HASH_KEY_DIGITS
    opened = open_records([Record("495", data)], WHOLE).records
    assert [
        Entry(r.data, r.partition_key or "", r.explicit_hash_key) for r in opened
    ] == users
    assert [r.sub_sequence_number for r in opened] == list(range(len(users)))


@pytest.mark.parametrize(
    ("size", "bytes_of_its_length"),
    [(0, 1), (126, 1), (127, 1), (128, 2), (129, 2), (16_383, 2), (16_384, 3)],
)
def test_lengths_take_as_few_bytes_as_they_can(
    size: int, bytes_of_its_length: int
) -> None:
    frame = aggregate([Entry(b"x" * size, "key")])
    (opened,) = open_records([Record("495", frame)], WHOLE).records
    assert len(opened.data) == size
    head = frame.partition(b"\x08\x00\x1a")[2]
    assert head[bytes_of_its_length:].partition(frame[-16:])[0] == b"x" * size


def test_a_record_goes_to_the_shard_of_its_keys() -> None:
    assert hash_key_of("a") == 0x0CC175B9C0F1B6A831C399E269772661
    assert hash_key_of("a", "7") == 7
