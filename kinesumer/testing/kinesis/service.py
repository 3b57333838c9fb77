"""Serve Kinesis requests, each for one account and region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from kinesumer.model.streams import CONSUMER_ARN
from kinesumer.testing.kinesis import consumers, operations, records
from kinesumer.testing.kinesis import requests as rq
from kinesumer.testing.kinesis.limits import Bucket, Limits
from kinesumer.testing.kinesis.requests import (
    AwsError,
    ListingToken,
    ShardIterator,
    decode_request,
    in_use,
    invalid_argument,
    invalid_request,
    limit_exceeded,
    not_found,
    resource_arn,
)
from kinesumer.testing.kinesis.streams import BY_KEY, AwsNumbers, Stream
from kinesumer.testing.kinesis.subscription import Subscription

Answer = dict[str, Any] | records.ReadPage | Subscription
# The operations with the parameter DryRun.
DRY_RUNS = frozenset(
    {"GetRecords", "GetShardIterator", "PutRecord", "PutRecords", "SubscribeToShard"}
)


class Caller(NamedTuple):
    """The account and region of a request."""

    account: str
    region: str


class Kinesis:
    """All streams of all accounts and regions."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.streams: dict[str, Stream] = {}
        self._with_advantage: set[Caller] = set()  # that have On-demand Advantage
        self._gone_at: dict[str, float] = {}
        self._control: dict[tuple[Caller, str], Bucket] = {}

    def target(self, request: rq.AnyRequest, caller: Caller) -> tuple[str, str | None]:
        """Return the ARN of a request's stream (or ``*``), and its shard or None."""
        if not isinstance(request, rq.Request):
            return "*", None
        if isinstance(request, rq.GetRecords):
            iterator = ShardIterator.decode(request.shard_iterator)
            return request.stream_arn or iterator.stream_arn, iterator.shard_id
        if isinstance(request, rq.ListShards) and request.next_token:
            return ListingToken.decode(request.next_token).stream_arn, None
        shard_id = getattr(request, "shard_id", None)
        if isinstance(request, rq.ConsumerRequest) and request.consumer_arn:
            if not CONSUMER_ARN.fullmatch(request.consumer_arn):
                raise invalid_request(
                    f"{request.consumer_arn!r} is not the ARN of a consumer."
                )
            return request.consumer_arn, shard_id
        if isinstance(request, rq.ResourceRequest):
            _require_arn(consumers.stream_of_consumer(request.resource_arn))
            return request.resource_arn, None
        return _arn(request, caller), shard_id

    def call(
        self,
        operation: str,
        request: rq.AnyRequest,
        caller: Caller,
        now: float,
        **skew: float,
    ) -> Answer:
        """Return the response to a request. Raise AwsError if it is refused.

        With ``skew=``, the clock of the server that answers is so many seconds fast.
        """
        self._expire(now)
        self._throttle_control(operation, caller, now)
        if not isinstance(request, rq.Request):
            return self._call_of_account(request, caller)
        if isinstance(request, rq.CreateStream):
            return self._create(request, caller, now)
        target = self.target(request, caller)[0]
        stream = self.stream(consumers.stream_of_consumer(target), now)
        if isinstance(request, rq.DeleteStream):
            if not request.enforce_consumer_deletion:
                consumers.require_no_consumers(stream, now)
            self.delete(stream, now)
            return {}
        if request.dry_run and operation in DRY_RUNS:
            if isinstance(request, rq.ConsumerRequest):
                consumers.find_consumer(stream, request, now)
            raise AwsError("DryRunOperationException", "The request would succeed.")
        _, handle = STREAM_OPERATIONS[operation]
        return handle(stream, request, now, **skew)

    def stream(self, arn: str, now: float) -> Stream:
        """Return a stream. Raise ResourceNotFoundException if it doesn't exist."""
        stream = self.streams.get(arn)
        if stream is None:
            account, name = arn.split(":")[4], arn.rpartition("/")[2]
            raise not_found(f"Stream {name} under account {account} not found.")
        stream.settle(now)
        stream.apply_retention(now)
        return stream

    def create(
        self,
        caller: Caller,
        name: str,
        shards: int,
        now: float,
        *,
        mode: str = "PROVISIONED",
        max_record_kib: int = 1024,
        distribution: str = BY_KEY,
        numbers: AwsNumbers | None = None,
    ) -> Stream:
        """Create a stream. Raise AwsError if the name is taken or a limit exceeded."""
        self._expire(now)
        operations.require_distribution(mode, distribution)
        arn = stream_arn(caller, name)
        if arn in self.streams:
            raise in_use(
                f"Stream {name} under account {caller.account} already exists.",
            )
        used, limit = self._open_shards(caller), self.limits.shards_per_account
        if used + shards > limit:
            raise limit_exceeded(
                "This request would exceed the shard limit for the account "
                f"{caller.account} in {caller.region}. Current shard count for the "
                f"account: {used}. Limit: {limit}. Number of additional shards that "
                f"would have resulted from this request: {shards}."
            )
        stream = Stream(arn, shards, now, self.limits, mode=mode, numbers=numbers)
        stream.max_record_kib = operations.record_kib(max_record_kib)
        stream.distribution = distribution
        stream.has_advantage = caller in self._with_advantage
        self.streams[arn] = stream
        stream.settle(now)
        return stream

    def delete(self, stream: Stream, now: float) -> None:
        """Begin to delete a stream. It is gone after ``limits.deleting_seconds``."""
        stream.delete()
        self._gone_at[stream.arn] = now + self.limits.deleting_seconds
        self._expire(now)

    def key_of(self, resource: str) -> str | None:
        """Return the ARN of the key that encrypts a stream, given an ARN."""
        stream = self.streams.get(consumers.stream_of_consumer(resource))
        if stream is None or stream.key_id is None:
            return None
        if stream.key_id.startswith("arn:"):
            return stream.key_id
        _, partition, _, region, account, _ = stream.arn.split(":")
        return f"arn:{partition}:kms:{region}:{account}:key/{stream.key_id}"

    def wake_subscriptions(self) -> None:
        """Let all subscriptions look at the time again."""
        for stream in self.streams.values():
            stream.wake_subscriptions()

    def _streams(self, caller: Caller) -> list[Stream]:
        prefix = stream_arn(caller, "")
        return [s for arn, s in self.streams.items() if arn.startswith(prefix)]

    def _open_shards(self, caller: Caller) -> int:
        return sum(len(stream.open) for stream in self._streams(caller))

    def _expire(self, now: float) -> None:
        for arn in [arn for arn, at in self._gone_at.items() if now >= at]:
            del self._gone_at[arn], self.streams[arn]

    def _throttle_control(self, operation: str, caller: Caller, now: float) -> None:
        rate = self.limits.control_calls_per_second.get(operation)
        if rate is None:
            return
        bucket = self._control.setdefault((caller, operation), Bucket(rate))
        if not bucket.take(1, now):
            raise limit_exceeded(
                f"Rate exceeded for {operation} under account {caller.account}."
            )

    def _call_of_account(self, request: rq.AccountRequest, caller: Caller) -> Answer:
        if isinstance(request, rq.DescribeLimits):
            return self._describe_limits(caller)
        if isinstance(request, rq.ListStreams):
            return self._list_streams(request, caller)
        if isinstance(request, rq.UpdateAccountSettings):
            status = request.minimum_throughput_billing_commitment.status
            self._set_advantage(caller, on=status == "ENABLED")
        status = "ENABLED" if caller in self._with_advantage else "DISABLED"
        return {"MinimumThroughputBillingCommitment": {"Status": status}}

    def _set_advantage(self, caller: Caller, *, on: bool) -> None:
        (self._with_advantage.add if on else self._with_advantage.discard)(caller)
        for stream in self._streams(caller):
            stream.has_advantage = on

    def _describe_limits(self, caller: Caller) -> Answer:
        modes = [stream.mode for stream in self._streams(caller)]
        return {
            "ShardLimit": self.limits.shards_per_account,
            "OpenShardCount": self._open_shards(caller),
            "OnDemandStreamCount": modes.count("ON_DEMAND"),
            "OnDemandStreamCountLimit": self.limits.on_demand_streams_per_account,
        }

    def _create(self, request: rq.CreateStream, caller: Caller, now: float) -> Answer:
        mode, shards = request.stream_mode_details.stream_mode, request.shard_count
        if mode == "ON_DEMAND":
            if shards is not None:
                raise invalid_request(
                    "ShardCount is not supported for streams with on-demand capacity."
                )
            shards = self.limits.on_demand_shards
        if shards is None:
            raise invalid_request(
                "ShardCount is needed for streams with provisioned capacity."
            )
        stream = self.create(
            caller,
            request.stream_name,
            shards,
            now,
            mode=mode,
            max_record_kib=request.max_record_size,
            distribution=request.record_distribution_strategy,
        )
        stream.tags |= request.tags
        return {}

    def _list_streams(self, request: rq.ListStreams, caller: Caller) -> Answer:
        after = request.next_token or request.exclusive_start_stream_name
        streams = sorted(self._streams(caller), key=lambda stream: stream.name)
        left = [stream for stream in streams if stream.name > after]
        page = left[: request.limit]
        answer: dict[str, Any] = {
            "StreamNames": [stream.name for stream in page],
            "StreamSummaries": [stream.summary() for stream in page],
            "HasMoreStreams": len(page) < len(left),
        }
        if len(page) < len(left):
            answer["NextToken"] = page[-1].name
        return answer


