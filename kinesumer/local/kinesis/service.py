"""Kinesis as its clients see it: one account and region at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.local.kinesis import requests as rq
from kinesumer.local.kinesis.limits import Bucket, Limits
from kinesumer.local.kinesis.listing import describe, describe_summary, list_shards
from kinesumer.local.kinesis.reading import (
    get_iterator,
    get_records,
    put_record,
    put_records,
)
from kinesumer.local.kinesis.resharding import merge, rescale, split
from kinesumer.local.kinesis.shards import Stream
from kinesumer.local.kinesis.tokens import ListingToken, ShardIterator
from kinesumer.local.request import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = dict[str, Any] | bytes
_ON_DEMAND_SHARDS = 4
_ON_DEMAND_STREAMS = 50


class Caller(NamedTuple):
    """The account and region of a request."""

    account: str
    region: str


class Kinesis:
    """All streams of all accounts and regions."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.streams: dict[str, Stream] = {}
        self._gone_at: dict[str, float] = {}
        self._control: dict[tuple[Caller, str], Bucket] = {}

    def target(self, request: rq.AnyRequest, caller: Caller) -> tuple[str, str | None]:
        """Return the ARN (or ``*``) and the shard that a request is about."""
        if isinstance(request, rq.ListStreams | rq.DescribeLimits):
            return "*", None
        if isinstance(request, rq.GetRecords):
            iterator = ShardIterator.decode(request.shard_iterator)
            return request.stream_arn or iterator.stream_arn, iterator.shard_id
        shard = getattr(request, "shard_id", None)
        if isinstance(request, rq.ListShards) and request.next_token:
            return ListingToken.decode(request.next_token).stream_arn, None
        return _arn(request, caller), shard

    def call(self, request: rq.AnyRequest, caller: Caller, now: float) -> Answer:
        """Carry out a request; raise AwsError if it is refused."""
        self._expire(now)
        self._throttle_control(type(request).__name__, caller, now)
        if isinstance(request, rq.DescribeLimits):
            return self._describe_limits(caller)
        if isinstance(request, rq.ListStreams):
            return self._list_streams(request, caller)
        if isinstance(request, rq.CreateStream):
            return self._create(request, caller, now)
        stream = self.stream(self.target(request, caller)[0], now)
        if isinstance(request, rq.DeleteStream):
            self.delete(stream, now)
            return {}
        return _OPERATIONS[type(request)](stream, request, now)

    def stream(self, arn: str, now: float) -> Stream:
        """Return a stream; raise ResourceNotFoundException if there is none."""
        stream = self.streams.get(arn)
        if stream is None:
            name = arn.rpartition("/")[2]
            raise AwsError(
                "ResourceNotFoundException",
                f"Stream {name} under account {arn.split(':')[4]} not found.",
            )
        stream.settle(now)
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
    ) -> Stream:
        """Make a stream; raise AwsError if the name is taken."""
        self._expire(now)
        arn = stream_arn(caller, name)
        if arn in self.streams:
            raise AwsError(
                "ResourceInUseException",
                f"Stream {name} under account {caller.account} already exists.",
            )
        self._require_shards_left(caller, shards)
        stream = Stream(arn, shards, now, self.limits, mode=mode)
        stream.max_record_kib = _record_kib(max_record_kib)
        self.streams[arn] = stream
        stream.settle(now)
        return stream

    def _streams(self, caller: Caller) -> list[Stream]:
        prefix = stream_arn(caller, "")
        return [s for arn, s in self.streams.items() if arn.startswith(prefix)]

    def _describe_limits(self, caller: Caller) -> Answer:
        streams = self._streams(caller)
        on_demand = sum(stream.mode == "ON_DEMAND" for stream in streams)
        return {
            "ShardLimit": self.limits.shards_per_account,
            "OpenShardCount": sum(len(stream.open) for stream in streams),
            "OnDemandStreamCount": on_demand,
            "OnDemandStreamCountLimit": _ON_DEMAND_STREAMS,
        }

    def _require_shards_left(self, caller: Caller, shards: int) -> None:
        used = sum(len(stream.open) for stream in self._streams(caller))
        if used + shards > self.limits.shards_per_account:
            raise AwsError(
                "LimitExceededException",
                f"This request would exceed the shard limit for the account "
                f"{caller.account} in {caller.region}. Current shard count for the "
                f"account: {used}. Limit: {self.limits.shards_per_account}. "
                f"Number of additional shards that would have resulted from this "
                f"request: {shards}.",
            )

    def delete(self, stream: Stream, now: float) -> None:
        """Delete a stream, at once or after a while."""
        self._gone_at[stream.arn] = stream.delete(now)
        self._expire(now)

    def _expire(self, now: float) -> None:
        for arn in [arn for arn, at in self._gone_at.items() if now >= at]:
            del self._gone_at[arn], self.streams[arn]

    def _throttle_control(self, operation: str, caller: Caller, now: float) -> None:
        rate = self.limits.control_calls_per_second.get(operation)
        if rate is None:
            return
        bucket = self._control.setdefault((caller, operation), Bucket(rate))
        if not bucket.take(1, now):
            raise AwsError(
                "LimitExceededException",
                f"Rate exceeded for {operation} under account {caller.account}.",
            )

    def _create(self, request: rq.CreateStream, caller: Caller, now: float) -> Answer:
        mode = request.stream_mode_details.stream_mode
        if mode == "ON_DEMAND" and request.shard_count is not None:
            raise AwsError(
                "ValidationException",
                "ShardCount is not supported for streams with on-demand capacity.",
            )
        shards = request.shard_count or (
            _ON_DEMAND_SHARDS if mode == "ON_DEMAND" else 0
        )
        if not shards:
            raise AwsError(
                "ValidationException",
                "ShardCount is needed for streams with provisioned capacity.",
            )
        kib = request.max_record_size
        name = request.stream_name
        self.create(caller, name, shards, now, mode=mode, max_record_kib=kib)
        return {}

    def _list_streams(self, request: rq.ListStreams, caller: Caller) -> Answer:
        after = request.next_token or request.exclusive_start_stream_name
        found = sorted(self._streams(caller), key=lambda stream: stream.name)
        left = [stream for stream in found if stream.name > after]
        page = left[: request.limit]
        answer: dict[str, Any] = {
            "StreamNames": [stream.name for stream in page],
            "StreamSummaries": [_summary(stream) for stream in page],
            "HasMoreStreams": len(page) < len(left),
        }
        if len(page) < len(left):
            answer["NextToken"] = page[-1].name
        return answer


