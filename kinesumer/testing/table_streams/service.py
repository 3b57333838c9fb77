"""Serve the requests of DynamoDB Streams, and keep the streams of all tables."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.testing.kinesis.requests import (
    AwsError,
    ShardIterator,
    invalid_request,
    limit_exceeded,
    not_found,
)
from kinesumer.testing.kinesis.service import Caller
from kinesumer.testing.table_streams import requests as rq
from kinesumer.testing.table_streams.changes import Change, ViewType
from kinesumer.testing.table_streams.requests import decode_iterator, encode_iterator
from kinesumer.testing.table_streams.settings import TableStreamSettings
from kinesumer.testing.table_streams.shards import TableShard
from kinesumer.testing.table_streams.streams import SequenceNumbers, TableStream

Answer = dict[str, Any]


class TableStreams:
    """The streams of all tables of all accounts and regions."""

    def __init__(self, settings: TableStreamSettings) -> None:
        self.settings = settings  # of the streams that are enabled from now on
        self._streams: dict[str, TableStream] = {}  # by ARN
        self._latest: dict[str, TableStream] = {}  # by the table's ARN
        self._numbers = SequenceNumbers()
        self._calls: dict[tuple[Caller, str], Bucket] = {}

    # --- for DynamoDB ----------------------------------------------------------------

    def enable(
        self,
        table_arn: str,
        key_schema: list[dict[str, str]],
        view: ViewType,
        now: float,
    ) -> None:
        """Enable a table's stream. Each time, the stream is a new one.

        Raise ValidationException if the table has an enabled stream.
        """
        if self.is_enabled(table_arn):
            raise invalid_request(
                "Table already has an enabled stream: TableName: "
                f"{table_arn.rpartition('/')[2]}"
            )
        arn = f"{table_arn}/stream/{self._new_label(table_arn, now)}"
        stream = TableStream(arn, key_schema, view, now, self.settings, self._numbers)
        self._streams[arn] = self._latest[table_arn] = stream

    def disable(self, table_arn: str, now: float) -> None:
        """Disable a table's stream, which stays readable until its records expire.

        Raise ValidationException if the table has no enabled stream.
        """
        self.enabled(table_arn, now).disable(now)

    def delete_table(self, table_arn: str, now: float) -> None:
        """Disable the stream of a table that is being deleted, if it has one."""
        if self.is_enabled(table_arn):
            self.disable(table_arn, now)
        self._latest.pop(table_arn, None)

    def is_enabled(self, table_arn: str) -> bool:
        """Return whether a table has an enabled stream."""
        stream = self._latest.get(table_arn)
        return stream is not None and stream.disabled_at is None

    def enabled(self, table_arn: str, now: float) -> TableStream:
        """Return a table's stream. Raise ValidationException unless it is enabled."""
        stream = self._latest.get(table_arn)
        if stream is None or stream.disabled_at is not None:
            raise invalid_request(
                "Table does not have an enabled stream: TableName: "
                f"{table_arn.rpartition('/')[2]}"
            )
        stream.settle(now)
        return stream

    def description(self, table_arn: str) -> Answer:
        """Return what the description of a table says about its stream."""
        stream = self._latest.get(table_arn)
        if stream is None:
            return {}
        answer: Answer = {
            "LatestStreamArn": stream.arn,
            "LatestStreamLabel": stream.label,
        }
        if stream.disabled_at is None:
            answer["StreamSpecification"] = {
                "StreamEnabled": True,
                "StreamViewType": stream.view,
            }
        return answer

    def append(self, table_arn: str, change: Change, now: float) -> None:
        """Store a record of a change if the table has an enabled stream."""
        if self.is_enabled(table_arn):
            region = table_arn.split(":")[3]
            self.enabled(table_arn, now).append(change, region, now)

    def _new_label(self, table_arn: str, now: float) -> str:
        """Return the time in milliseconds, or the next one that no stream has."""
        milliseconds = round(now * 1000)
        while True:
            at = datetime.fromtimestamp(milliseconds / 1000, UTC)
            label = at.isoformat(timespec="milliseconds").removesuffix("+00:00")
            if f"{table_arn}/stream/{label}" not in self._streams:
                return label
            milliseconds += 1

    # --- for readers -----------------------------------------------------------------

    def target(self, request: rq.AnyRequest) -> tuple[str, str | None]:
        """Return the ARN of a request's stream (or ``*``), and its shard or None."""
        match request:
            case rq.GetRecords():
                iterator = decode_iterator(request.shard_iterator)
                return iterator.stream_arn, iterator.shard_id
            case rq.GetShardIterator():
                return request.stream_arn, request.shard_id
            case rq.DescribeStream():
                return request.stream_arn, None
            case rq.ListStreams():
                return "*", None

    def call(self, request: rq.AnyRequest, caller: Caller, now: float) -> Answer:
        """Return the response to a request. Raise AwsError if it is refused."""
        match request:
            case rq.ListStreams():
                rate = self.settings.list_calls_per_second
                self._throttle("ListStreams", rate, caller, now)
                return self._list(request, caller, now)
            case rq.DescribeStream():
                rate = self.settings.describe_calls_per_second
                self._throttle("DescribeStream", rate, caller, now)
                return self._describe(request, now)
            case rq.GetShardIterator():
                return self._get_iterator(request, now)
            case rq.GetRecords():
                return self._get_records(request, now)

    def _throttle(
        self, operation: str, rate: float, caller: Caller, now: float
    ) -> None:
        bucket = self._calls.setdefault((caller, operation), Bucket(rate))
        if not bucket.take(1, now):
            raise AwsError(
                "ThrottlingException",
                f"Rate exceeded for {operation} under account {caller.account}.",
            )

    def _stream(self, arn: str, now: float) -> TableStream:
        stream = self._streams.get(arn)
        if stream is not None:
            stream.settle(now)
        if stream is None or stream.is_gone:
            raise not_found(f"Requested resource not found: Stream: {arn} not found")
        return stream

    def _list(self, request: rq.ListStreams, caller: Caller, now: float) -> Answer:
        most = self.settings.page_streams
        count = _limit(request.limit, most)
        prefix = [caller.region, caller.account]
        after = request.exclusive_start_stream_arn or ""
        left = []
        for arn, stream in sorted(self._streams.items()):
            stream.settle(now)
            if (
                arn > after
                and arn.split(":")[3:5] == prefix
                and request.table_name in (None, stream.table_name)
                and not stream.is_gone
            ):
                left.append(stream)
        answer: Answer = {
            "Streams": [
                {
                    "StreamArn": stream.arn,
                    "TableName": stream.table_name,
                    "StreamLabel": stream.label,
                }
                for stream in left[:count]
            ]
        }
        if len(left) > count:
            answer["LastEvaluatedStreamArn"] = left[count - 1].arn
        return answer

    def _describe(self, request: rq.DescribeStream, now: float) -> Answer:
        stream = self._stream(request.stream_arn, now)
        count = _limit(request.limit, self.settings.page_shards)
        after = request.exclusive_start_shard_id or ""
        if request.shard_filter is None:
            left = stream.listing(after, count + 1)
        else:
            children = stream.children(request.shard_filter.shard_id)
            left = [shard for shard in children if shard.shard_id > after]
        description: Answer = {
            "StreamArn": stream.arn,
            "StreamLabel": stream.label,
            "StreamStatus": stream.status,
            "StreamViewType": stream.view,
            "CreationRequestDateTime": stream.created_at,
            "TableName": stream.table_name,
            "KeySchema": stream.key_schema,
            "Shards": [shard.description() for shard in left[:count]],
        }
        if len(left) > count:
            description["LastEvaluatedShardId"] = left[count - 1].shard_id
        return {"StreamDescription": description}

    def _get_iterator(self, request: rq.GetShardIterator, now: float) -> Answer:
        stream = self._stream(request.stream_arn, now)
        shard = stream.shard(request.shard_id)
        place = _place(shard, request, self._numbers, now)
        created_ms = round(stream.created_at * 1000)
        iterator = ShardIterator(stream.arn, created_ms, now, shard.shard_id, place)
        return {"ShardIterator": encode_iterator(iterator)}

    def _get_records(self, request: rq.GetRecords, now: float) -> Answer:
        iterator = decode_iterator(request.shard_iterator)
        stream = self._stream(iterator.stream_arn, now)
        settings = stream.settings
        most = settings.page_records
        count = most if request.limit is None else request.limit
        if count > most:
            raise limit_exceeded(f"Limit {count} is greater than {most}.")
        iterator.require_fresh(now, settings.iterator_seconds)
        shard = stream.shard(iterator.shard_id)
        if not shard.read_bytes.holds(0, now) or not shard.read_calls.take(1, now):
            raise limit_exceeded(
                f"Too many reads of shard {shard.shard_id}: more than 2 processes may "
                "be reading it."
            )
        if iterator.at < shard.trimmed:
            raise _trimmed()
        end, size = shard.page(iterator.at, count, settings.page_bytes)
        shard.read_bytes.spend(size)
        answer: Answer = {
            "Records": [
                msgspec.Raw(record.content) for record in shard.log[iterator.at : end]
            ]
        }
        if not shard.closed or end < len(shard.log):
            following = msgspec.structs.replace(iterator, at=end, issued_at=now)
            answer["NextShardIterator"] = encode_iterator(following)
        return answer


