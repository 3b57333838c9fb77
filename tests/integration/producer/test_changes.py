"""Test that a producer follows changes of its stream: AUTO, and the largest record."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from kinesumer import ConfigurationError, Producer, PutFailedError
from kinesumer.blocking import Producer as BlockingProducer
from kinesumer.testing import EmbeddedAws
from tests.support.producers import consumed, texts

pytestmark = pytest.mark.usefixtures("nobody_else_joins")

AUTO: dict[str, Any] = {"mode": "ON_DEMAND", "distribution": "AUTO"}
NEEDS_KEY = "partition_key is null, but the stream distributes records by their keys"
MIB = 1 << 20


def switch(aws: EmbeddedAws, to: str) -> None:
    aws.change_stream("orders", distribution=to)


async def test_a_stream_with_auto_takes_records_without_a_key(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", 3, **AUTO)
    data = texts(300)
    async with Producer("orders", ordered=True) as producer:
        futures = [await producer.put(text) for text in data]
        results = await asyncio.gather(*futures)
    assert Counter(result.shard_id for result in results).most_common(1)[0][1] == 100
    assert producer.counts.requests <= 2
    records = await consumed(data)
    assert sorted(record.data for record in records) == data
    assert {record.partition_key for record in records} == {None}


async def test_the_strategy_decides_at_each_put_whether_a_key_may_be_missing(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", 2, mode="ON_DEMAND")
    async with Producer("orders") as producer:
        with pytest.raises(ConfigurationError, match=NEEDS_KEY):
            await producer.put(b"refused")
        await asyncio.sleep(1)  # a stream is described at most once a second
        switch(kinesumer_aws, "AUTO")
        await (await producer.put(b"1"))
        switch(kinesumer_aws, "USER_PARTITION_KEY")
        lost = await producer.put(b"lost")
        kept = [await producer.put(b"%d" % n, partition_key="k") for n in (2, 3)]
        with pytest.raises(PutFailedError, match=NEEDS_KEY):
            await lost
        await asyncio.gather(*kept)
        with pytest.raises(ConfigurationError, match=NEEDS_KEY):
            await producer.put(b"refused")
    records = await consumed([b"1", b"2", b"3"])
    assert [record.partition_key for record in records] == [None, "k", "k"]


async def test_a_producer_follows_the_largest_record_of_its_stream(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders")
    large = bytes(2 * MIB - 1)
    async with Producer("orders") as producer:
        with pytest.raises(ConfigurationError, match="more than the 1,048,576"):
            await producer.put(large, partition_key="k")
        await asyncio.sleep(1)  # a stream is described at most once a second
        kinesumer_aws.change_stream("orders", max_record_kib=2048)
        await (await producer.put(large, partition_key="k"))


def test_threads_put_records_without_a_key_too(kinesumer_aws: EmbeddedAws) -> None:
    kinesumer_aws.create_stream("orders", 2, mode="ON_DEMAND")
    with BlockingProducer("orders", linger_seconds=0.01) as producer:
        with pytest.raises(ConfigurationError, match=NEEDS_KEY):
            producer.put(b"refused")
        with pytest.raises(ConfigurationError, match="must be text"):
            producer.put(b"refused", partition_key=7)  # type: ignore[arg-type]
        asyncio.run(asyncio.sleep(1))  # a stream is described at most once a second
        switch(kinesumer_aws, "AUTO")
        futures = [producer.put(text) for text in texts(50)]
        producer.flush()
        assert len({future.result().shard_id for future in futures}) == 2
        switch(kinesumer_aws, "USER_PARTITION_KEY")
        with pytest.raises(PutFailedError, match=NEEDS_KEY):
            producer.put(b"lost").result(timeout_seconds=30)
        producer.put(b"kept", partition_key="k").result(timeout_seconds=30)
