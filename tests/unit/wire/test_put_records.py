"""Answers of PutRecords."""

from __future__ import annotations

import msgspec
import pytest

from kinesumer.errors import SourceUnavailableError
from kinesumer.wire.put_records import Entry, PutResult, decode_results, refusal


def test_each_records_fate_is_told_in_order() -> None:
    body = (
        b'{"FailedRecordCount": 1, "Records": ['
        b'{"SequenceNumber": "495", "ShardId": "shardId-0"}, '
        b'{"ErrorCode": "InternalFailure", "ErrorMessage": "Internal"}]}'
    )
    assert decode_results(body, 2) == [
        PutResult(shard_id="shardId-0", sequence_number="495"),
        PutResult(error_code="InternalFailure", error_message="Internal"),
    ]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"<html>", b'{"Records": []}', b'{"Records": [\xff]}']
)
def test_an_answer_that_doesnt_tell_is_no_answer(body: bytes) -> None:
    with pytest.raises(SourceUnavailableError, match="results of 1 records"):
        decode_results(body, 1)


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_about_more_or_fewer_records_is_no_answer(count: int) -> None:
    with pytest.raises(SourceUnavailableError, match="it has 1"):
        decode_results(b'{"Records": [{"SequenceNumber": "495"}]}', count)


def test_an_entry_without_a_hash_key_names_none() -> None:
    assert b"Hash" not in msgspec.json.encode(Entry(b"12345", "key"))
    assert b"ExplicitHashKey" in msgspec.json.encode(Entry(b"12345", "key", "7"))


def test_a_records_size_is_its_data_and_its_keys_bytes() -> None:
    assert Entry(b"12345", "ä").size == 7


LAST = str(2**128 - 1)


@pytest.mark.parametrize(
    ("data", "key", "hash_key", "reason"),
    [
        (b"x", None, None, "partition_key is null"),
        (b"x", "", None, "partition_key is empty"),
        (b"x", "k" * 257, None, "has 257 characters"),
        (None, "k", None, "data is null"),
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
def test_what_kinesis_would_refuse_is_refused_with_the_reason(
    data: bytes | None, key: str | None, hash_key: str | None, reason: str
) -> None:
    assert reason in (refusal(data, key, hash_key, 100) or "")


@pytest.mark.parametrize("hash_key", [None, "0", "10", LAST])
def test_what_kinesis_takes_has_no_reason(hash_key: str | None) -> None:
    assert refusal(b"", "k" * 100, hash_key, 100) is None
    assert refusal(b"", "k" * 256, hash_key, 256) is None