def stream_arn(caller: Caller, name: str) -> str:
    """Return the ARN of a stream by its name."""
    return f"arn:aws:kinesis:{caller.region}:{caller.account}:stream/{name}"


def _arn(request: rq.Request, caller: Caller) -> str:
    by_name = request.stream_name and stream_arn(caller, request.stream_name)
    arn = request.stream_arn
    if arn is not None and not _is_stream_arn(arn):
        raise AwsError("ValidationException", f"{arn!r} is not the ARN of a stream.")
    if arn and by_name and arn != by_name:
        raise AwsError("InvalidArgumentException", "StreamName and StreamARN differ.")
    if not (arn or by_name):
        raise AwsError("InvalidArgumentException", "StreamName or StreamARN is needed.")
    return arn or by_name or ""


def _is_stream_arn(arn: str) -> bool:
    parts = arn.split(":")
    return len(parts) == 6 and parts[2] == "kinesis" and parts[5].startswith("stream/")


def _record_kib(kib: int) -> int:
    if not 1024 <= kib <= 10_240:
        raise AwsError(
            "ValidationException", "MaxRecordSizeInKiB must be from 1024 to 10240."
        )
    return kib


def _summary(stream: Stream) -> dict[str, Any]:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_at,
    }


def _lengthen(
    stream: Stream, request: rq.IncreaseStreamRetentionPeriod, now: float
) -> Answer:
    return _set_retention(stream, request.retention_period_hours, now, longer=True)


def _shorten(
    stream: Stream, request: rq.DecreaseStreamRetentionPeriod, now: float
) -> Answer:
    return _set_retention(stream, request.retention_period_hours, now, longer=False)


def _set_retention(stream: Stream, hours: int, now: float, *, longer: bool) -> Answer:
    low, high = (
        (stream.retention_hours, 8760) if longer else (24, stream.retention_hours)
    )
    if not low <= hours <= high:
        raise AwsError(
            "InvalidArgumentException",
            f"RetentionPeriodHours {hours} must be from {low} to {high} hours.",
        )

    def apply(_: float) -> None:
        stream.retention_hours = hours

    stream.change(now, apply)
    return {}


def _set_mode(stream: Stream, request: rq.UpdateStreamMode, now: float) -> Answer:
    def apply(_: float) -> None:
        stream.mode = request.stream_mode_details.stream_mode

    stream.change(now, apply)
    return {}


def _set_record_size(
    stream: Stream, request: rq.UpdateMaxRecordSize, now: float
) -> Answer:
    kib = _record_kib(request.max_record_size)

    def apply(_: float) -> None:
        stream.max_record_kib = kib

    stream.change(now, apply)
    return {}


_OPERATIONS: dict[type, Callable[[Stream, Any, float], Answer]] = {
    rq.DescribeStream: describe,
    rq.DescribeStreamSummary: describe_summary,
    rq.ListShards: list_shards,
    rq.PutRecord: put_record,
    rq.PutRecords: put_records,
    rq.GetShardIterator: get_iterator,
    rq.GetRecords: get_records,
    rq.SplitShard: split,
    rq.MergeShards: merge,
    rq.UpdateShardCount: rescale,
    rq.IncreaseStreamRetentionPeriod: _lengthen,
    rq.DecreaseStreamRetentionPeriod: _shorten,
    rq.UpdateStreamMode: _set_mode,
    rq.UpdateMaxRecordSize: _set_record_size,
}
