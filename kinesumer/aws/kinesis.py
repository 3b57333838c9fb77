"""Describe a Kinesis stream, list its shards, and read and put its records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

import msgspec
from botocore import xform_name

from kinesumer.aws.clients import OpenClient, PlainClient
from kinesumer.aws.errors import (
    AwsFailure,
    describe,
    failure_of,
    refusal,
    translated_errors,
)
from kinesumer.aws.http.client import KINESIS, DirectCalls, KinesisCalls
from kinesumer.aws.http.event_stream import EventStream, EventStreamPool
from kinesumer.aws.kinesis_errors import (
    NOT_FOUND,
    OF_CONSUMER,
    PUT,
    READS,
    SUBSCRIBE,
    ConsumerStateError,
    ExpiredTokenError,
    kinesis_error,
)
from kinesumer.aws.polling import (
    Answer,
    CborSupport,
    PatientReservation,
    PollingSource,
    call_in_time,
    iterator_arguments,
    timestamp_errors,
)
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.streams import (
    StreamName,
    decode_description,
    decode_shards,
    missing_stream,
    parse_stream_name,
    time_of,
)
from kinesumer.errors import (
    FatalError,
    KinesumerError,
    SourceUnavailableError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import Shard, Start, Stream, StreamInfo
from kinesumer.ports import Reservation
from kinesumer.runtime.threads import refusal_errors
from kinesumer.wire.put_records import Entry, EntryResult, decode_results
from kinesumer.wire.records import decode_iterator, decode_page

DIRECT_CALLS = (*READS, PUT)
READ, PLACE = READS
DESCRIBE, LIST = "DescribeStreamSummary", "ListShards"


async def open_source(clients: ClientFactory, stream: Stream) -> KinesisSource:
    """Return the source of a stream, in its region and with its role."""
    named = parse_stream_name(stream.name)
    region, role = clients.access(stream, named.region)
    opened = await clients.open_kinesis(region, role)
    return KinesisSource(opened, named)


class KinesisSource(PollingSource):
    """The source of one stream, without retries. See ``ports.StreamSource``."""

    def __init__(self, opened: OpenClient | PlainClient, stream: StreamName) -> None:
        self._opened = opened
        self._direct = KinesisCalls(opened)
        # Their connections are others than those that read and put records.
        self._others = DirectCalls(opened._replace(connections=opened.others), KINESIS)
        self._stream = stream
        self._keys = opened.keys
        self._connections = opened.connections
        self._cbor = CborSupport()

    async def describe(self) -> StreamInfo:
        """Return the stream's current description. Raise StreamMissingError."""
        answer = await self._call(
            DESCRIBE, partial(self._others.call, DESCRIBE, self._named)
        )
        with translated_errors(DESCRIBE, SourceUnavailableError):
            info = decode_description(answer.body, time_of(answer.date))
        # Send the ARN from now on. If the credentials change, the name alone could mean
        # a stream of another account.
        self._stream = self._stream._replace(arn=info.arn)
        return info

    async def list_shards(self) -> list[Shard]:
        """Return every shard that Kinesis lists, including closed shards."""
        shards, arguments = list[Shard](), self._named
        while True:
            try:
                answer = await self._call(
                    LIST, partial(self._others.call, LIST, arguments)
                )
            except ExpiredTokenError:
                # A token is valid for 300 s. A blocked event loop may delay the next
                # call for longer. Then the listing starts again.
                shards, arguments = [], self._named
                continue
            with translated_errors(LIST, SourceUnavailableError):
                page, token = decode_shards(answer.body)
            shards += page
            if token is None:
                return shards
            arguments = {"NextToken": token}

    async def _place(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator of Kinesis. Raise as ``get_iterator()`` does."""
        arguments = iterator_arguments(after)
        where = {**self._named, "ShardId": shard_id, **arguments}
        with timestamp_errors(arguments):
            answer = await self._call(
                PLACE, partial(self._direct.call, PLACE, where), shard_id
            )
        return decode_iterator(answer.body)

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page. Raise ExpiredIteratorError or SourceThrottledError."""
        with refusal_errors("GetRecords", SourceUnavailableError):
            return await self._read_confirmed(
                iterator, lambda place: self._page(place, limit, reservation)
            )

    async def _page(
        self, iterator: str, limit: int, reservation: Reservation | None
    ) -> Page:
        body = partial(self._body, iterator, limit, reservation)
        if reservation is None or not self._cbor.is_usable:
            return decode_page(await body())
        try:
            page = decode_page(await body(in_cbor=True))
        except KinesumerError as error:
            if not self._cbor.may_explain(error):
                raise
            page = decode_page(await body())
            self._cbor.failed(self.label, error)
        else:
            self._cbor.succeeded()
        return page

    async def _body(
        self,
        iterator: str,
        limit: int,
        reservation: Reservation | None,
        *,
        in_cbor: bool = False,
    ) -> bytearray:
        arguments = {"ShardIterator": iterator, "Limit": limit, **self._arn}
        patient = None if reservation is None else PatientReservation(reservation)
        call = partial(
            self._direct.call, READ, arguments, reservation=patient, in_cbor=in_cbor
        )
        return (await self._call(READ, call, patient=patient)).body

    async def put_records(self, records: Sequence[Entry]) -> list[EntryResult]:
        """Put up to 500 records, and return the result of each.

        Raise SourceThrottledError or SourceUnavailableError if the whole request fails.
        Even so, its records may have been stored. Raise RecordRefusedError if Kinesis
        refuses one of the records, and thus stores none.
        """
        arguments = {"Records": records, **self._named}
        answer = await self._call(PUT, partial(self._direct.call, PUT, arguments))
        return decode_results(answer.body, len(records))

    @property
    def label(self) -> str:
        """The stream's name, for messages."""
        return f"stream {self._stream.name}"

    # --- fan-out ----------------------------------------------------------------------

    async def arn(self) -> str:
        """Return the stream's ARN. Raise StreamMissingError."""
        return self._stream.arn or (await self.describe()).arn

    async def require_direct_calls(self, consumer_arn: str) -> None:
        """Raise ConfigurationError if the user's settings prevent subscriptions."""
        arguments: dict[str, object] = {"ConsumerARN": consumer_arn}
        call = partial(self._direct.subscription_route, arguments)
        await self._call(SUBSCRIBE, call)

    async def call_of_consumer(
        self, operation: str, arguments: Mapping[str, object]
    ) -> Any:
        """Make a call about the stream's consumers, and return its response.

        Return None if the consumer does not exist, or already exists.
        """
        try:
            named = {"StreamARN": await self.arn()}
            return await self.call(operation, named | dict(arguments))
        except ConsumerStateError:
            return None

    async def subscribe(
        self,
        pool: EventStreamPool,
        consumer_arn: str,
        shard_id: str,
        position: Mapping[str, object],
    ) -> EventStream:
        """Subscribe a consumer to a shard, and return the events as they arrive.

        Raise SubscriptionInUseError, FatalError if the consumer does not exist, and
        what ``get_iterator()`` raises.
        """
        arguments: dict[str, object] = {
            "ConsumerARN": consumer_arn,
            "ShardId": shard_id,
            "StartingPosition": position,
        }
        with timestamp_errors(position):
            call = partial(self._direct.subscribe, pool, arguments)
            return await self._call(SUBSCRIBE, call, shard_id)

    async def error_of_subscription(
        self, code: str, text: str, shard_id: str
    ) -> KinesumerError:
        """Return the error that an exception in an event stream means."""
        body = msgspec.json.encode({"__type": code, "message": text})
        fault = failure_of(refusal(SUBSCRIBE, 400, body))
        return await self._error(fault, SUBSCRIBE, shard_id)

    async def knows(self, operation: str, parameter: str) -> bool:
        """Return whether botocore knows a parameter of an operation."""
        client = await self._opened.library_client()
        model = client.meta.service_model.operation_model(operation)
        return parameter in model.input_shape.members

    async def call(
        self, operation: str, arguments: Mapping[str, object], shard_id: str = ""
    ) -> Any:
        """Make a call, and return its response."""
        client = await self._opened.library_client()
        call = partial(getattr(client, xform_name(operation)), **arguments)
        return await self._call(operation, call, shard_id)

    @property
    def _named(self) -> dict[str, object]:
        return self._arn or {"StreamName": self._stream.name}

    @property
    def _arn(self) -> dict[str, object]:
        arn = self._stream.arn
        return {} if arn is None else {"StreamARN": arn}

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a block in which the running task's calls use one connection."""
        return self._connections.slot()

    async def _call(
        self,
        operation: str,
        call: Callable[[], Awaitable[Answer]],
        shard_id: str = "",
        patient: PatientReservation | None = None,
    ) -> Answer:
        # Operations that aren't direct calls use the AWS client's own connections.
        slot = self.connection() if operation in DIRECT_CALLS else nullcontext()
        explain = partial(self._error, operation=operation, shard_id=shard_id)
        return await call_in_time(operation, call, slot, explain, patient)

    async def _error(
        self, fault: AwsFailure, operation: str, shard_id: str
    ) -> KinesumerError:
        """Return the library's error for a failed call."""
        if fault.code == NOT_FOUND:
            if operation in READS or operation == SUBSCRIBE:
                await self._require_stream()
            elif operation not in OF_CONSUMER:
                name, arn = self._stream.name, self._stream.arn
                client = await self._opened.library_client()
                return await missing_stream(client, name, arn, fault.text)
        if fault.code == NOT_FOUND and operation == SUBSCRIBE:
            # A missing shard counts as read to its end, a missing consumer must not.
            shards = await self.list_shards()
            if all(shard.shard_id != shard_id for shard in shards):
                # A listing may be incomplete: let Kinesis confirm ShardMissingError.
                await self.get_iterator(shard_id, Start.TRIM_HORIZON)
            return FatalError(
                f"the stream consumer of {self.label} doesn't exist any more: "
                "register it again with `kinesumer fan-out register`, then start "
                f"the client again ({describe(fault)})"
            )
        stream = self._stream.arn or self._stream.name
        return kinesis_error(fault, operation, stream, shard_id, self._keys)

    async def _require_stream(self) -> None:
        """Raise an error if the whole stream is missing, not only one of its shards.

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
