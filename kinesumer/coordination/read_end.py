"""End the iteration when the group has read its streams until a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from kinesumer.coordination.store_queries import read_shards, read_stream_row
from kinesumer.core.read_end import is_read_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.runtime.context import ClientContext


class Reader(Protocol):
    """The client whose reading ends."""

    def owned_shards(self) -> Iterable[OwnedShard]:
        """Return the shards that the client owns now."""

    def requested_streams(self) -> Iterable[OpenStream]:
        """Return the streams that the client consumes."""


async def until_read(context: ClientContext, reader: Reader) -> None:
    """Wait until the group has read each of the client's streams until its time."""
    # The rows of other clients' shards change when these clients commit.
    interval = context.config.commit_interval_seconds
    while not await _is_read(context, reader):
        await asyncio.sleep(interval)


async def _is_read(context: ClientContext, reader: Reader) -> bool:
    """Return whether the rows of all shards say so."""
    if not all(owned.reached for owned in reader.owned_shards()):
        return False  # this costs no request
    for stream in reader.requested_streams():
        row = await read_stream_row(context, stream.arn)
        # Before the first complete listing, rows of shards may be missing.
        if row is None or not row.baseline:
            return False
        found = await read_shards(context, stream.arn, consistent=True)
        if found.unreadable or not is_read_until(found.rows, stream.until):
            return False
    return True
