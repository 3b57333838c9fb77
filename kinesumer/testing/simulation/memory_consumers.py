"""Registered consumers of streams in memory, and their subscriptions to shards."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer.aws.kinesis_errors import SubscriptionInUseError
from kinesumer.errors import (
    FatalError,
    SourceThrottledError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.testing.embedded_aws.kinesis.limits import Bucket, Limits
from kinesumer.testing.embedded_aws.kinesis.subscription import (
    Step,
    encode_frame,
    exception_frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesumer.testing.simulation.memory_kinesis import (
        MemoryKinesis,
        MemoryShard,
        MemoryStream,
    )

LIMITS = Limits(consumer_creating_seconds=2)
EVENT_RECORDS = 1000
_EVENT = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
# Times are sums of floats: a record is due even if it is this much too young.
TICK_SECONDS = 1e-5


@dataclass(eq=False)
class MemoryConsumer:
    """A registered consumer of a stream."""

    stream: MemoryStream
    name: str
    created_at: int  # seconds since 1970
    # By shard id: the last subscription, and the rate of the calls.
    subscriptions: dict[str, MemorySubscription] = field(default_factory=dict)
    calls: dict[str, Bucket] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """The consumer's ARN, which ends with the time of its creation."""
        return f"{self.stream.arn}/consumer/{self.name}:{self.created_at}"


