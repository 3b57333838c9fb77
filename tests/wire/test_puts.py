"""Answers of PutRecords."""

from __future__ import annotations

import pytest

from kinesumer.errors import SourceUnavailableError
from kinesumer.wire.puts import Entry, PutResult, decode_results


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
    with pytest.raises(SourceUnavailableError, match="what became of 1 records"):
        decode_results(body, 1)


def test_a_records_size_is_its_data_and_its_keys_bytes() -> None:
    assert Entry(b"12345", "ä").size == 7
