"""The source of one Kinesis stream."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TypeVar, cast

import msgspec

from kinesumer.aws.endpoints import service_time
from kinesumer.aws.errors import (
    FOREIGN,
    Kind,
    describe,
    failure_of,
    fatal_error,
    translated_errors,
)
from kinesumer.aws.http.client import DirectCalls
from kinesumer.errors import (
    ConfigurationError,
    ExpiredIteratorError,
    InvalidPositionError,
    KinesumerError,
    ShardMissingError,
    ShardThrottledError,
    SlowAnswerError,
    SourceThrottledError,
    SourceUnavailableError,
    StartInFutureError,
    StreamMissingError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Shard, Start, StreamInfo
from kinesumer.runtime.timeouts import timeout
from kinesumer.wire.put_records import decode_results
from kinesumer.wire.records import HashKeyRange, decode_iterator, decode_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from kinesumer.aws.errors import AwsFailure
    from kinesumer.aws.session import ClientFactory, OpenClient
    from kinesumer.model.records import Page
    from kinesumer.model.streams import Stream
    from kinesumer.ports import Reservation
    from kinesumer.wire.put_records import Entry, PutResult

Answer = TypeVar("Answer")

ANSWER_SECONDS = 30.0
"""Time-out of one response. A call also ends after 10 s without a byte."""
READS = ("GetRecords", "GetShardIterator")
SHARD_THROTTLED = "ProvisionedThroughputExceededException"


_ARN = re.compile(r"arn:[\w-]+:kinesis:[\w-]+:[0-9]{12}:stream/[\w.-]{1,128}", re.ASCII)


class KinesisClient(Protocol):
    """The calls of a source that use the client."""

    async def describe_stream_summary(
        self, **arguments: object
    ) -> Mapping[str, Any]: ...
    async def list_shards(self, **arguments: object) -> Mapping[str, Any]: ...


class StreamName(NamedTuple):
    """A stream's name, and the region and ARN if the user wrote an ARN."""

    name: str
    region: str | None = None
    arn: str | None = None


def parse_stream_name(text: str) -> StreamName:
    """Parse a stream's name or ARN. Raise ConfigurationError for other text."""
    if not text.startswith("arn:"):
        if not text or "/" in text or ":" in text:
            raise ConfigurationError(
                f"{text!r} is neither a stream's name nor its ARN: use one of them"
            )
        return StreamName(text)
    parts = text.split(":", 5)
    if not _ARN.fullmatch(text):
        raise ConfigurationError(
            f"{text!r} isn't the ARN of a stream: "
            "use arn:aws:kinesis:REGION:ACCOUNT:stream/NAME"
        )
    return StreamName(parts[5].removeprefix("stream/"), parts[3], text)


async def open_source(clients: ClientFactory, stream: Stream) -> KinesisSource:
    """Return the source of a stream, in its region and with its role."""
    named = parse_stream_name(stream.name)
    if stream.region and named.region and stream.region != named.region:
        raise ConfigurationError(
            f"stream {stream.name} is in {named.region}, not in {stream.region}: "
            "correct the region or the ARN"
        )
    role = None
    if stream.role_arn is not None:
        role = clients.role(stream.role_arn, stream.external_id, stream.session_name)
    opened = await clients.open("kinesis", named.region or stream.region, role)
    return KinesisSource(opened, named)


