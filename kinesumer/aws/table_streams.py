"""Call DynamoDB Streams: the source of one table's stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.errors import (
    AwsFailure,
    call_errors,
    translated_errors,
)
from kinesumer.aws.http.client import DirectCalls, Service
from kinesumer.aws.http.connection import Answer
from kinesumer.aws.polling import (
    PatientReservation,
    call_in_time,
    iterator_arguments,
)
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.streams import time_of
from kinesumer.aws.table_polling import Described, Skips, TablePollingSource
from kinesumer.aws.table_stream_errors import (
    DESCRIBE,
    NOT_FOUND,
    PLACE,
    READ,
    table_stream_error,
)
from kinesumer.errors import (
    KinesumerError,
    SourceUnavailableError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import Start, Stream
from kinesumer.model.table_streams import (
    TableStream,
    name_of_table,
    parse_table_stream,
    table_arn,
)
from kinesumer.ports import Reservation
from kinesumer.runtime.threads import refusal_errors
from kinesumer.wire.records import decode_iterator
from kinesumer.wire.table_streams import (
    decode_change_page,
    decode_stream_page,
    is_own_row,
)

STREAMS = Service(
    "dynamodbstreams",
    "DynamoDBStreams_20120810",
    "application/x-amz-json-1.0",
    samples={
        DESCRIBE: {},
        PLACE: {"ShardId": f"shardId-{0:020}", "ShardIteratorType": "LATEST"},
        READ: {"ShardIterator": "-"},
    },
)
# The names that DynamoDB Streams has for arguments of Kinesis.
_ARGUMENTS = {"StartingSequenceNumber": "SequenceNumber"}


class OwnRows(NamedTuple):
    """The app that reads, and the table in which its rows are."""

    app: str
    table: str


async def open_table_source(
    clients: ClientFactory, stream: Stream, own: OwnRows | None = None
) -> TableStreamSource:
    """Return the source of a table's stream, in its region and with its role.

    The changes of rows that ``own`` names are left out: otherwise each checkpoint would
    be a change, after which there is another checkpoint to store.

    Raise StreamMissingError if the table doesn't exist or has no stream.
    """
    named = parse_table_stream(stream.name)
    region, role = clients.access(stream, named.region)
    opened = await clients.open("dynamodbstreams", region, role)
    tables, arn = None, named.stream_arn
    if arn is None:
        tables = TableDescriptions(await clients.open("dynamodb", region, role), named)
        arn = await tables.stream_arn()
    skips = None
    if own is not None and named.table == own.table:
        stored = parse_table_stream(name_of_table(own.table))
        store = TableDescriptions(await clients.open("dynamodb"), stored)
        if await store.table_arn() == table_arn(arn):
            skips = partial(is_own_row, own.app)
    return TableStreamSource(opened, named, arn, tables, skips)


class TableDescriptions:
    """Finds the ARN of a table, and of its present stream."""

    def __init__(self, opened: OpenClient, named: TableStream) -> None:
        self._opened, self._named = opened, named

    async def stream_arn(self) -> str:
        """Return the ARN of the table's stream.

        Raise StreamMissingError if the table doesn't exist, or has no stream.
        """
        arn = await self.enabled_stream_arn()
        if arn is None:
            table = self._named.table
            raise StreamMissingError(
                f"Table {table!r} has no stream. Enable one: aws dynamodb update-table "
                f"--table-name {table} --stream-specification "
                "StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES. To read what "
                "is left of a stream that was disabled, name its ARN."
            )
        return arn

    async def enabled_stream_arn(self) -> str | None:
        """Return the ARN of the table's stream, or None if it has none."""
        found = await self._describe()
        is_enabled = found.get("StreamSpecification", {}).get("StreamEnabled")
        return str(found["LatestStreamArn"]) if is_enabled else None

    async def table_arn(self) -> str:
        """Return the ARN of the table."""
        return str((await self._describe())["TableArn"])

    async def _describe(self) -> dict[str, Any]:
        table, name = self._named.table, self._named.name_or_arn
        client, action = self._opened.client, "dynamodb:DescribeTable"
        with call_errors(action, name, SourceUnavailableError, self._opened.keys):
            try:
                answer = await client.describe_table(TableName=name)
            except client.exceptions.ResourceNotFoundException as error:
                region = client.meta.region_name
                raise StreamMissingError(
                    f"No table {table!r} in {region}. Check the name, the region and "
                    "the credentials."
                ) from error
            found: dict[str, Any] = answer["Table"]
            return found


