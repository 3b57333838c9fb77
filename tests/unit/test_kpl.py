"""Test what ``kinesumer.kpl`` opens and packs, without a client."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer import ConfigurationError, Position, kpl
from kinesumer.kpl import PutEntry
from kinesumer.model.streams import HASH_KEYS
from kinesumer.producer.aggregation import AGGREGATE_BYTES
from tests.support.aggregates import User, frame, hash_of, message

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "support" / "kpl-vectors.json").read_text("utf-8")
)
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
AGGREGATE = frame(message([User("a", 7, b"1"), User("b", None, b"2")]))


def got(data: bytes, number: str = "495") -> dict[str, Any]:
    """Return a record of GetRecords."""
    arrived = datetime(2026, 1, 2, tzinfo=UTC)
    return {
        "SequenceNumber": number,
        "ApproximateArrivalTimestamp": arrived,
        "Data": data,
        "PartitionKey": "first key",
    }


def shards(*bounds: tuple[int, int], ended: int = 0) -> list[dict[str, Any]]:
    """Return shards as ListShards does; the first ``ended`` ones are closed."""
    return [
        {
            "ShardId": f"shardId-{index:012}",
            "HashKeyRange": {
                "StartingHashKey": str(first),
                "EndingHashKey": str(last),
            },
            "SequenceNumberRange": {"StartingSequenceNumber": "1"}
            | ({"EndingSequenceNumber": "2"} if index < ended else {}),
        }
        for index, (first, last) in enumerate(bounds)
    ]


WHOLE = shards((0, HASH_KEYS - 1))
HALVES = shards((0, HASH_KEYS // 2 - 1), (HASH_KEYS // 2, HASH_KEYS - 1))


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda v: v["by"])
def test_aggregates_of_other_implementations_are_opened(vector: dict[str, Any]) -> None:
    records = kpl.deaggregate([got(base64.b64decode(vector["data"]))])
    found = [
        [r.partition_key, r.explicit_hash_key, base64.b64encode(r.data).decode()]
        for r in records
    ]
    assert found == vector["records"]
    assert [r.sub_sequence_number for r in records] == [0, 1, 2, 3]


def test_aggregates_are_those_of_the_kpl_byte_by_byte() -> None:
    vector = VECTORS["vectors"][0]
    entries = [
        PutEntry(
            Data=base64.b64decode(data),
            PartitionKey=key,
            **({} if hash_key is None else {"ExplicitHashKey": hash_key}),  # type: ignore[typeddict-item]
        )
        for key, hash_key, data in vector["records"]
    ]
    [packed] = kpl.aggregate(entries, WHOLE)
    assert packed["Data"] == base64.b64decode(vector["data"])


def test_records_of_boto3_keep_their_positions_keys_and_times() -> None:
    records = kpl.deaggregate([got(b"plain", "494"), got(AGGREGATE, "495")])
    positions = [Position("494"), Position("495", 0), Position("495", 1)]
    assert [r.position for r in records] == positions
    assert [r.partition_key for r in records] == ["first key", "a", "b"]
    assert [r.explicit_hash_key for r in records] == [None, "7", None]
    assert {r.arrived_at for r in records} == {datetime(2026, 1, 2, tzinfo=UTC)}


def test_records_of_a_lambda_event_know_their_shard() -> None:
    event = {
        "Records": [
            {
                "kinesis": {
                    "kinesisSchemaVersion": "1.0",
                    "partitionKey": "1",
                    "sequenceNumber": "4959",
                    "data": base64.b64encode(AGGREGATE).decode(),
                    "approximateArrivalTimestamp": 1545084650.987,
                },
                "eventSource": "aws:kinesis",
                "eventVersion": "1.0",
                "eventID": "shardId-000000000006:4959",
                "eventName": "aws:kinesis:record",
                "invokeIdentityArn": "arn:aws:iam::000000000000:role/lambda-role",
                "awsRegion": "us-east-1",
                "eventSourceARN": ARN,
            }
        ]
    }
    first, second = kpl.deaggregate(event["Records"])
    assert (first.stream, first.shard_id) == ("orders", "shardId-000000000006")
    assert first.approximate_arrival_timestamp == 1545084650.987
    assert second.position == Position("4959", 1)
    assert second.fence.position == second.position


def test_records_of_firehose_are_opened_one_by_one() -> None:
    event = {
        "invocationId": "i",
        "deliveryStreamArn": "arn:aws:firehose:us-east-1:000000000000:x/d",
        "records": [
            {
                "recordId": "r1",
                "approximateArrivalTimestamp": 1510772160500,
                "data": base64.b64encode(AGGREGATE).decode(),
            }
        ],
    }
    answers = [
        {"recordId": record["recordId"], "data": [r.data for r in parts]}  # type: ignore[index]
        for record in event["records"]
        if (parts := kpl.deaggregate([record]))  # type: ignore[list-item]
    ]
    assert answers == [{"recordId": "r1", "data": [b"1", b"2"]}]
    assert parts[0].approximate_arrival_timestamp == 1510772160.5


def test_an_aggregate_that_cannot_be_opened_stays_whole_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = AGGREGATE[:-1] + b"?"
    with caplog.at_level(logging.WARNING, "kinesumer"):
        [record] = kpl.deaggregate([got(broken, "496")])
    assert record.data == broken
    assert record.sub_sequence_number is None
    [line] = caplog.messages
    assert "1 records begin like KPL aggregates" in line
    assert line.endswith("(the first has the sequence number 496)")


def test_an_aggregate_without_user_records_becomes_none() -> None:
    assert kpl.deaggregate([got(frame(b"\n\x01k"))]) == []


def test_a_whole_event_is_refused_with_what_to_pass() -> None:
    with pytest.raises(ConfigurationError, match=r'such as event\["Records"\]'):
        kpl.deaggregate({"Records": [got(b"x")]})  # type: ignore[dict-item]


texts = st.text(min_size=1, max_size=20).filter(lambda t: not _has_surrogate(t))


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


@given(
    st.lists(
        st.tuples(texts, st.none() | st.integers(0, HASH_KEYS - 1), st.binary()),
        max_size=30,
    )
)
def test_records_come_out_as_they_went_in_each_in_its_shard(
    put: list[tuple[str, int | None, bytes]],
) -> None:
    entries = [_entry(*one) for one in put]
    packed = kpl.aggregate(entries, HALVES)
    assert len(packed) <= 2
    opened = []
    for number, entry in enumerate(packed, 1):
        records = kpl.deaggregate(
            [got(entry["Data"], str(number)) | {"PartitionKey": entry["PartitionKey"]}]
        )
        place = _place(entry["PartitionKey"], entry.get("ExplicitHashKey"))
        for record in records:
            # Kinesis does not return the hash key of a record that stands alone.
            if record.sub_sequence_number is not None:
                key = record.partition_key or ""
                assert _place(key, record.explicit_hash_key) == place
        opened += [(record.partition_key, record.data) for record in records]
    assert sorted(opened) == sorted((key, data) for key, _, data in put)


def _entry(key: str, hash_key: int | None, data: bytes) -> PutEntry:
    if hash_key is None:
        return PutEntry(Data=data, PartitionKey=key)
    return PutEntry(Data=data, PartitionKey=key, ExplicitHashKey=str(hash_key))


def _place(key: str, hash_key: str | None) -> int:
    number = hash_of(key) if hash_key is None else int(hash_key)
    return number * 2 // HASH_KEYS


def test_a_record_that_would_be_alone_stays_as_it_is() -> None:
    entry = _entry("k", 7, b"x")
    assert kpl.aggregate([entry], WHOLE) == [entry]


def test_aggregates_have_a_limit_and_keep_the_order() -> None:
    entries = [_entry("k", None, bytes([n]) * 20_000) for n in range(12)]
    packed = kpl.aggregate(entries, WHOLE)
    assert [len(entry["Data"]) <= AGGREGATE_BYTES for entry in packed] == [True] * 3
    opened = kpl.deaggregate(
        [got(entry["Data"], str(number)) for number, entry in enumerate(packed, 1)]
    )
    assert [record.data for record in opened] == [entry["Data"] for entry in entries]


def test_closed_shards_get_no_records() -> None:
    half = HASH_KEYS // 2
    after_split = shards(
        (0, HASH_KEYS - 1), (0, half - 1), (half, HASH_KEYS - 1), ended=1
    )
    entries = [_entry("k", 0, b"a"), _entry("k", HASH_KEYS - 1, b"b")]
    assert kpl.aggregate(entries, after_split) == entries


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"Data": b"x"}, r"records\[0\] cannot be put: it has no 'PartitionKey'"),
        ({"Data": "x", "PartitionKey": "k"}, "data is of type str"),
        ({"Data": b"x", "PartitionKey": 5}, "partition_key=5 must be text"),
        ({"Data": b"x", "PartitionKey": None}, "partition_key is null"),
        ({"Data": b"x", "PartitionKey": ""}, "partition_key is empty"),
        ({"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": "x"}, "explicit_hash"),
        ({"Data": bytes(11 << 20), "PartitionKey": "k"}, "more than the 10,485,760"),
        (5, "it has no"),
    ],
)
def test_a_record_that_kinesis_would_refuse_is_refused(record: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        kpl.aggregate([record], WHOLE)


@pytest.mark.parametrize(
    "listed",
    [
        5,
        [],
        [{"ShardId": "s"}],
        shards((0, HASH_KEYS)),
        shards((0, HASH_KEYS - 1), ended=1),
        {"Shards": WHOLE},
    ],
)
def test_what_is_not_a_listing_of_shards_is_refused(listed: Any) -> None:
    with pytest.raises(ConfigurationError, match="shards"):
        kpl.aggregate([], listed)


def test_opening_loads_neither_protobuf_nor_what_talks_to_aws() -> None:
    program = (
        "import sys; from kinesumer import kpl;"
        f"kpl.deaggregate([{{'SequenceNumber': '1', 'Data': {AGGREGATE!r}}}]);"
        "print(*{'google', 'botocore', 'aiohttp', 'asyncio', 'opentelemetry'}"
        " & sys.modules.keys())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