class KinesisSource:
    """One stream: see ``ports.StreamSource``. Its calls aren't retried."""

    def __init__(self, opened: OpenClient, stream: StreamName) -> None:
        self._client = cast("KinesisClient", opened.client)
        self._direct = DirectCalls(opened)
        self._stream = stream
        self._expired = opened.expired
        self._connections = opened.connections

    async def describe(self) -> StreamInfo:
        """Return the stream's current description. Raise StreamMissingError."""
        answer = await self._call(
            "DescribeStreamSummary",
            self._client.describe_stream_summary,
            self._named,
        )
        with translated_errors("DescribeStreamSummary", SourceUnavailableError):
            summary = msgspec.convert(answer["StreamDescriptionSummary"], _Summary)
            now = service_time(answer)
        # Send the ARN from now on, which excludes a stream of another account.
        self._stream = self._stream._replace(arn=summary.arn)
        return StreamInfo(
            arn=summary.arn,
            status=summary.status,
            created_at=summary.created.timestamp(),
            retention_hours=summary.retention_hours,
            now=now,
            max_record_bytes=summary.max_record_kib * 1024,
            routes_by_key=summary.distribution != "AUTO",
        )

    async def list_shards(self) -> list[Shard]:
        """Return every shard that Kinesis lists, including closed shards."""
        while True:
            shards = await self._listing()
            if shards is not None:
                return shards

    async def _listing(self) -> list[Shard] | None:
        """Read all pages. Return None if the token expired between two pages."""
        arguments: dict[str, object] = self._named
        shards: list[Shard] = []
        while True:
            try:
                answer = await self._call(
                    "ListShards", self._client.list_shards, arguments
                )
            except _ExpiredTokenError:
                return None
            with translated_errors("ListShards", SourceUnavailableError):
                page = msgspec.convert(answer["Shards"], list[_Shard])
                shards += [shard.read() for shard in page]
            token = answer.get("NextToken")
            if not token:
                return shards
            arguments = {"NextToken": token}

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator just after a position, or at a start.

        Raise ShardMissingError, TrimmedPositionError, InvalidPositionError, or
        StartInFutureError if Kinesis's clock hasn't reached the start's timestamp.
        """
        try:
            answer = await self._call(
                "GetShardIterator",
                self._direct.get_shard_iterator,
                {**self._named, "ShardId": shard_id, **_iterator_arguments(after)},
                shard_id,
            )
        except (TrimmedPositionError, InvalidPositionError) as error:
            # Kinesis rejects a timestamp only if it is in the future.
            if isinstance(after, Start) and after.timestamp is not None:
                raise StartInFutureError(str(error)) from error
            raise
        return decode_iterator(answer)

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page. Raise ExpiredIteratorError or SourceThrottledError."""
        return decode_page(await self.get_body(iterator, limit, reservation))

    async def get_body(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> bytearray:
        """Return the next page's undecoded body, which Spark decodes in columns."""
        arguments = {"ShardIterator": iterator, "Limit": limit, **self._arn}
        if reservation is None:
            return await self._call("GetRecords", self._direct.get_records, arguments)
        patient = _PatientReservation(reservation)
        try:
            return await self._call(
                "GetRecords",
                partial(self._direct.get_records, patient),
                arguments,
                patient=patient,
            )
        except SourceUnavailableError as error:
            if patient.has_begun and isinstance(error.__cause__, TimeoutError):
                raise SlowAnswerError(str(error)) from error
            raise

    async def put_records(self, records: Sequence[Entry]) -> list[PutResult]:
        """Put up to 500 records, and return the result of each.

        Raise SourceThrottledError or SourceUnavailableError if the whole request fails.
        Its records may or may not have been stored then.
        """
        answer = await self._call(
            "PutRecords",
            self._direct.put_records,
            {"records": records, **self._named},
        )
        return decode_results(answer, len(records))

    @property
    def _named(self) -> dict[str, object]:
        return self._arn or {"StreamName": self._stream.name}

    @property
    def _arn(self) -> dict[str, object]:
        arn = self._stream.arn
        return {} if arn is None else {"StreamARN": arn}

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Wait for a connection, which the running task's calls in the block use."""
        return self._connections.slot()

    def _slot(self, operation: str) -> AbstractAsyncContextManager[None]:
        """Wait for a connection if the operation reads or puts records."""
        return self.connection() if operation in _DIRECT else nullcontext()

    async def _call(
        self,
        operation: str,
        call: Callable[..., Awaitable[Answer]],
        arguments: Mapping[str, object],
        shard_id: str = "",
        patient: _PatientReservation | None = None,
    ) -> Answer:
        try:
            async with self._slot(operation), timeout(ANSWER_SECONDS) as limit:
                if patient is not None:
                    patient.limit = limit
                with translated_errors(operation, SourceUnavailableError):
                    return await call(**arguments)
        except FOREIGN as error:
            fault = failure_of(error)
            if fault.code == _NOT_FOUND and operation in _OF_A_SHARD:
                await self._require_stream()
            raise self._translated(fault, operation, shard_id) from error

    async def _require_stream(self) -> None:
        """Raise an error if the stream is missing, and not only one of its shards.

        The difference matters, since a missing shard counts as read to its end.
        """
        info = await self.describe()
        if info.status == "DELETING":
            raise StreamMissingError(
                f"stream {info.arn} is being deleted: stop its consumers, or create it "
                "again"
            )
        if info.status == "CREATING":
            raise SourceUnavailableError(f"stream {info.arn} is being created: wait")

    def _translated(
        self, fault: AwsFailure, operation: str, shard_id: str
    ) -> KinesumerError:
        action, stream = f"kinesis:{operation}", self._stream.arn or self._stream.name
        resource = f"{stream}, {shard_id}" if shard_id else stream
        message = f"{action} on {resource}: {describe(fault)}"
        if fault.kind is Kind.THROTTLED:
            of_shard = operation in READS and fault.code == SHARD_THROTTLED
            return (ShardThrottledError if of_shard else SourceThrottledError)(message)
        if fault.kind is Kind.UNAVAILABLE:
            return SourceUnavailableError(message)
        if fault.kind is Kind.TOKEN_EXPIRED and self._expired():
            return SourceUnavailableError(message)
        if fault.kind is Kind.OTHER:
            return self._of_kinesis(fault, operation, message, stream)
        return fatal_error(fault, action, stream)

    def _of_kinesis(
        self, fault: AwsFailure, operation: str, message: str, stream: str
    ) -> KinesumerError:
        if fault.code == "ExpiredIteratorException":
            return ExpiredIteratorError(message)
        if fault.code == "ExpiredNextTokenException":
            return _ExpiredTokenError(message)
        if fault.code == _NOT_FOUND:
            if operation in _OF_A_SHARD:
                return ShardMissingError(message)
            return StreamMissingError(
                f"stream {stream} doesn't exist; check its name, account and region"
            )
        if operation == "GetShardIterator" and _is_trimmed(fault):
            return TrimmedPositionError(message)
        if operation == "GetShardIterator" and fault.code in _REFUSALS:
            return InvalidPositionError(message)
        return fatal_error(fault, f"kinesis:{operation}", stream)


class _PatientReservation:
    """A response's reservation. The response's time-out is paused while it grows."""

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self.limit: timeout
        self.has_begun = False
        """Whether the response's head has arrived, as far as is known."""

    def covers(self, size: int | None) -> bool:
        """Return whether a response of ``size`` bytes fits."""
        self.has_begun = True
        return self._reservation.covers(size)

    def shrink(self, size: int) -> None:
        """Release the memory that a response of ``size`` bytes doesn't need."""
        self._reservation.shrink(size)

    async def grow(self, size: int | None) -> None:
        """Wait for the memory of a response of ``size`` bytes."""
        self.has_begun = True
        self.limit.pause()
        await self._reservation.grow(size)
        self.limit.resume()


class _ExpiredTokenError(KinesumerError):
    """The token of a listing expired before its next page was read."""


_NOT_FOUND = "ResourceNotFoundException"
_REFUSALS = ("InvalidArgumentException", "ValidationException")
_OF_A_SHARD = ("GetShardIterator", "GetRecords")
_DIRECT = (*_OF_A_SHARD, "PutRecords")
_FOREIGN_NUMBER = ("did not come from", "encodes", "not a valid", "malformed")


def _is_trimmed(fault: AwsFailure) -> bool:
    """Return whether retention removed a position, or it was never this shard's."""
    return fault.code == "InvalidArgumentException" and not any(
        phrase in fault.text for phrase in _FOREIGN_NUMBER
    )


def _iterator_arguments(after: Position | Start) -> dict[str, object]:
    if isinstance(after, Position):
        whole = after.sub_sequence_number is None
        kind = "AFTER_SEQUENCE_NUMBER" if whole else "AT_SEQUENCE_NUMBER"
        return {
            "ShardIteratorType": kind,
            "StartingSequenceNumber": after.sequence_number,
        }
    if after.timestamp is None:
        return {"ShardIteratorType": after.type}
    # Kinesis uses milliseconds. Round down, so that the start is never late.
    timestamp = math.floor(after.timestamp * 1000) / 1000
    return {"ShardIteratorType": after.type, "Timestamp": timestamp}


_Arn = Annotated[
    str, msgspec.Meta(pattern=r"\Aarn:[^:\s]+:kinesis:[^:\s]*:[^:\s]*:stream/\S+\Z")
]


class _Summary(msgspec.Struct):
    arn: _Arn = msgspec.field(name="StreamARN")
    status: str = msgspec.field(name="StreamStatus")
    created: datetime = msgspec.field(name="StreamCreationTimestamp")
    retention_hours: int = msgspec.field(name="RetentionPeriodHours")
    max_record_kib: int = msgspec.field(name="MaxRecordSizeInKiB", default=1024)
    distribution: str = msgspec.field(name="RecordDistributionStrategy", default="")
    """Only streams in on-demand mode have it."""


class _Shard(msgspec.Struct, rename="pascal"):
    shard_id: str
    hash_key_range: HashKeyRange
    sequence_number_range: dict[str, str]
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None

    def read(self) -> Shard:
        parents = (self.parent_shard_id, self.adjacent_parent_shard_id)
        return Shard(
            self.shard_id,
            *self.hash_key_range.bounds(),
            tuple(parent for parent in parents if parent),
            "EndingSequenceNumber" in self.sequence_number_range,
        )
