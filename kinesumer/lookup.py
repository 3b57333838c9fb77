"""What an app has consumed, found by the names that people give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError, shown
from kinesumer.model import stream_name
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.context import Context
    from kinesumer.wire.rows import ShardRow, StreamRow


async def find_stream(context: Context, name: str) -> StreamRow:
    """Return the row of a stream, called by name or ARN.

    Raises ConfigurationError if the app has none, or several of this name.
    """
    known = await read_streams(context)
    found = [row for row in known if name in (row.arn, stream_name(row.arn))]
    if len(found) == 1:
        return found[0]
    arns = shown(", ".join(row.arn for row in found or known))
    if found:
        raise ConfigurationError(f"there are several streams {name}: say {arns}")
    raise ConfigurationError(
        f"app {context.app!r} has consumed no stream {name!r}; it has {arns}"
    )


async def read_streams(context: Context) -> list[StreamRow]:
    """Return the rows of all streams that the app has consumed.

    Raises ConfigurationError if there are none, and CorruptRowError.
    """
    partition = rows.group_key(context.app).pk
    found = await context.until_available(
        lambda: context.store.query(
            partition, first=rows.STREAM_PREFIX, consistent=True
        )
    )
    if not found:
        raise unknown_app(context)
    return [rows.read_stream(row) for row in found]


def unknown_app(context: Context) -> ConfigurationError:
    """Return what to raise where an app has no rows."""
    return ConfigurationError(
        f"the state store knows no app {context.app!r}: nobody has consumed under this "
        "name there; check app, table and region"
    )


def find_shard(known: Iterable[ShardRow], arn: str, shard_id: str) -> ShardRow:
    """Return the row of a shard. Raises ConfigurationError if the app has none."""
    for row in known:
        if row.key.shard_id == shard_id:
            return row
    raise ConfigurationError(
        f"the app knows no shard {shard_id!r} of {arn}: kinesumer status shows all"
    )
