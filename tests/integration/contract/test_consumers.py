"""Test that every server has the properties of fan-out that we rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kinesumer.errors import (
    FatalError,
    InvalidPositionError,
    ShardMissingError,
    SourceThrottledError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from tests.integration.contract.streams import AwsStreams, one_shard
from tests.support.subscriptions import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kinesumer.aws.stream_consumers import StreamConsumers
    from kinesumer.model.records import Record
    from kinesumer.ports import StreamSource
    from tests.integration.contract.streams import Streams

    Read = Callable[..., Reader]

HALF = HASH_KEYS // 2
NO_SHARD = "shardId-000000000099"
# Kinesis permits a shard's next subscription only after this time.
REPLACE_SECONDS = 5.2
DEADLINE_SECONDS = 20.0  # some servers send an event only once a second

no_errors = pytest.mark.deviates("kinesis-local", "it sends nothing, not even an error")
no_end = pytest.mark.deviates("kinesis-local", "its subscriptions never end")

# The module's tests share AWS clients, so they must run on one event loop.
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.deviates("memory", "its consumers are tested by the simulation"),
]


@pytest.fixture
def served(streams: Streams) -> AwsStreams:
    """Return the streams of each server in turn."""
    assert isinstance(streams, AwsStreams)
    return streams


@pytest_asyncio.fixture(loop_scope="module")
async def read() -> AsyncIterator[Read]:
    """Return a function that begins to read a shard."""
    readers: list[Reader] = []

    def read(
        source: StreamSource,
        shard_id: str,
        after: Position | Start = Start.TRIM_HORIZON,
    ) -> Reader:
        readers.append(Reader(source, shard_id, after, DEADLINE_SECONDS))
        return readers[-1]

    yield read
    for reader in readers:
        await reader.stop()


async def until_gone(served: AwsStreams, consumers: StreamConsumers, name: str) -> None:
    """Wait until a deregistered consumer is not found any more."""
    while await consumers.find(name) is not None:
        await served.pause(1)


# --- consumers ------------------------------------------------------------------------


async def test_a_registered_consumer_becomes_active_and_is_found(
    served: AwsStreams, name: str
) -> None:
    before = served.now()
    await served.create(name)
    consumers = await served.consumers(name)
    assert await consumers.find("billing") is None
    active = await consumers.require_active("billing")
    stream = await (await served.source(name)).describe()
    created_at = active.arn.removeprefix(f"{stream.arn}/consumer/billing:")
    assert created_at.isdecimal()
    assert (active.name, active.status) == ("billing", "ACTIVE")
    assert before - 2 <= active.created_at <= served.now() + 2
    assert await consumers.find("billing") == active


async def test_a_consumer_that_exists_is_not_registered_again(
    served: AwsStreams, name: str
) -> None:
    await served.create(name)
    consumers = await served.consumers(name)
    active = await consumers.require_active("billing")
    await consumers.register("billing")
    assert await consumers.list() == [active]


async def test_each_stream_has_consumers_of_its_own(
    served: AwsStreams, name: str
) -> None:
    other = f"{name}-other"
    for stream in (name, other):
        await served.create(stream)
    consumers = await served.consumers(name)
    assert await consumers.list() == []
    for consumer in ("billing", "audit"):
        await consumers.require_active(consumer)
    assert {consumer.name for consumer in await consumers.list()} == {
        "billing",
        "audit",
    }
    others = await served.consumers(other)
    assert await others.list() == []
    assert await others.find("billing") is None


async def test_a_deregistered_consumer_is_gone(served: AwsStreams, name: str) -> None:
    await served.create(name)
    consumers = await served.consumers(name)
    await consumers.deregister("billing")  # it does not exist
    former = await consumers.require_active("billing")
    await consumers.deregister("billing")
    await until_gone(served, consumers, "billing")
    assert await consumers.list() == []
    await served.pause(1.1)
    assert (await consumers.require_active("billing")).arn != former.arn


async def test_the_consumers_of_a_missing_stream_are_missing(
    served: AwsStreams, name: str
) -> None:
    consumers = await served.consumers(name)
    for call in (
        consumers.find("billing"),
        consumers.list(),
        consumers.register("billing"),
        consumers.deregister("billing"),
    ):
        with pytest.raises(StreamMissingError, match=name):
            await call


# --- subscriptions --------------------------------------------------------------------


async def test_records_are_pushed_as_they_were_put(
    served: AwsStreams, name: str, read: Read
) -> None:
    _, shard = await one_shard(served, name)
    put = [
        (await served.put(name, data, key))[1]
        for data, key in (
            (bytes(range(256)), "a"),
            (b"\x00", 'ünïcödé "key" \\'),
            (b"x" * 500_000, "k" * 256),
        )
    ]
    source = await served.fan_out(name, "billing")
    iterator: str | None = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    records: list[Record] = []
    while len(records) < 3:
        assert iterator is not None and source.is_pushed(iterator)
        page = await source.get_records(iterator, 10)
        records += page.records
        iterator = page.next_iterator
    source.release(shard.shard_id)
    assert [record.sequence_number for record in records] == put
    assert [record.data for record in records] == [
        bytes(range(256)),
        b"\x00",
        b"x" * 500_000,
    ]
    keys = [record.partition_key for record in records]
    assert keys == ["a", 'ünïcödé "key" \\', "k" * 256]
    arrived = records[0].approximate_arrival_timestamp
    assert arrived is not None and abs(arrived - served.now()) < 60


async def test_a_subscription_begins_at_any_position_and_follows_the_shard(
    served: AwsStreams, name: str, read: Read
) -> None:
    _, shard = await one_shard(served, name)
    numbers = [(await served.put(name, b"%d" % number))[1] for number in range(3)]
    hour_ago = Start(type="AT_TIMESTAMP", timestamp=served.now() - 3600)
    cases: list[tuple[Position | Start, list[str]]] = [
        (Start.TRIM_HORIZON, ["0", "1", "2"]),
        (Position(numbers[0]), ["1", "2"]),
        # A part of the aggregate is unread, so its Kinesis record is sent again.
        (Position(numbers[1], 7), ["1", "2"]),
        (Position(numbers[2]), []),
        (hour_ago, ["0", "1", "2"]),
        (Start.LATEST, []),
    ]
    readers = []
    for number, (after, texts) in enumerate(cases):
        source = await served.fan_out(name, f"app-{number}")
        reader = read(source, shard.shard_id, after)
        await reader.change()
        assert await reader.until(len(texts)) == texts
        readers.append(reader)
        await served.pause(0.3)
    await served.put(name, b"new")
    for reader, (_, texts) in zip(readers, cases, strict=True):
        assert await reader.until(len(texts) + 1) == [*texts, "new"]
        assert reader.errors == []


@no_end
async def test_a_later_subscription_takes_the_shard_over(
    served: AwsStreams, name: str, read: Read
) -> None:
    _, shard = await one_shard(served, name)
    former = read(await served.fan_out(name, "billing"), shard.shard_id)
    await served.put(name, b"a")
    await former.until(1)
    await served.pause(REPLACE_SECONDS)
    later = read(await served.fan_out(name, "billing"), shard.shard_id)
    while not former.errors:
        await former.change()
    assert isinstance(former.errors[0], SourceThrottledError)
    await former.stop()
    await served.put(name, b"b")
    assert await later.until(2) == ["a", "b"]
    assert later.errors == []


@no_end
async def test_a_split_shard_ends_with_its_children(
    served: AwsStreams, name: str, read: Read
) -> None:
    _, parent = await one_shard(served, name)
    reader = read(await served.fan_out(name, "billing"), parent.shard_id)
    await served.put(name, b"parent's")
    await reader.until(1)
    await served.split(name, parent.shard_id)
    children = await reader.end()
    low_id, _ = await served.put(name, b"low", hash_key=0)
    high_id, _ = await served.put(name, b"high", hash_key=HALF)
    assert sorted(children) == [
        Shard(low_id, 0, HALF - 1, (parent.shard_id,)),
        Shard(high_id, HALF, HASH_KEYS - 1, (parent.shard_id,)),
    ]
    assert reader.texts == ["parent's"]
    child = read(await served.fan_out(name, "billing"), low_id)
    assert await child.until(1) == ["low"]


@no_errors
async def test_a_missing_shard_is_told_from_a_missing_stream(
    served: AwsStreams, name: str, read: Read
) -> None:
    await served.create(name)
    with pytest.raises(ShardMissingError):
        await read(await served.fan_out(name, "billing"), NO_SHARD).end()


@no_errors
@pytest.mark.deviates("ministack", "it takes any text for a sequence number")
async def test_a_position_that_is_not_of_the_shard_is_refused(
    served: AwsStreams, name: str, read: Read
) -> None:
    _, shard = await one_shard(served, name)
    source = await served.fan_out(name, "billing")
    with pytest.raises(InvalidPositionError):
        await read(source, shard.shard_id, Position("12")).end()


@no_end
async def test_a_subscription_ends_with_its_consumer(
    served: AwsStreams, name: str, read: Read
) -> None:
    _, shard = await one_shard(served, name)
    reader = read(await served.fan_out(name, "billing"), shard.shard_id)
    await reader.change()
    await (await served.consumers(name)).deregister("billing")
    with pytest.raises(FatalError, match="register it again"):
        await reader.end()


@no_end
async def test_a_subscription_ends_with_its_stream(
    served: AwsStreams, name: str, read: Read
) -> None:
    _, shard = await one_shard(served, name)
    reader = read(await served.fan_out(name, "billing"), shard.shard_id)
    await reader.change()
    await served.delete(name)
    with pytest.raises(StreamMissingError):
        await reader.end()