class MemoryConsumers:
    """The registered consumers of all streams of a MemoryKinesis.

    A subscription ends after ``subscription_seconds``.
    """

    def __init__(
        self, kinesis: MemoryKinesis, subscription_seconds: float = 300.0
    ) -> None:
        self.kinesis = kinesis
        self.subscription_seconds = subscription_seconds
        self._by_name: dict[tuple[str, str], MemoryConsumer] = {}
        self._created = 0
        # By ARN: the consumers to which clients can subscribe.
        self._by_arn: dict[str, MemoryConsumer] = {}
        self._deregistered: list[MemoryConsumer] = []

    def call(
        self, name: str, operation: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Answer a call about a stream's consumer.

        Return None if the consumer does not exist, or already exists. Raises
        StreamMissingError.
        """
        stream = self.kinesis.stream(name)
        if operation == "ListStreamConsumers":
            found = [c for c in self._by_name.values() if c.stream is stream]
            return {"Consumers": [self._description(c) for c in found]}
        key = stream.arn, str(arguments["ConsumerName"])
        consumer = self._by_name.get(key)
        if consumer is not None and consumer.stream is not stream:
            consumer = None  # the stream was deleted and created again
        if operation == "RegisterStreamConsumer" and consumer is None:
            wall = int(self.kinesis.clock.wall())
            self._created = max(wall, self._created + 1)
            consumer = MemoryConsumer(stream, key[1], self._created)
            self._by_name[key] = self._by_arn[consumer.arn] = consumer
            return {}
        if operation != "DescribeStreamConsumer" or consumer is None:
            return None
        return {"ConsumerDescription": self._description(consumer)}

    def _description(self, consumer: MemoryConsumer) -> dict[str, Any]:
        return {
            "ConsumerName": consumer.name,
            "ConsumerARN": consumer.arn,
            "ConsumerStatus": "ACTIVE" if self._is_active(consumer) else "CREATING",
            "ConsumerCreationTimestamp": datetime.fromtimestamp(
                consumer.created_at, UTC
            ),
        }

    def _is_active(self, consumer: MemoryConsumer) -> bool:
        age = self.kinesis.clock.wall() - consumer.created_at
        return age >= LIMITS.consumer_creating_seconds

    def deregister(self, name: str, consumer_name: str) -> None:
        """Deregister a consumer, if it exists, and end its subscriptions."""
        key = self.kinesis.stream(name).arn, consumer_name
        if (consumer := self._by_name.pop(key, None)) is not None:
            self._deregistered.append(self._by_arn.pop(consumer.arn))
            for subscription in consumer.subscriptions.values():
                subscription.end_with("ResourceNotFoundException")

    def revive(self) -> None:
        """Let clients subscribe to deregistered consumers again.

        A client that learns late of a deregistration would end at any later time.
        """
        self._by_arn |= {consumer.arn: consumer for consumer in self._deregistered}

    def subscribe(
        self,
        name: str,
        arn: str,
        shard_id: str,
        starting: Mapping[str, Any],
        skew: float = 0.0,
    ) -> MemorySubscription:
        """Begin a subscription, which replaces the consumer's former one.

        The clock of the server that answers is ``skew`` seconds fast. Raises
        FatalError, SubscriptionInUseError, SourceThrottledError, and what
        ``MemorySource.get_iterator_now()`` raises.
        """
        stream, now = self.kinesis.stream(name), self.kinesis.clock.now()
        shard = stream.shard(shard_id)
        consumer = self._by_arn.get(arn)
        if consumer is None or consumer.stream is not stream:
            raise FatalError(f"{arn} doesn't exist; start the client again")
        bucket = Bucket(LIMITS.subscribe_calls_per_second)
        if not consumer.calls.setdefault(shard_id, bucket).take(1, now):
            raise SourceThrottledError(f"too many subscriptions of {arn} to {shard_id}")
        former = consumer.subscriptions.get(shard_id)
        if former is not None:
            if now - former.began_at < LIMITS.subscription_replace_seconds:
                raise SubscriptionInUseError(f"{arn} is subscribed to {shard_id}")
        source = self.kinesis.source(name)
        index = source.index_of(shard, _position(starting), skew)
        if former is not None:
            former.end_with("ResourceInUseException")
        subscription = MemorySubscription(self, stream, shard, index)
        consumer.subscriptions[shard_id] = subscription
        return subscription


def _position(starting: Mapping[str, Any]) -> Position | Start:
    """Return what a StartingPosition means."""
    match starting["Type"]:
        case "AFTER_SEQUENCE_NUMBER":
            return Position(starting["SequenceNumber"])
        case "AT_SEQUENCE_NUMBER":
            return Position(starting["SequenceNumber"], 0)
    return Start(type=starting["Type"], timestamp=starting.get("Timestamp"))


class MemorySubscription:
    """One subscription to a shard. ``step()`` returns the next frame to send."""

    def __init__(
        self,
        consumers: MemoryConsumers,
        stream: MemoryStream,
        shard: MemoryShard,
        index: int,
    ) -> None:
        self._kinesis = consumers.kinesis
        self.began_at: float = self._kinesis.clock.now()
        self.ends_at: float = self.began_at + consumers.subscription_seconds
        self.shard = shard
        # A function to call if the next step may have changed.
        self.wake: Callable[[], None] = lambda: None
        self._stream = stream
        self._index = index
        self._fault = ""
        self._idle_until = self.began_at
        self._bytes = Bucket(LIMITS.pushed_bytes_per_second)

    def end_with(self, code: str) -> None:
        """End the subscription with an exception."""
        self._fault = code
        self.wake()

    def step(self) -> Step:
        """Return the next frame, or how long to wait for it."""
        now, wall = self._kinesis.clock.now(), self._kinesis.clock.wall()
        if not self._exists():
            self._fault = "ResourceNotFoundException"
        if now < self._stream.key_fails_until:
            self._fault = "KMSDisabledException"
        if self._fault:
            return Step(exception_frame(self._fault, "The end."), is_last=True)
        if now >= self.ends_at:
            return Step(is_last=True)
        log = self.shard.log
        first = max(self._index, self.shard.trimmed)
        due = self.shard.place_since(wall - LIMITS.delivery_seconds + TICK_SECONDS)
        last = self._event_end(first, min(due, first + EVENT_RECORDS))
        if last > first and not self._bytes.holds(0, now):
            return Step(wait_seconds=0.01)
        at_end = self.shard.closed and first == len(log)
        if last > first or at_end or now >= self._idle_until:
            return self._event(first, max(first, last))
        wait = min(self._idle_until, self.ends_at) - now
        if first < len(log):
            wait = min(wait, log[first].arrived_at + LIMITS.delivery_seconds - wall)
        return Step(wait_seconds=max(TICK_SECONDS, wait))

    def _exists(self) -> bool:
        try:
            return self._kinesis.stream(self._stream.arn) is self._stream
        except StreamMissingError:
            return False

    def _event_end(self, first: int, last: int) -> int:
        size = 0
        for index in range(first, last):
            size += len(self.shard.log[index].data)
            if size > LIMITS.event_bytes and index > first:
                return index
        return last

    def _event(self, first: int, last: int) -> Step:
        clock, log = self._kinesis.clock, self.shard.log
        self._index = last
        self._idle_until = clock.now() + LIMITS.idle_event_seconds
        stored = log[first:last]
        self._bytes.spend(sum(len(record.data) for record in stored))
        event: dict[str, object] = {
            "Records": [
                {
                    "SequenceNumber": record.sequence_number,
                    "Data": b64encode(record.data).decode(),
                    "PartitionKey": record.partition_key,
                    "ApproximateArrivalTimestamp": record.arrived_at,
                }
                for record in stored
            ],
            "MillisBehindLatest": 0,
        }
        if last < len(log) and stored:
            behind = 1000 * (clock.wall() - stored[-1].arrived_at)
            event["MillisBehindLatest"] = int(behind)
        is_last = self.shard.closed and last == len(log)
        if is_last:
            event["ChildShards"] = [
                {
                    "ShardId": child.shard.shard_id,
                    "ParentShards": child.shard.parents,
                    "HashKeyRange": {
                        "StartingHashKey": str(child.shard.first_hash),
                        "EndingHashKey": str(child.shard.last_hash),
                    },
                }
                for child in self.shard.children
            ]
        else:
            event["ContinuationSequenceNumber"] = self._continuation()
        return Step(encode_frame(_EVENT, msgspec.json.encode(event)), is_last)

    def _continuation(self) -> str:
        """Return the highest number that is not after the next record's number."""
        log, index = self.shard.log, self._index
        if index < len(log):
            return str(int(log[index].sequence_number) - 1)
        return str(self._stream.next_number - 1)
