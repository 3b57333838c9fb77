"""Test calls with DryRun, which say whether they would succeed."""

from __future__ import annotations

from typing import Any

from kinesumer.testing import EmbeddedAws

SHARD = "shardId-000000000000"
START = {"Type": "TRIM_HORIZON"}


async def test_a_dry_run_has_no_effect_and_says_so(
    aws: EmbeddedAws, kinesis: Any, refused: Any
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
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    arn = aws.create_stream("orders")
    put = {"Data": b"x", "PartitionKey": "k", "DryRun": True}
    call = kinesis.put_record(StreamARN=f"{arn}x", **put)
    assert (await refused(call)).code == "ResourceNotFoundException"
    call = kinesis.subscribe_to_shard(
        ConsumerARN=f"{arn}/consumer/billing:1",
        ShardId=SHARD,
        StartingPosition=START,
        DryRun=True,
    )
    assert (await refused(call)).code == "ResourceNotFoundException"
    aws.deny("kinesis:PutRecord")
    call = kinesis.put_record(StreamARN=arn, **put)
    assert (await refused(call)).code == "AccessDeniedException"
