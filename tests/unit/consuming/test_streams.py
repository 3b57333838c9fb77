"""Test that the streams that users name are found and checked before consuming."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kinesumer.consuming.streams import OpenStream, as_streams, open_streams
from kinesumer.errors import ConfigurationError, StreamMissingError
from kinesumer.model.streams import Start, Stream
from kinesumer.testing.memory import MemoryKinesis
from kinesumer.testing.simulation.memory_kinesis import SUBSCRIPTION_LIMITS
from tests.support.faulty import FaultySource
from tests.support.world import ARN, World


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("orders", ["orders"]),
        (ARN, [ARN]),
        (Stream("orders"), ["orders"]),
        (["orders", Stream("payments")], ["orders", "payments"]),
        (("orders", "payments"), ["orders", "payments"]),
    ],
)
def test_streams_are_names_arns_or_objects_one_or_many(
    given: Any, names: list[str]
) -> None:
    assert [stream.name for stream in as_streams(given)] == names


CONSUMER = f"{ARN}/consumer/billing:1700000000"
ELSEWHERE = CONSUMER.replace("stream/orders", "stream/clicks")


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (Stream("orders", fan_out="a b"), "fan_out='a b' must be the name of a stream"),
        (Stream("orders", fan_out=""), "fan_out='' must be"),
        (Stream("orders", fan_out=7), "fan_out=7 must be"),  # type: ignore[arg-type]
        (Stream("orders", fan_out=ARN), "or its ARN"),
        (Stream("orders", fan_out=ELSEWHERE), "clicks, not of orders: use"),
        (Stream(ARN, fan_out=ELSEWHERE), f"clicks, not of {ARN}: use"),
        (Stream("orders", fan_out_fallback=True), "needs fan_out="),
    ],
)
def test_fan_out_that_cannot_be_meant_is_refused(stream: Stream, text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        as_streams(stream)


@pytest.mark.parametrize("name", ["orders", ARN])
def test_a_stream_consumer_is_a_name_or_the_arn_of_one_of_the_stream(name: str) -> None:
    for consumer in ("billing", CONSUMER):
        [found] = as_streams(Stream(name, fan_out=consumer, fan_out_fallback=True))
        assert found.fan_out == consumer


async def opened(
    world: World, streams: Sequence[Stream], start: Start = Start.LATEST
) -> dict[str, OpenStream]:
    async def open_source(stream: Stream) -> Any:
        return world.kinesis.source(stream.name)

    return await open_streams(world.context(), streams, start, open_source)


def at(world: World, **ago: float) -> Start:
    now = datetime.fromtimestamp(world.clock.wall(), UTC)
    return Start.at(now - timedelta(**ago))


async def test_streams_are_known_by_their_arn(world: World) -> None:
    (stream,) = (await opened(world, [Stream("orders")])).values()
    assert (stream.arn, stream.name, stream.label) == (ARN, "orders", "stream orders")


async def test_a_streams_own_start_goes_before_the_calls(world: World) -> None:
    world.kinesis.create_stream("payments")
    streams = [Stream("orders", start=Start.TRIM_HORIZON), Stream("payments")]
    found = await opened(world, streams, Start.LATEST)
    assert [s.start for s in found.values()] == [Start.TRIM_HORIZON, Start.LATEST]


async def test_a_stream_being_created_is_waited_for(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kinesumer")
    limits = replace(SUBSCRIPTION_LIMITS, creating_seconds=31, updating_seconds=60)
    world.kinesis = MemoryKinesis(world.clock, limits=limits)
    stream = world.kinesis.create_stream("orders")
    task = world.loop.create_task(opened(world, [Stream("orders")]))
    await asyncio.sleep(30)
    assert not task.done()
    await task
    assert "orders is being created, waiting" in caplog.text
    stream.change(world.clock.wall(), lambda _: None)
    assert await opened(world, [Stream("orders")])
    assert stream.status == "UPDATING"


async def test_a_stream_being_deleted_is_refused(world: World) -> None:
    world.kinesis.stream("orders").status = "DELETING"
    with pytest.raises(StreamMissingError, match=r"orders .* is being deleted"):
        await opened(world, [Stream("orders")])


async def test_a_start_in_the_future_is_refused(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"orders: the start 2\S*Z is in the"):
        await opened(world, [Stream("orders")], at(world, seconds=-60))
    await asyncio.sleep(0.7)
    assert await opened(world, [Stream("orders")], at(world))


async def test_an_unreachable_kinesis_is_awaited(world: World) -> None:
    source = FaultySource(world.kinesis.source("orders"))
    source.down = True

    async def open_source(stream: Stream) -> Any:
        return source

    streams = [Stream("orders")]
    finding = open_streams(world.context(), streams, Start.LATEST, open_source)
    task = world.loop.create_task(finding)
    await asyncio.sleep(60)
    source.down = False
    assert list(await task) == [ARN]
