"""Model registered consumers. Serve requests about them, and begin subscriptions."""

from __future__ import annotations

from typing import Any

from kinesumer.testing.kinesis import requests as rq
from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.testing.kinesis.records import index_of
from kinesumer.testing.kinesis.requests import (
    in_use,
    invalid_argument,
    limit_exceeded,
    not_found,
)
from kinesumer.testing.kinesis.streams import Stream
from kinesumer.testing.kinesis.subscription import Consumer, Subscription


def stream_of_consumer(arn: str) -> str:
    """Return the ARN of the stream in a consumer's ARN."""
    return arn.partition("/consumer/")[0]


def current_consumers(stream: Stream, now: float) -> list[Consumer]:
    """Return a stream's registered consumers, ordered by name."""
    for name in [c.name for c in stream.consumers.values() if now >= c.gone_at]:
        del stream.consumers[name]
    return [stream.consumers[name] for name in sorted(stream.consumers)]


def find_consumer(stream: Stream, request: rq.ConsumerRequest, now: float) -> Consumer:
    """Return a consumer. Raise AwsError if it isn't registered."""
    consumers = current_consumers(stream, now)
    name, arn = request.consumer_name, request.consumer_arn
    if not (name or arn):
        raise invalid_argument("ConsumerName or ConsumerARN is needed.")
    for consumer in consumers:
        if name == consumer.name or arn == consumer.arn:
            return consumer
    raise not_found(
        f"Consumer {name or arn} under stream {stream.name} under account "
        f"{stream.account} not found."
    )


def register(
    stream: Stream, request: rq.RegisterStreamConsumer, now: float
) -> dict[str, Any]:
    stream.require_open()
    consumers, limits = current_consumers(stream, now), stream.limits
    name = request.consumer_name
    if name in stream.consumers:
        raise in_use(
            f"Consumer {name} under stream {stream.name} already exists.",
        )
    if len(consumers) >= stream.max_consumers:
        raise limit_exceeded(
            f"Stream {stream.name} under account {stream.account} already has "
            f"{stream.max_consumers} consumers."
        )
    creating = [c for c in consumers if c.status(now) == "CREATING"]
    if len(creating) >= limits.creating_consumers_per_stream:
        raise limit_exceeded(
            f"Stream {stream.name} under account {stream.account} already has "
            f"{limits.creating_consumers_per_stream} consumers in the state CREATING."
        )
    active_at = now + limits.consumer_creating_seconds
    consumer = Consumer(stream.arn, name, now, active_at, tags=request.tags)
    stream.consumers[name] = consumer
    return {"Consumer": consumer.describe(now)}


def describe_consumer(
    stream: Stream, request: rq.ConsumerRequest, now: float
) -> dict[str, Any]:
    consumer = find_consumer(stream, request, now)
    description = {**consumer.describe(now), "StreamARN": stream.arn}
    return {"ConsumerDescription": description}


def list_consumers(
    stream: Stream, request: rq.ListStreamConsumers, now: float
) -> dict[str, Any]:
    consumers = current_consumers(stream, now)
    left = [c for c in consumers if c.name > request.next_token]
    page = left[: request.max_results]
    answer: dict[str, Any] = {"Consumers": [c.describe(now) for c in page]}
    if len(page) < len(left):
        answer["NextToken"] = page[-1].name
    return answer


def deregister(
    stream: Stream, request: rq.ConsumerRequest, now: float
) -> dict[str, Any]:
    consumer = find_consumer(stream, request, now)
    consumer.gone_at = now + stream.limits.consumer_deleting_seconds
    for subscription in consumer.subscriptions.values():
        subscription.end_with("ResourceNotFoundException", "Consumer was deregistered.")
    return {}


def require_no_consumers(stream: Stream, now: float) -> None:
    """Raise ResourceInUseException if a stream has registered consumers."""
    if current_consumers(stream, now):
        raise in_use(
            f"Stream {stream.name} under account {stream.account} has registered "
            "consumers: deregister them, or set EnforceConsumerDeletion.",
        )


def subscribe(
    stream: Stream, request: rq.SubscribeToShard, now: float, skew: float = 0.0
) -> Subscription:
    """Return a new subscription, which replaces the consumer's former one.

    The clock of the server that answers is ``skew`` seconds fast.
    """
    stream.require_open()
    consumer = find_consumer(stream, request, now)
    limits, shard = stream.limits, stream.shard(request.shard_id)
    calls = consumer.calls.setdefault(
        shard.shard_id, Bucket(limits.subscribe_calls_per_second)
    )
    if not calls.take(1, now):
        raise limit_exceeded(
            f"Rate exceeded for consumer {consumer.name} and shard {shard.shard_id}."
        )
    status = consumer.status(now)
    if status != "ACTIVE":
        raise in_use(f"Consumer {consumer.name} is {status}.")
    former = consumer.subscriptions.get(shard.shard_id)
    if former is not None:
        if now - former.began_at < limits.subscription_replace_seconds:
            raise in_use(
                f"Another active subscription exists for consumer {consumer.name} and "
                f"shard {shard.shard_id}.",
            )
    position = request.starting_position
    if position.type.endswith("SEQUENCE_NUMBER") and position.sequence_number is None:
        raise invalid_argument(f"SequenceNumber is needed for {position.type}.")
    index = index_of(
        stream,
        shard,
        position.type,
        position.sequence_number,
        position.timestamp,
        now + skew,
    )
    if former is not None:
        former.end_with("ResourceInUseException", "Another subscription replaced it.")
    subscription = Subscription(stream, shard, index, now)
    consumer.subscriptions[shard.shard_id] = subscription
    return subscription