class TableStreamSource(TablePollingSource):
    """The source of one table's stream, without retries. See ``ports.StreamSource``."""

    def __init__(
        self,
        opened: OpenClient,
        named: TableStream,
        arn: str,
        tables: TableDescriptions | None = None,
        skips: Skips | None = None,
    ) -> None:
        """Create the source of the stream with this ARN, without some records.

        ``tables`` tells if the table has another stream by now.
        """
        super().__init__(skips)
        self._direct = DirectCalls(opened, STREAMS)
        # Their connections are others than those that read records.
        self._others = DirectCalls(opened._replace(connections=opened.others), STREAMS)
        self._connections, self._keys = opened.connections, opened.keys
        self._named, self._arn, self._tables = named, arn, tables

    @property
    def label(self) -> str:
        """The stream's name, for messages."""
        return f"stream table/{self._named.table}"

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a block in which the running task's calls use one connection."""
        return self._connections.slot()

    async def arn(self) -> str:
        """Return the stream's ARN."""
        return self._arn

    async def _latest_arn(self) -> str | None:
        return None if self._tables is None else await self._tables.enabled_stream_arn()

    async def _describe(self, **arguments: object) -> Described:
        where = {"StreamArn": self._arn, **arguments}
        call = partial(self._others.call, DESCRIBE, where)
        answer = await self._call(DESCRIBE, call)
        with translated_errors(DESCRIBE, SourceUnavailableError):
            return Described(decode_stream_page(answer.body), time_of(answer.date))

    async def _place(self, shard_id: str, after: Position | Start) -> str:
        arguments = {
            _ARGUMENTS.get(name, name): value
            for name, value in iterator_arguments(after).items()
        }
        where = {"StreamArn": self._arn, "ShardId": shard_id, **arguments}
        call = partial(self._direct.call, PLACE, where)
        has_time = "Timestamp" in arguments
        answer = await self._call(PLACE, call, shard_id, has_time=has_time)
        return decode_iterator(answer.body)

    async def _read(
        self, iterator: str, limit: int, reservation: Reservation | None
    ) -> Page:
        patient = None if reservation is None else PatientReservation(reservation)
        arguments: dict[str, object] = {"ShardIterator": iterator, "Limit": limit}
        call = partial(self._direct.call, READ, arguments, reservation=patient)
        with refusal_errors(READ, SourceUnavailableError):
            answer = await self._call(READ, call, patient=patient)
            return decode_change_page(answer.body, time_of(answer.date))

    async def _call(
        self,
        operation: str,
        call: Callable[[], Awaitable[Answer]],
        shard_id: str = "",
        patient: PatientReservation | None = None,
        *,
        has_time: bool = False,
    ) -> Answer:
        slot = nullcontext() if operation == DESCRIBE else self.connection()
        explain = partial(
            self._error, operation=operation, shard_id=shard_id, has_time=has_time
        )
        return await call_in_time(operation, call, slot, explain, patient)

    async def _error(
        self, fault: AwsFailure, operation: str, shard_id: str, *, has_time: bool
    ) -> KinesumerError:
        """Return the library's error for a failed call."""
        if fault.code == NOT_FOUND:
            if operation == DESCRIBE:
                return StreamMissingError(
                    f"No stream {self._arn}. A stream is deleted a day after it was "
                    "disabled, or its table deleted. Check the name, the account and "
                    "the region, and enable the table's stream."
                )
            # The difference matters, since a missing shard counts as read to its end.
            await self._describe(Limit=1)
        resource = f"{self._arn}, {shard_id}" if shard_id else self._arn
        return table_stream_error(
            fault, operation, resource, self._keys, has_time=has_time
        )