def _limit(limit: int | None, most: int) -> int:
    """Return the size of a page. Raise ValidationException if it is too large."""
    if limit is not None and limit > most:
        raise invalid_request(
            f"1 validation error detected: Value '{limit}' at 'limit' failed to "
            f"satisfy constraint: Member must have value less than or equal to {most}"
        )
    return most if limit is None else limit


def _place(
    shard: TableShard,
    request: rq.GetShardIterator,
    numbers: SequenceNumbers,
    now: float,
) -> int:
    """Return the index of the first record to read."""
    match request.shard_iterator_type:
        case "TRIM_HORIZON":
            return shard.trimmed
        case "LATEST":
            return len(shard.log)
        case "AT_TIMESTAMP":
            return _place_since(shard, request.timestamp, now)
    number = request.sequence_number
    if number is None:
        raise invalid_request(
            "SequenceNumber is needed for the ShardIteratorType "
            f"{request.shard_iterator_type}"
        )
    last = shard.last_number
    if not numbers.is_taken(number) or not (
        int(shard.first_number) <= int(number) <= int(last or number)
    ):
        raise invalid_request(
            f"Invalid SequenceNumber: {number} is not in shard {shard.shard_id}"
        )
    at = shard.place_at(number)
    if at < shard.trimmed:
        raise _trimmed()
    if request.shard_iterator_type == "AT_SEQUENCE_NUMBER":
        return at
    return shard.place_after(number)


def _place_since(shard: TableShard, timestamp: float | None, now: float) -> int:
    if timestamp is None:
        raise invalid_request(
            "Timestamp is needed for the ShardIteratorType AT_TIMESTAMP"
        )
    if timestamp > now:
        raise invalid_request(f"Timestamp {timestamp} is in the future")
    # The timestamp is compared with ApproximateCreationDateTime, a whole second.
    return max(shard.trimmed, shard.place_since(math.ceil(timestamp)))


def _trimmed() -> AwsError:
    return AwsError(
        "TrimmedDataAccessException",
        "The data you are trying to access has been trimmed.",
    )
