"""Test the events of subscriptions and their faults, with AWS's own client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientPayloadError
from botocore.eventstream import ChecksumMismatch
from botocore.exceptions import EventStreamError

from kinesumer.testing import EmbeddedAws, Limits
from kinesumer.testing.kinesis.subscription import Subscription
from kinesumer.wire.event_stream import decode_event, decode_frame
from tests.support.subscriptions import DELIVERY_SECONDS, Events, put

Subscribe = Callable[..., Awaitable[Events]]

SHARD = "shardId-000000000000"
MIB = 1 << 20

# --- events ---------------------------------------------------------------------------


async def test_a_record_is_delivered_a_moment_after_its_arrival(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    await events.first(1)
    aws.put("orders", b"a")
    aws.advance(DELIVERY_SECONDS - 0.001)
    await events.silence()
    assert events.data_now == []
    aws.advance(0.001)
    assert await events.data(1) == [b"a"]


async def test_an_event_says_how_far_it_is_behind(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws._state.kinesis.limits = Limits(event_bytes=10, delivery_seconds=0)
    aws.create_stream("orders")
    for number in range(3):
        aws.put("orders", b"record %d" % number)
        aws.advance(10)
    events = await subscribe()
    behind = [event["MillisBehindLatest"] for event in await events.first(3)]
    assert behind == [pytest.approx(30_000, abs=2), pytest.approx(20_000, abs=2), 0]


async def test_an_event_without_records_comes_every_five_seconds(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    events = await subscribe("LATEST")
    for number in range(1, 4):
        [*_, event] = await events.first(number)
        assert (event["Records"], event["MillisBehindLatest"]) == ([], 0)
        assert int(event["ContinuationSequenceNumber"])
        assert await events.silence() == number
        aws.advance(5)


async def test_a_shard_sends_two_megabytes_a_second_in_events_of_one_megabyte(
    aws: EmbeddedAws,
) -> None:
    aws.create_stream("orders")
    put(aws, *[b"x" * (MIB // 16)] * 16 * 20)
    sizes: list[int] = []
    with aws._opened("orders") as (stream, now):
        subscription = Subscription(stream, stream.shards[SHARD], 0, now)
        end = now + 5
        while now < end:
            step = subscription.step(now)
            if step.frame:
                event = decode_event(decode_frame(step.frame).payload)
                sizes.append(sum(len(record.data) for record in event.records))
            now += step.wait_seconds
    assert 5 * 2 * MIB <= sum(sizes) <= (5 + 1) * 2 * MIB + MIB
    assert MIB // 2 < max(sizes) <= MIB


async def test_a_record_that_is_larger_than_an_event_is_sent_alone(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    put(aws, b"a", b"x" * MIB, b"b")
    events = await subscribe()
    await events.data(3)
    sizes = [len(event["Records"]) for event in events.received if event["Records"]]
    assert sizes == [1, 1, 1]


# --- faults on demand -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("cut", ClientPayloadError),
        ("exception_event", EventStreamError),
        ("key", EventStreamError),
        ("corrupt", ChecksumMismatch),
    ],
)
async def test_a_fault_ends_a_subscription(
    aws: EmbeddedAws, subscribe: Subscribe, kind: Any, error: type[Exception]
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    await events.first(1)
    aws.fault(kind, count=1)
    put(aws, b"a")
    with pytest.raises(error):
        await events.end()
    assert events.data_now == []


@pytest.mark.parametrize("seconds", [0.0, 0.1])
async def test_a_stalled_subscription_sends_nothing_until_the_stall_ends(
    aws: EmbeddedAws, subscribe: Subscribe, seconds: float
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    await events.first(1)
    aws.fault("stall", count=1, latency_seconds=seconds)
    put(aws, b"a", b"b")
    if seconds:
        assert await events.data(2) == [b"a", b"b"]
    else:  # it lasts until the subscription's end
        assert await events.silence() == 1
        assert events.data_now == []
