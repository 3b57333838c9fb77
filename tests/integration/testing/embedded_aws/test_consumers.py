"""Test registered consumers, their subscriptions and the events that these push."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws, Limits
from kinesumer.testing.kinesis.subscription import Subscription
from kinesumer.wire.event_stream import decode_event, decode_frame
from tests.integration.testing.embedded_aws.conftest import refused
from tests.support.subscriptions import DELIVERY_SECONDS, Events, put

Subscribe = Callable[..., Awaitable[Events]]
SHARD = "shardId-000000000000"
MIB = 1 << 20


async def register(
    kinesis: Any, aws: EmbeddedAws, stream: str, *names: str
) -> dict[str, Any]:
    """Register consumers, one in each second. Return the last one."""
    consumer: dict[str, Any] = {}
    for name in names:
        aws.advance(1)
        answer = await kinesis.register_stream_consumer(
            StreamARN=stream, ConsumerName=name
        )
        consumer = answer["Consumer"]
    return consumer


# --- registration --------------------------------------------------------------------


async def test_a_consumer_is_in_creation_before_it_is_active(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.limits = Limits(consumer_creating_seconds=5)
    stream = aws.create_stream("orders")
    made = await register(kinesis, aws, stream, "billing")
    assert made["ConsumerStatus"] == "CREATING"
    call = kinesis.subscribe_to_shard(
        ConsumerARN=made["ConsumerARN"],
        ShardId="shardId-000000000000",
        StartingPosition={"Type": "LATEST"},
    )
    assert (await refused(call)).code == "ResourceInUseException"
    aws.advance(5)
    answer = await kinesis.describe_stream_consumer(ConsumerARN=made["ConsumerARN"])
    assert answer["ConsumerDescription"]["ConsumerStatus"] == "ACTIVE"


@pytest.mark.parametrize(("most", "creating_seconds"), [(20, 0), (5, 60)])
async def test_a_stream_has_twenty_consumers_at_most_and_five_in_creation(
    aws: EmbeddedAws, kinesis: Any, most: int, creating_seconds: float
) -> None:
    aws.limits = Limits(consumer_creating_seconds=creating_seconds)
    stream, other = aws.create_stream("orders"), aws.create_stream("payments")
    await register(kinesis, aws, stream, *(f"app-{n}" for n in range(most)))
    answer = await refused(register(kinesis, aws, stream, "one-more"))
    assert answer.code == "LimitExceededException"
    await register(kinesis, aws, other, "one-more")
    aws.advance(creating_seconds)
    if not creating_seconds:
        await kinesis.deregister_stream_consumer(StreamARN=stream, ConsumerName="app-7")
    await register(kinesis, aws, stream, "one-more")


async def test_a_stream_counts_its_consumers(aws: EmbeddedAws, kinesis: Any) -> None:
    stream = aws.create_stream("orders")

    async def count() -> int:
        answer = await kinesis.describe_stream_summary(StreamARN=stream)
        return int(answer["StreamDescriptionSummary"]["ConsumerCount"])

    assert await count() == 0
    await register(kinesis, aws, stream, "billing", "audit")
    assert await count() == 2
    await kinesis.deregister_stream_consumer(StreamARN=stream, ConsumerName="audit")
    assert await count() == 1
    aws.delete_stream("orders")
    aws.create_stream("orders")
    assert await count() == 0


# --- looking for consumers -----------------------------------------------------------


async def test_consumers_are_listed_in_pages(aws: EmbeddedAws, kinesis: Any) -> None:
    stream, other = aws.create_stream("orders"), aws.create_stream("payments")
    await register(kinesis, aws, stream, *"cabed")
    await register(kinesis, aws, other, "x")
    pages: list[list[str]] = []
    token: dict[str, str] = {}
    while token or not pages:
        answer = await kinesis.list_stream_consumers(
            StreamARN=stream, MaxResults=2, **token
        )
        pages.append([consumer["ConsumerName"] for consumer in answer["Consumers"]])
        token = {"NextToken": answer["NextToken"]} if "NextToken" in answer else {}
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


# --- the end of a consumer -----------------------------------------------------------


async def test_a_deregistered_consumer_is_gone_after_a_while(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.limits = Limits(consumer_deleting_seconds=5)
    stream = aws.create_stream("orders")
    made = await register(kinesis, aws, stream, "billing")
    which = {"ConsumerARN": made["ConsumerARN"]}
    await kinesis.deregister_stream_consumer(**which)
    answer = await kinesis.describe_stream_consumer(**which)
    assert answer["ConsumerDescription"]["ConsumerStatus"] == "DELETING"
    answer = await refused(register(kinesis, aws, stream, "billing"))
    assert answer.code == "ResourceInUseException"
    aws.advance(5)
    call = kinesis.describe_stream_consumer(**which)
    assert (await refused(call)).code == "ResourceNotFoundException"
    again = await register(kinesis, aws, stream, "billing")
    assert again["ConsumerARN"] != made["ConsumerARN"]


async def test_a_stream_with_consumers_is_deleted_with_them_on_request(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    stream = aws.create_stream("orders")
    made = await register(kinesis, aws, stream, "billing")
    await kinesis.delete_stream(StreamName="orders", EnforceConsumerDeletion=True)
    aws.advance(1)
    assert aws.create_stream("orders") == stream
    answer = await kinesis.list_stream_consumers(StreamARN=stream)
    assert answer["Consumers"] == []
    call = kinesis.describe_stream_consumer(ConsumerARN=made["ConsumerARN"])
    assert (await refused(call)).code == "ResourceNotFoundException"


# --- one subscription for each consumer and shard -------------------------------------


async def test_a_subscription_is_not_replaced_in_its_first_five_seconds(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    former = await subscribe()
    await former.first(1)
    aws.advance(4.9)
    answer = await refused(subscribe())
    assert (answer.code, answer.status) == ("ResourceInUseException", 400)
    put(aws, b"a")
    assert await former.data(1) == [b"a"]


# --- the end of a subscription --------------------------------------------------------


async def test_a_subscription_ends_after_five_minutes_without_an_error(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    put(aws, b"a")
    events = await subscribe()
    await events.data(1)
    aws.advance(299)
    [*_, last] = await events.first(2)
    aws.advance(1)
    await events.end()
    put(aws, b"b")
    renewed = await subscribe(
        "AFTER_SEQUENCE_NUMBER", SequenceNumber=last["ContinuationSequenceNumber"]
    )
    assert await renewed.data(1) == [b"b"]


# --- calls ----------------------------------------------------------------------------


async def test_one_call_a_second_is_permitted_for_each_consumer_and_shard(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders", 2)
    await subscribe()
    assert (await refused(subscribe())).code == "LimitExceededException"
    await subscribe(shard="shardId-000000000001")
    await subscribe(consumer="audit")
    aws.advance(1)
    assert (await refused(subscribe())).code == "ResourceInUseException"
    aws.advance(0.9)  # a refused call counts, too
    assert (await refused(subscribe())).code == "LimitExceededException"


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
    aws.limits = Limits(event_bytes=10, delivery_seconds=0)
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
