"""Kinesis in memory, as the library's ports: the model under a clock of choice."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from kinesumer.aws.errors import AwsFailure, failure_of, refusal
from kinesumer.aws.kinesis_errors import (
    NOT_FOUND,
    SUBSCRIBE,
    ConsumerStateError,
    kinesis_error,
)
from kinesumer.aws.polling import PollingSource, iterator_arguments, timestamp_errors
from kinesumer.errors import (
    FatalError,
    KeyUnavailableError,
    KinesumerError,
    ShardThrottledError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Shard, Start, StreamInfo
from kinesumer.ports import Clock, Reservation
from kinesumer.testing.kinesis.limits import MIB, UNTHROTTLED, Bucket, Limits
from kinesumer.testing.kinesis.records import ReadPage
from kinesumer.testing.kinesis.requests import AwsError
from kinesumer.testing.kinesis.service import (
    STREAM_OPERATIONS,
    Caller,
    Kinesis,
    stream_arn,
)
from kinesumer.testing.kinesis.streams import AUTO, GrowingNumbers, Stream
from kinesumer.testing.kinesis.subscription import Consumer
from kinesumer.wire.records import JSON_RECORD_BYTES

T = TypeVar("T")

# AWS's rates of subscriptions and their events. Tests put and list without limits.
# Records expire only by ``expire()``, so that a test knows which are left.
SUBSCRIPTION_LIMITS = replace(
    UNTHROTTLED,
    subscribe_calls_per_second=1,
    pushed_bytes_per_second=2 * MIB,
    consumer_creating_seconds=2,
    expiry_seconds=math.inf,
)


class MemoryKinesis:
    """Kinesis in memory. ``reads_per_second`` limits each shard; 0 means no limit."""

    def __init__(
        self,
        clock: Clock,
        *,
        account: str = "123456789012",
        region: str = "us-east-1",
        reads_per_second: float | None = None,
        limits: Limits = SUBSCRIPTION_LIMITS,
    ) -> None:
        self.clock = clock
        self.throttled = 0
        self.service: Kinesis = Kinesis(limits)
        self.caller: Caller = Caller(account, region)
        # By stream. A stream that is created again continues the numbers.
        self._numbers: defaultdict[str, GrowingNumbers] = defaultdict(GrowingNumbers)
        # By stream: until then, KMS refuses the use of the stream's key.
        self._key_fails_until: dict[str, float] = {}
        self._deregistered: list[tuple[Stream, Consumer]] = []
        if reads_per_second is None:
            reads_per_second = Limits().read_calls_per_second
        self.reads_per_second = reads_per_second

    @property
    def reads_per_second(self) -> float:
        """The number of reads per second that each shard allows."""
        return self.service.limits.read_calls_per_second

    @reads_per_second.setter
    def reads_per_second(self, reads: float) -> None:
        rate = reads or math.inf
        limits = replace(self.service.limits, read_calls_per_second=rate)
        self.service.limits = limits
        for stream in self.service.streams.values():
            stream.limits = limits
            for shard in stream.shards.values():
                shard.read_calls = Bucket(rate)

    def create_stream(
        self, name: str, shards: int = 1, *, retention_hours: float = 24
    ) -> Stream:
        """Create an active stream whose shards have equal ranges of hash keys.

        It replaces a stream that has the same name.
        """
        caller, now, numbers = self.caller, self.clock.wall(), self._numbers[name]
        self.service.streams.pop(stream_arn(caller, name), None)
        # Only on-demand streams can be switched to AUTO.
        stream = self.service.create(
            caller, name, shards, now, mode="ON_DEMAND", numbers=numbers
        )
        stream.retention_hours = retention_hours
        return stream

    def delete_stream(self, name: str) -> None:
        """Delete a stream and its records."""
        stream = self.stream(name)
        self._numbers[name].first = stream.next_number
        self.service.delete(stream, self.clock.wall())

    def stream(self, name: str) -> Stream:
        """Return the stream with a name or ARN. Raises StreamMissingError."""
        arn = name if name.startswith("arn:") else stream_arn(self.caller, name)
        try:
            return self.service.stream(arn, self.clock.wall())
        except AwsError as error:
            raise StreamMissingError(
                f"the stream {name} doesn't exist; create it or correct its name"
            ) from error

    def put(
        self,
        name: str,
        data: bytes,
        partition_key: str = "",
        explicit_hash_key: int | None = None,
    ) -> tuple[str, str]:
        """Append a record; return its shard's id and its sequence number.

        With AUTO, the explicit hash key is the place that the service has chosen, and
        the partition key is ignored. By default, the open shards take turns.
        """
        stream = self.stream(name)
        if explicit_hash_key is None:
            shard = stream.choose(partition_key, None)
        else:
            shard = stream.route(explicit_hash_key)
        key = partition_key or None
        return shard.shard_id, stream.append(shard, data, key, self.clock.wall())

    def split(self, name: str, shard_id: str, at: int | None = None) -> list[str]:
        """Split an open shard, by default in the middle. Return the children's ids."""
        stream = self.stream(name)
        parent, at = stream.require_splittable(shard_id, at)
        stream.split(parent, at, self.clock.wall())
        return [child.shard_id for child in parent.children]

    def merge(self, name: str, shard_id: str, adjacent_id: str) -> str:
        """Merge two adjacent open shards. Return the child's id."""
        stream = self.stream(name)
        parents = stream.require_mergeable(shard_id, adjacent_id)
        stream.merge(*parents, self.clock.wall())
        return parents[0].children[0].shard_id

    def roll_over(self, name: str, shard_id: str) -> str:
        """Let an open shard have one child, as in a table's stream. Return its id."""
        stream = self.stream(name)
        parent = stream.shard(shard_id)
        stream.roll_over(parent, self.clock.wall())
        return parent.children[0].shard_id

    def expire(self, name: str, before: float) -> None:
        """Expire records older than a time, and shards closed before that time."""
        self.stream(name).expire(before)

    def apply_retention(self) -> None:
        """Expire the records in each stream that are older than its retention."""
        for stream in self.service.streams.values():
            stream.expire(stream.horizon(self.clock.wall()))

    def source(self, name: str) -> MemorySource:
        """Return a ports.StreamSource for the stream with a name or ARN."""
        return MemorySource(self, name)

    # --- faults ---

    def disable_key(self, name: str, seconds: float) -> None:
        """Let KMS refuse the use of a stream's key. Its subscriptions end."""
        self._key_fails_until[name] = self.clock.now() + seconds
        for consumer in self.stream(name).consumers.values():
            for subscription in consumer.subscriptions.values():
                subscription.end_with("KMSDisabledException", "The key is disabled.")

    def require_key(self, name: str) -> None:
        """Raise KeyUnavailableError while the stream's key can't be used."""
        failing_until = self._key_fails_until.get(self.stream(name).name, -math.inf)
        if failing_until > self.clock.now():
            raise KeyUnavailableError(f"the key of {name} is disabled; enable it")

    def deregister(self, name: str, consumer_name: str) -> None:
        """Deregister a consumer, if it exists, and end its subscriptions."""
        stream = self.stream(name)
        if consumer := stream.consumers.get(consumer_name):
            self._deregistered.append((stream, consumer))
            arguments = {"ConsumerName": consumer_name}
            with suppress(ConsumerStateError):  # it is being deregistered
                self.source(name).ask("DeregisterStreamConsumer", arguments)

    def revive(self) -> None:
        """Let clients subscribe to deregistered consumers again.

        A client that learns late of a deregistration would end at any later time.
        """
        for stream, consumer in self._deregistered:
            consumer.gone_at = math.inf
            # Another consumer may have its name, and is found first by that.
            stream.consumers[f"~{consumer.arn}"] = consumer


