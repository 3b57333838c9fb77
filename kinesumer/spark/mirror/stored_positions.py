"""Where a group is, as the state store holds it: ``startingPosition=checkpoint``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.coordination.shard_sync import check_identity
from kinesumer.coordination.store_queries import read_with_listing
from kinesumer.core import lineage
from kinesumer.errors import ConfigurationError
from kinesumer.spark.options.positions import UNKNOWN
from kinesumer.spark.planning.offsets import END, After, Offset, StreamOffset
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.consuming.streams import OpenStream
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Shard
    from kinesumer.runtime.context import ClientContext
    from kinesumer.spark.planning.offsets import Place


async def stored_offset(
    context: ClientContext, table: str, streams: Mapping[str, OpenStream]
) -> Offset:
    """Return the places of all shards that the group knows, by stream.

    Raises ConfigurationError for a stream that it has no rows of, and
    StreamRecreatedError for one that was made anew since.
    """
    return {
        arn: await _of_stream(context, table, stream) for arn, stream in streams.items()
    }


async def _of_stream(
    context: ClientContext, table: str, stream: OpenStream
) -> StreamOffset:
    found = await context.read(rows.stream_key(context.app, stream.arn))
    row = rows.read_stream(found) if found else None
    if row is None or not row.baseline:
        raise ConfigurationError(
            f"startingPosition=checkpoint: table {table} holds no positions of app "
            f"{context.app!r} for stream {stream.arn}; check app and table, or begin "
            "with LATEST, TRIM_HORIZON or AT_TIMESTAMP"
        )
    check_identity(row, stream.info)
    known, listed = await read_with_listing(context, stream)
    return StreamOffset(stream.info.created_at, places(stream.arn, known, listed))


def places(
    arn: str, known: Sequence[ShardRow], listed: Sequence[Shard]
) -> dict[str, Place]:
    """Return where to go on in each shard that Kinesis still lists.

    Shards that wait for their parents are among them: what no offset names, but a
    descendant of it, counts as read. When a position's record arrived is not stored,
    but for shards that were quiet it is, up to when they held nothing more.
    """
    waiting = lineage.repairs(arn, known, listed).create
    ids = {shard.shard_id for shard in listed}
    return {
        row.key.shard_id: _place(row)
        for row in [*known, *waiting]
        if row.key.shard_id in ids
    }


def _place(row: ShardRow) -> Place:
    if row.ended:
        return END
    if row.position is None:
        return row.start
    return After(row.position, row.read_until or UNKNOWN)