def stream_arn(caller: Caller, name: str) -> str:
    """Return the ARN of a stream in the caller's account and region."""
    return resource_arn("kinesis", caller.region, caller.account, f"stream/{name}")


def _arn(request: rq.Request, caller: Caller) -> str:
    by_name = request.stream_name and stream_arn(caller, request.stream_name)
    arn = request.stream_arn
    if arn is not None:
        _require_arn(arn)
    if arn and by_name and arn != by_name:
        raise invalid_argument("StreamName and StreamARN differ.")
    if not (arn or by_name):
        raise invalid_argument("StreamName or StreamARN is needed.")
    return arn or by_name or ""


def _require_arn(arn: str) -> None:
    parts = arn.split(":")
    if len(parts) != 6 or parts[2] != "kinesis" or not parts[5].startswith("stream/"):
        raise invalid_request(f"{arn!r} is not the ARN of a stream.")


STREAM_OPERATIONS: dict[
    str, tuple[type[rq.Request], Callable[[Stream, Any, float], Answer]]
] = {
    "AddTagsToStream": (rq.AddTagsToStream, operations.tag_stream),
    "DecreaseStreamRetentionPeriod": (rq.RetentionPeriod, operations.shorten),
    "DeregisterStreamConsumer": (rq.ConsumerRequest, consumers.deregister),
    "DescribeStream": (rq.DescribeStream, operations.describe),
    "DescribeStreamConsumer": (rq.ConsumerRequest, consumers.describe_consumer),
    "DescribeStreamSummary": (rq.Request, operations.describe_summary),
    "GetRecords": (rq.GetRecords, records.get_records),
    "GetShardIterator": (rq.GetShardIterator, records.get_iterator),
    "IncreaseStreamRetentionPeriod": (rq.RetentionPeriod, operations.lengthen),
    "ListShards": (rq.ListShards, operations.list_shards),
    "ListStreamConsumers": (rq.ListStreamConsumers, consumers.list_consumers),
    "ListTagsForResource": (rq.ResourceRequest, operations.list_resource_tags),
    "ListTagsForStream": (rq.Request, operations.list_stream_tags),
    "MergeShards": (rq.MergeShards, operations.merge),
    "PutRecord": (rq.PutRecord, records.put_record),
    "PutRecords": (rq.PutRecords, records.put_records),
    "RegisterStreamConsumer": (rq.RegisterStreamConsumer, consumers.register),
    "SplitShard": (rq.SplitShard, operations.split),
    "StartStreamEncryption": (rq.StreamEncryption, operations.start_encryption),
    "StopStreamEncryption": (rq.StreamEncryption, operations.stop_encryption),
    "SubscribeToShard": (rq.SubscribeToShard, consumers.subscribe),
    "TagResource": (rq.TagResource, operations.tag_resource),
    "UpdateMaxRecordSize": (rq.UpdateMaxRecordSize, operations.set_record_size),
    "UpdateShardCount": (rq.UpdateShardCount, operations.rescale),
    "UpdateStreamMode": (rq.UpdateStreamMode, operations.set_mode),
    "UpdateStreamRecordDistributionStrategy": (
        rq.UpdateStreamRecordDistributionStrategy,
        operations.set_distribution,
    ),
}
_REQUESTS: dict[str, type[rq.AnyRequest]] = {
    "CreateStream": rq.CreateStream,
    "DeleteStream": rq.DeleteStream,
    "DescribeAccountSettings": rq.DescribeAccountSettings,
    "DescribeLimits": rq.DescribeLimits,
    "ListStreams": rq.ListStreams,
    "UpdateAccountSettings": rq.UpdateAccountSettings,
    **{name: kind for name, (kind, _) in STREAM_OPERATIONS.items()},
}
_DECODERS = {name: msgspec.json.Decoder(kind) for name, kind in _REQUESTS.items()}


def decode(operation: str, body: bytes) -> rq.AnyRequest:
    """Return the request in a body. Raise AwsError if it is invalid."""
    return decode_request(_DECODERS, operation, body)