class MemorySource(PollingSource):
    """A ports.StreamSource for one stream of a MemoryKinesis."""

    def __init__(self, kinesis: MemoryKinesis, name: str) -> None:
        self.kinesis, self.name = kinesis, name

    async def call(self, act: Callable[[], T]) -> T:
        """Make a call at once. A subclass may send it over a network."""
        return act()

    async def describe(self) -> StreamInfo:
        """Return the stream as it is now. Raises StreamMissingError."""
        return await self.call(self.describe_now)

    async def list_shards(self) -> Sequence[Shard]:
        """Return every shard that hasn't expired."""
        return await self.call(self.list_shards_now)

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a connection at once, since the number of connections is unlimited."""
        return nullcontext()

    async def _place(self, shard_id: str, after: Position | Start) -> str:
        return await self.call(partial(self.get_iterator_now, shard_id, after))

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page. Raises ExpiredIteratorError, ShardThrottledError."""

        async def read(place: str) -> Page:
            page = await self.read_page(place, limit)
            if reservation is not None:
                await fit(reservation, page.wire_bytes)
            await self.arrival(page)
            return page

        return await self._read_confirmed(iterator, read)

    async def read_page(self, iterator: str, limit: int) -> Page:
        """Make the call of ``get_records()``. A subclass may change its answer."""
        return await self.call(partial(self.get_records_now, iterator, limit))

    async def arrival(self, page: Page) -> None:
        """Wait until a page has arrived. A subclass may let this take time."""

    # --- the same without a coroutine, for the simulator ---

    def describe_now(self) -> StreamInfo:
        """Return the stream as it is now. Raises StreamMissingError."""
        summary = self.ask("DescribeStreamSummary", {})["StreamDescriptionSummary"]
        return StreamInfo(
            summary["StreamARN"],
            summary["StreamStatus"],
            summary["StreamCreationTimestamp"],
            # A fraction of an hour is possible, since simulations take minutes.
            summary["RetentionPeriodHours"],
            self.kinesis.clock.wall(),
            summary["MaxRecordSizeInKiB"] * 1024,
            summary.get("RecordDistributionStrategy") != AUTO,
        )

    def list_shards_now(self) -> list[Shard]:
        """Return every shard that hasn't expired."""
        # Not by ListShards: encoding and decoding 10,000 shards takes 0.4 s.
        shards = self.kinesis.stream(self.name).shards.values()
        return [shard.shard for shard in shards]

    def get_iterator_now(
        self, shard_id: str, after: Position | Start, *, skew: float = 0.0
    ) -> str:
        """Return an iterator that expires in five minutes.

        The clock of the server that answers is ``skew`` seconds fast.
        """
        arguments = {"ShardId": shard_id, **iterator_arguments(after)}
        with timestamp_errors(arguments):
            answer = self.ask("GetShardIterator", arguments, skew=skew)
        return str(answer["ShardIterator"])

    def get_records_now(self, iterator: str, limit: int) -> Page:
        """Return the next page of a shard."""
        self.kinesis.require_key(self.name)
        arguments = {"ShardIterator": iterator, "Limit": limit}
        return _page(self.ask("GetRecords", arguments))

    def ask(
        self, operation: str, arguments: Mapping[str, object], **skew: float
    ) -> Any:
        """Return the response to a request. Raise the library's error for a refusal."""
        kinesis, (kind, _) = self.kinesis, STREAM_OPERATIONS[operation]
        arn = kinesis.stream(self.name).arn
        request = msgspec.convert({"StreamARN": arn, **arguments}, kind)
        now = kinesis.clock.wall()
        try:
            return kinesis.service.call(operation, request, kinesis.caller, now, **skew)
        except AwsError as error:
            shard_id = str(arguments.get("ShardId", ""))
            raise self.error_now(error, operation, shard_id) from error

    def error_now(
        self, error: AwsError, operation: str, shard_id: str = ""
    ) -> KinesumerError:
        """Return the library's error for an error of Kinesis."""
        stream = self.kinesis.stream(self.name)
        if error.code == NOT_FOUND and stream.status == "DELETING":
            return StreamMissingError(f"the stream {self.name} is being deleted; wait")
        if error.code == NOT_FOUND and operation == SUBSCRIBE:
            if shard_id in stream.shards:
                return FatalError(f"register it again, then start again: {error}")
        body = {"__type": error.code, "message": error.message}
        fault = failure_of(refusal(operation, 400, msgspec.json.encode(body)))
        made = kinesis_error(fault, operation, stream.arn, shard_id, _Unsigned())
        self.kinesis.throttled += isinstance(made, ShardThrottledError)
        return made


class _Unsigned:
    """The keys of calls in memory: ``aws.errors.CallKeys``. They are never refused."""

    def may_recover(self, _: AwsFailure) -> bool:
        """Return False."""
        return False

    def state(self) -> str:
        """Return an empty text, because nothing is wrong."""
        return ""


async def fit(reservation: Reservation, size: int) -> None:
    """Reserve exactly the memory of an answer, as its headers tell its size."""
    if reservation.covers(size):
        reservation.shrink(size)
    else:
        await reservation.grow(size)


def _page(page: ReadPage) -> Page:
    stored = page.records
    # Approximate length of the answer's body, which is JSON with base64 data.
    data_bytes = sum([len(record.data) for record in stored])
    size = data_bytes * 4 // 3 + JSON_RECORD_BYTES * len(stored)
    records = [
        Record(r.sequence_number, r.data, r.partition_key, r.arrived_at) for r in stored
    ]
    ended = page.children if page.iterator is None else ()
    children = tuple(it.shard._replace(ending_sequence_number=None) for it in ended)
    return Page(records, page.iterator, page.millis_behind, children, size)
