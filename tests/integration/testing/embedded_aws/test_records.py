"""Test putting and reading records, the limits of both, and dry runs."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from kinesumer.testing import EmbeddedAws
from kinesumer.testing.kinesis.records import ReadPage
from kinesumer.testing.kinesis.requests import GetRecords
from kinesumer.testing.kinesis.service import Caller
from tests.integration.testing.embedded_aws.conftest import iterator, refused

SHARD = "shardId-000000000000"
MIB = 1 << 20
DAY = 86_400
START = {"Type": "TRIM_HORIZON"}


async def read(
    kinesis: Any, kind: str = "TRIM_HORIZON", shard: str = SHARD, **which: Any
) -> list[bytes]:
    place = await iterator(kinesis, kind, shard, **which)
    answer = await kinesis.get_records(ShardIterator=place)
    return [record["Data"] for record in answer["Records"]]


async def test_keys_are_routed_by_hash_and_explicit_keys_directly(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders", 2)
    answer = await kinesis.put_records(
        StreamName="orders",
        Records=[
            {"Data": b"x", "PartitionKey": "key"},
            {
                "Data": b"x",
                "PartitionKey": "key",
                "ExplicitHashKey": str((1 << 128) - 1),
            },
            {"Data": b"x", "PartitionKey": "abc"},
        ],
    )
    assert [int(record["ShardId"][-1]) for record in answer["Records"]] == [0, 1, 1]
    assert answer["FailedRecordCount"] == 0


# --- iterators -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
async def test_the_ending_number_of_a_closed_shard_is_refused(
    aws: EmbeddedAws, kinesis: Any, kind: str
) -> None:
    aws.create_stream("orders")
    shard_id, last = aws.put("orders", b"x")
    aws.split("orders", shard_id)
    listed = await kinesis.list_shards(StreamName="orders")
    ending = listed["Shards"][0]["SequenceNumberRange"]["EndingSequenceNumber"]
    assert int(ending) > int(last)
    call = iterator(kinesis, kind, StartingSequenceNumber=ending)
    answer = await refused(call)
    assert answer.code == "InvalidArgumentException"
    assert "reached max possible value for the shard" in answer.message
    await iterator(kinesis, kind, StartingSequenceNumber=last)


async def test_millis_behind_latest_is_the_age_of_the_last_record_read(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders")
    for data in (b"0", b"1"):
        aws.put("orders", data)
        aws.advance(10)
    place = await iterator(kinesis)
    answer = await kinesis.get_records(ShardIterator=place, Limit=1)
    assert answer["MillisBehindLatest"] == pytest.approx(20_000, abs=2)
    answer = await kinesis.get_records(ShardIterator=answer["NextShardIterator"])
    assert answer["MillisBehindLatest"] == 0


# --- retention -----------------------------------------------------------------------


async def test_a_trimmed_number_is_refused_and_a_trimmed_time_is_the_oldest_record(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders")
    _, number = aws.put("orders", b"gone")
    aws.put("orders", b"gone too")
    aws.advance(DAY / 2)
    aws.put("orders", b"oldest")
    aws.advance(DAY / 2 + 1)
    at = {"StartingSequenceNumber": number}
    assert await read(kinesis) == [b"oldest"]
    with pytest.raises(ClientError, match="has expired"):
        await read(kinesis, "AFTER_SEQUENCE_NUMBER", **at)
    assert await read(kinesis, "AT_TIMESTAMP", Timestamp=0) == [b"oldest"]


# --- limits --------------------------------------------------------------------------


async def test_a_shard_answers_five_reads_a_second(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders", 2)
    place = await iterator(kinesis)
    other = await iterator(kinesis, shard="shardId-000000000001")
    for _ in range(5):
        await kinesis.get_records(ShardIterator=place)
    answer = await refused(kinesis.get_records(ShardIterator=place))
    assert answer.code == "ProvisionedThroughputExceededException"
    assert answer.message == (
        f"Rate exceeded for shard {SHARD} in stream orders under account 000000000000."
    )
    await kinesis.get_records(ShardIterator=other)
    aws.advance(0.2)
    await kinesis.get_records(ShardIterator=place)


async def test_a_page_of_ten_megabytes_closes_the_shard_for_five_seconds(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders")
    for _ in range(12):
        aws.put("orders", bytes(MIB - 3), "key")
    place = await iterator(kinesis)
    answer = await kinesis.get_records(ShardIterator=place)
    assert len(answer["Records"]) == 10
    place = answer["NextShardIterator"]
    for pause in (0, 1, 3.9):
        aws.advance(pause)
        call = kinesis.get_records(ShardIterator=place)
        assert (await refused(call)).code == "ProvisionedThroughputExceededException"
    aws.advance(0.2)
    answer = await kinesis.get_records(ShardIterator=place)
    assert len(answer["Records"]) == 2


async def test_a_page_has_at_most_10000_records(aws: EmbeddedAws, kinesis: Any) -> None:
    aws.create_stream("orders")
    for _ in range(10_001):
        aws.put("orders", b"x")
    place = await iterator(kinesis)
    # botocore isn't used, since it would parse this page for a second.
    caller, now = Caller("000000000000", "us-east-1"), aws._state.clock.now()
    request = GetRecords(shard_iterator=place)
    page = aws._state.kinesis.call("GetRecords", request, caller, now)
    assert isinstance(page, ReadPage)
    assert len(page.records) == 10_000
    call = kinesis.get_records(ShardIterator=place, Limit=10_001)
    assert (await refused(call)).code == "InvalidArgumentException"


async def test_a_shard_takes_a_thousand_records_a_second(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders")
    records = [{"Data": b"x", "PartitionKey": "k"}] * 400
    failed = []
    for _ in range(3):
        answer = await kinesis.put_records(StreamName="orders", Records=records)
        failed.append(answer["FailedRecordCount"])
    assert failed == [0, 0, 200]
    assert answer["Records"][-1]["ErrorCode"] == (
        "ProvisionedThroughputExceededException"
    )
    assert SHARD in answer["Records"][-1]["ErrorMessage"]
    aws.advance(0.5)
    answer = await kinesis.put_records(StreamName="orders", Records=records)
    assert answer["FailedRecordCount"] == 0


async def test_a_shard_takes_a_megabyte_a_second(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders")

    async def put() -> None:
        await kinesis.put_record(
            StreamName="orders", Data=bytes(MIB // 2 - 1), PartitionKey="k"
        )

    await put()
    await put()
    assert (await refused(put())).code == "ProvisionedThroughputExceededException"
    aws.advance(0.5)
    await put()


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_record_is_as_large_as_the_stream_allows(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    arn = aws.create_stream("orders")

    async def put(size: int) -> None:
        await kinesis.put_record(
            StreamName="orders", Data=bytes(size - 1), PartitionKey="k"
        )

    assert (await refused(put(MIB + 1))).code == "InvalidArgumentException"
    await put(MIB)
    await kinesis.update_max_record_size(StreamARN=arn, MaxRecordSizeInKiB=10_240)
    aws.advance(1)
    await put(10 * MIB)
    aws.advance(20)
    assert (await refused(put(10 * MIB + 1))).code == "InvalidArgumentException"


# --- dry runs -------------------------------------------------------------------------


async def test_a_dry_run_has_no_effect_and_says_so(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    arn = aws.create_stream("orders")
    answer = await kinesis.register_stream_consumer(
        StreamARN=arn, ConsumerName="billing"
    )
    consumer = answer["Consumer"]["ConsumerARN"]
    answer = await kinesis.get_shard_iterator(
        StreamARN=arn, ShardId=SHARD, ShardIteratorType="TRIM_HORIZON"
    )
    iterator = answer["ShardIterator"]
    entry = {"Data": b"x", "PartitionKey": "k"}
    for call in (
        kinesis.get_records(ShardIterator=iterator, DryRun=True),
        kinesis.get_shard_iterator(
            StreamARN=arn, ShardId=SHARD, ShardIteratorType="LATEST", DryRun=True
        ),
        kinesis.put_record(StreamARN=arn, DryRun=True, **entry),
        kinesis.put_records(StreamARN=arn, Records=[entry], DryRun=True),
        kinesis.subscribe_to_shard(
            ConsumerARN=consumer, ShardId=SHARD, StartingPosition=START, DryRun=True
        ),
    ):
        assert (await refused(call)).code == "DryRunOperationException"
    answer = await kinesis.get_records(ShardIterator=iterator)
    assert answer["Records"] == []
    answer = await kinesis.subscribe_to_shard(  # none began less than 5 s ago
        ConsumerARN=consumer, ShardId=SHARD, StartingPosition=START
    )
    answer["EventStream"].close()


async def test_a_dry_run_is_refused_like_the_call(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    arn = aws.create_stream("orders")
    aws.deny("kinesis:PutRecord")
    call = kinesis.put_record(StreamARN=arn, Data=b"x", PartitionKey="k", DryRun=True)
    assert (await refused(call)).code == "AccessDeniedException"
