"""Where a group is, as the state store holds it: ``startingPosition=checkpoint``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError
from kinesumer.keeper import check_identity
from kinesumer.leader import read_shards
from kinesumer.model import Start
from kinesumer.spark.offsets import END, After, Offset, StreamOffset
from kinesumer.spark.positions import UNKNOWN
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kinesumer.context import Context
    from kinesumer.spark.offsets import Place
    from kinesumer.streams import OpenStream
    from kinesumer.wire.rows import ShardRow


async def stored_offset(
    context: Context, table: str, streams: Mapping[str, OpenStream]
) -> Offset:
    """Return the places of all shards that the group knows, by stream.

    Raises ConfigurationError for a stream that it has no rows of, and
    StreamReplacedError for one that was made anew since.
    """
    return {
        arn: await _of_stream(context, table, stream) for arn, stream in streams.items()
    }


async def _of_stream(context: Context, table: str, stream: OpenStream) -> StreamOffset:
    found = await context.read(rows.stream_key(context.app, stream.arn))
    row = rows.read_stream(found) if found else None
    if row is None or not row.baseline:
        raise ConfigurationError(
            f"startingPosition=checkpoint: table {table} holds no positions of app "
            f"{context.app!r} for stream {stream.arn}; check app and table, or begin "
            "with LATEST, TRIM_HORIZON or AT_TIMESTAMP"
        )
    check_identity(row, stream.info)
    shards = await context.until_available(stream.source.list_shards, stream.label)
    listed = {shard.shard_id for shard in shards}
    known = await read_shards(context, stream.arn, consistent=True)
    return StreamOffset(stream.info.created_at, places(known, listed))


def places(known: Iterable[ShardRow], listed: set[str]) -> dict[str, Place]:
    """Return where to go on in each shard that Kinesis still lists.

    A child that waits for its parents has no place yet: it is read from its beginning.
    When a position's record arrived isn't stored: how old it is has to be looked up.
    """
    found: dict[str, Place] = {}
    for row in known:
        shard_id = row.key.shard_id
        if shard_id not in listed:
            continue
        if row.ended:
            found[shard_id] = END
        elif row.position is not None:
            found[shard_id] = After(row.position, UNKNOWN)
        elif row.ready or row.start != Start.TRIM_HORIZON:
            found[shard_id] = row.start
    return found
