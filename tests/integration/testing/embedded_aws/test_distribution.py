"""Test both strategies by which a stream distributes its records, and the switch."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kinesumer.testing import EmbeddedAws
from tests.integration.testing.embedded_aws.conftest import iterator

ON_DEMAND = {"StreamMode": "ON_DEMAND"}


async def strategy(kinesis: Any, stream: str = "orders") -> str | None:
    answer = await kinesis.describe_stream_summary(StreamName=stream)
    found: str | None = answer["StreamDescriptionSummary"].get(
        "RecordDistributionStrategy"
    )
    return found


async def switch(kinesis: Any, arn: str, to: str) -> None:
    await kinesis.update_stream_record_distribution_strategy(
        StreamARN=arn, RecordDistributionStrategy=to
    )


async def shards_of(kinesis: Any, records: list[Any]) -> Counter[str]:
    answer = await kinesis.put_records(StreamName="orders", Records=records)
    return Counter(result["ShardId"] for result in answer["Records"])


async def test_only_streams_on_demand_have_a_strategy(
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    arn = aws.create_stream("orders")
    assert await strategy(kinesis) is None
    assert (await refused(switch(kinesis, arn, "AUTO"))).code == (
        "InvalidArgumentException"
    )
    for name, given, expected in (
        ("plain", {}, "USER_PARTITION_KEY"),
        ("auto", {"RecordDistributionStrategy": "AUTO"}, "AUTO"),
    ):
        await kinesis.create_stream(
            StreamName=name, StreamModeDetails=ON_DEMAND, **given
        )
        assert await strategy(kinesis, name) == expected
    call = kinesis.create_stream(
        StreamName="other", ShardCount=1, RecordDistributionStrategy="AUTO"
    )
    assert (await refused(call)).code == "InvalidArgumentException"


async def test_a_switch_takes_effect_at_once_and_ends_with_the_mode(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    arn = aws.create_stream("orders", mode="ON_DEMAND")
    for to in ("AUTO", "USER_PARTITION_KEY", "AUTO"):
        await switch(kinesis, arn, to)
        assert await strategy(kinesis) == to
    aws.change_stream("orders", distribution="USER_PARTITION_KEY")
    assert await strategy(kinesis) == "USER_PARTITION_KEY"
    await switch(kinesis, arn, "AUTO")
    for mode in ("PROVISIONED", "ON_DEMAND"):
        await kinesis.update_stream_mode(
            StreamARN=arn, StreamModeDetails={"StreamMode": mode}
        )
    assert await strategy(kinesis) == "USER_PARTITION_KEY"


async def test_auto_spreads_records_evenly_whatever_their_keys(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders", 4, mode="ON_DEMAND", distribution="AUTO")
    same = {"Data": b"x", "PartitionKey": "key", "ExplicitHashKey": "0"}
    for records in ([same] * 20, [{"Data": b"x"}] * 20):
        found = await shards_of(kinesis, records)
        assert list(found.values()) == [5, 5, 5, 5]
    places = {aws.put("orders", b"x", key)[0] for key in ("key", None, "key", None)}
    assert len(places) == 4


async def test_a_record_keeps_its_key_or_has_none(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders", mode="ON_DEMAND", distribution="AUTO")
    await kinesis.put_record(StreamName="orders", Data=b"1")
    await kinesis.put_record(StreamName="orders", Data=b"2", PartitionKey="key")
    answer = await kinesis.get_records(ShardIterator=await iterator(kinesis))
    assert [r.get("PartitionKey") for r in answer["Records"]] == [None, "key"]
