"""Test that records of boto3, Lambda and Firehose are read, and others refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.model.records import Record
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire.record_shapes import read_records

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


def from_lambda(number: str = "1", shard: str = "shardId-0", arn: str = ARN) -> Any:
    return {
        "kinesis": {
            "sequenceNumber": number,
            "data": "SGk=",
            "partitionKey": "k",
            "approximateArrivalTimestamp": 1.5,
        },
        "eventID": f"{shard}:{number}",
        "eventSourceARN": arn,
    }


@pytest.mark.parametrize("arrived", [datetime.fromtimestamp(1.5, UTC), 1.5])
@pytest.mark.parametrize("data", [b"Hi", bytearray(b"Hi"), "SGk="])
def test_get_records_are_read_as_boto3_and_its_command_return_them(
    data: object, arrived: object
) -> None:
    record = {
        "SequenceNumber": "1",
        "Data": data,
        "PartitionKey": "k",
        "ApproximateArrivalTimestamp": arrived,
        "EncryptionType": "KMS",
    }
    assert read_records([record]) == [Record("1", b"Hi", "k", 1.5)]


def test_a_record_without_key_and_time_is_read() -> None:
    assert read_records([{"SequenceNumber": "1", "Data": b""}]) == [Record("1", b"")]


def test_a_lambda_record_has_a_source_that_its_shard_shares() -> None:
    events = [from_lambda("1"), from_lambda("2"), from_lambda("3", "shardId-1")]
    first, second, third = read_records(events, "billing")
    assert first == Record("1", b"Hi", "k", 1.5, source=first.source)
    assert first.source is second.source is not third.source
    assert third.shard_id == "shardId-1"
    assert (first.stream_arn, first.fence.app, first.fence.epoch) == (ARN, "billing", 0)
    assert first.source is not None
    assert (first.source.first_hash, first.source.last_hash) == (0, HASH_KEYS - 1)


def test_a_record_of_enhanced_fan_out_belongs_to_the_stream() -> None:
    [record] = read_records([from_lambda(arn=f"{ARN}/consumer/billing:1616044553")])
    assert (record.stream_arn, record.stream) == (ARN, "orders")


@pytest.mark.parametrize("missing", ["eventID", "eventSourceARN"])
def test_a_lambda_record_without_its_place_has_no_source(missing: str) -> None:
    event = from_lambda()
    del event[missing]
    assert [record.source for record in read_records([event])] == [None]


@pytest.mark.parametrize("part", [{}, {"subsequenceNumber": ""}])
def test_firehose_records_are_read(part: dict[str, Any]) -> None:
    origin = {
        "shardId": "shardId-0",
        "partitionKey": "k",
        "approximateArrivalTimestamp": 1500,
        "sequenceNumber": "1",
        **part,
    }
    record = {
        "recordId": "r",
        "data": "SGk=",
        "approximateArrivalTimestamp": 1500,
        "kinesisRecordMetadata": origin,
    }
    assert read_records([record]) == [Record("1", b"Hi", "k", 1.5)]


@pytest.mark.parametrize("part", ["3", 3])
def test_a_user_record_that_firehose_opened_keeps_its_index(part: object) -> None:
    origin = {"sequenceNumber": "1", "partitionKey": "k", "subsequenceNumber": part}
    record = {"recordId": "r", "data": "SGk=", "kinesisRecordMetadata": origin}
    assert read_records([record])[0].position == ("1", 3)


def test_what_was_put_into_firehose_itself_has_no_position() -> None:
    assert read_records([{"recordId": "r", "data": "SGk="}]) == [Record("", b"Hi")]


class Wrapped(Mapping[str, Any]):
    """A mapping that isn't a dictionary, such as those of Powertools."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def test_any_mapping_is_read() -> None:
    event = from_lambda()
    wrapped = Wrapped(event | {"kinesis": Wrapped(event["kinesis"])})
    assert read_records(iter([wrapped]))[0].data == b"Hi"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({}, "none of the keys Data, kinesis and recordId"),
        ({"dynamodb": {}}, "none of the keys"),
        (5, "not iterable"),
        ({"Data": b"x"}, "missing required field `SequenceNumber`"),
        ({"SequenceNumber": 1, "Data": b"x"}, "Expected `str`, got `int`"),
        ({"SequenceNumber": "1", "Data": "x"}, "Invalid base64"),
        (
            {
                "SequenceNumber": "1",
                "Data": b"",
                "ApproximateArrivalTimestamp": -1.0,
            },
            "Expected `float` >= 0",
        ),
        ({"kinesis": {"sequenceNumber": "1"}}, "missing required field `data`"),
        (
            {"recordId": "r", "data": "", "approximateArrivalTimestamp": 1e30},
            "it arrived 1e\\+27 seconds after 1970",
        ),
        (
            {
                "recordId": "r",
                "data": "",
                "kinesisRecordMetadata": {"subsequenceNumber": "x"},
            },
            "invalid literal",
        ),
    ],
)
def test_other_values_are_refused_with_their_index(record: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"(?s)records\[1\] .*{said}"):
        read_records([from_lambda(), record])


def test_a_refused_record_is_not_quoted_whole() -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_records([{"Payload": "x" * 10_000}])
    assert len(str(refused.value)) < 500


def test_a_mapping_in_place_of_records_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"keys \['Records'\]: pass its list"):
        read_records({"Records": []})  # type: ignore[dict-item]
