"""Test the events of subscriptions and their faults, with AWS's own client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientPayloadError
from botocore.eventstream import ChecksumMismatch

from kinesumer.testing import Limits
from kinesumer.testing.kinesis.subscription import Subscription
from kinesumer.wire.event_stream import decode_event, decode_frame
from tests.support.pushed_events import DELIVERY_SECONDS, Events, put

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.testing import EmbeddedAws

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


async def test_each_event_names_the_number_to_go_on_from(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws._state.kinesis.limits = Limits(event_bytes=10, delivery_seconds=0)
    aws.create_stream("orders")
    numbers = put(aws, *(b"record %d" % number for number in range(3)))
    events = await subscribe()
    sent = [event["ContinuationSequenceNumber"] for event in await events.first(3)]
    assert sent == numbers
    again = await subscribe(
        "AFTER_SEQUENCE_NUMBER", consumer="audit", SequenceNumber=sent[0]
    )
    assert await again.data(2) == [b"record 1", b"record 2"]


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


async def test_consumers_do_not_share_the_two_megabytes(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    put(aws, *[b"x" * (MIB // 2)] * 3)
    first, second = await subscribe(), await subscribe(consumer="audit")
    assert len(await first.data(3)) == len(await second.data(3)) == 3


async def test_a_record_that_is_larger_than_an_event_is_sent_alone(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    put(aws, b"a", b"x" * MIB, b"b")
    events = await subscribe()
    await events.data(3)
    sizes = [len(event["Records"]) for event in events.received if event["Records"]]
    assert sizes == [1, 1, 1]


async def test_expired_records_are_not_sent(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    put(aws, b"old")
    aws.advance(24 * 3600)
    put(aws, b"new")
    events = await subscribe()
    assert await events.data(1) == [b"new"]


# --- faults on demand -----------------------------------------------------------------


async def test_a_subscription_is_cut_in_the_middle_of_a_frame(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    await events.first(1)
    aws.fault("cut", count=1)
    put(aws, b"a")
    with pytest.raises(ClientPayloadError):
        await events.end()
    assert events.data_now == []


async def test_an_exception_event_ends_a_subscription(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    await events.first(1)
    aws.fault("exception_event", count=1)
    put(aws, b"a")
    assert await events.failure() == "InternalFailureException"
    assert events.data_now == []


async def test_a_corrupt_frame_has_a_wrong_checksum(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    await events.first(1)
    aws.fault("corrupt", count=1)
    put(aws, b"a")
    with pytest.raises(ChecksumMismatch):
        await events.end()
    assert events.data_now == []


async def test_a_stalled_subscription_sends_nothing_but_stays_open(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    await events.first(1)
    aws.fault("stall", count=1)
    put(aws, b"a")
    assert await events.silence() == 1
    assert events.data_now == []


async def test_a_stall_ends_after_its_time(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    await events.first(1)
    aws.fault("stall", count=1, latency_seconds=0.1)
    put(aws, b"a", b"b")
    assert await events.data(2) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [
        ("throttle", "LimitExceededException", 400),
        ("error", "InternalFailureException", 500),
    ],
)
async def test_a_renewal_is_refused_and_the_open_subscription_goes_on(
    aws: EmbeddedAws,
    subscribe: Subscribe,
    refused: Any,
    kind: Any,
    code: str,
    status: int,
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    aws.advance(5)
    aws.fault(kind, operation="SubscribeToShard", count=1)
    answer = await refused(subscribe())
    assert (answer.code, answer.status) == (code, status)
    put(aws, b"a")
    assert await events.data(1) == [b"a"]
    aws.advance(5)
    renewed = await subscribe()
    assert await renewed.data(1) == [b"a"]


async def test_a_fault_of_one_shard_spares_the_others(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders", 2)
    other = "shardId-000000000001"
    spared, struck = await subscribe(), await subscribe(shard=other)
    await spared.first(1)
    await struck.first(1)
    aws.fault("exception_event", shard=other)
    put(aws, b"a")
    aws.put("orders", b"b", explicit_hash_key=(1 << 128) - 1)
    aws.advance(DELIVERY_SECONDS)
    assert await struck.failure() == "InternalFailureException"
    assert await spared.data(1) == [b"a"]


async def test_the_journal_has_one_request_for_each_subscription(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    arn = aws.create_stream("orders")
    events = await subscribe()
    await events.first(1)
    put(aws, b"a")
    await events.data(1)
    [entry] = [e for e in aws.journal.latest if e.operation == "SubscribeToShard"]
    assert (entry.status, entry.shard, entry.error) == (200, SHARD, None)
    assert entry.resource.startswith(f"{arn}/consumer/billing:")
