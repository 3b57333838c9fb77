"""Open the source of any stream: of Kinesis, or of a DynamoDB table."""

from __future__ import annotations

from kinesumer.aws.fan_out import IN_USE_SECONDS
from kinesumer.aws.fan_out import open_reading_source as open_kinesis_source
from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.table_streams import (
    OwnRows,
    TableStreamSource,
    open_table_source,
)
from kinesumer.model.streams import Stream
from kinesumer.model.table_streams import is_table_stream
from kinesumer.ports import StreamSource


async def open_reading_source(
    clients: ClientFactory,
    stream: Stream,
    in_use_seconds: float = IN_USE_SECONDS,
    own: OwnRows | None = None,
) -> StreamSource:
    """Return the source from which a client reads a stream, with its fan-out, if any.

    From the stream of the state store's table, it gets no changes of its ``own`` rows.

    Raise StreamMissingError for a table that doesn't exist or has no stream, and the
    errors of ``fan_out.open_reading_source()``.
    """
    if is_table_stream(stream.name):
        return await open_table_source(clients, stream, own)
    return await open_kinesis_source(clients, stream, in_use_seconds)


async def open_polled_source(
    clients: ClientFactory, stream: Stream
) -> KinesisSource | TableStreamSource:
    """Return the source that polls a stream. Raise as ``open_reading_source()``."""
    if is_table_stream(stream.name):
        return await open_table_source(clients, stream)
    return await open_source(clients, stream)
