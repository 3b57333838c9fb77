"""How far each shard's stored position is behind, as Kinesis tells."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.aws.kinesis import open_source
from kinesumer.errors import (
    KinesumerError,
    ShardMissingError,
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.operations.reaching import NO_ROLES, Roles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.aws.session import Clients
    from kinesumer.model import ShardKey, Stream
    from kinesumer.ports import StreamSource
    from kinesumer.wire.rows import ShardRow

PARALLEL_READS = 16
TRIES = 4
PAUSE_SECONDS = 0.4


class Lags(NamedTuple):
    """What Kinesis said of streams and shards."""

    millis: dict[ShardKey, int]
    """How far each shard's stored position is behind its tip."""
    problems: dict[str, str]
    """Why a stream couldn't be read, by its ARN."""
    retention_hours: Mapping[str, int] = MappingProxyType({})
    """How long a stream keeps records, by its ARN."""


async def read_lags(
    clients: Clients,
    shards: Mapping[str, Sequence[ShardRow]],
    roles: Roles = NO_ROLES,
) -> Lags:
    """Ask Kinesis for the lag of every shard that hasn't ended.

    A stream that can't be read is a problem of that stream only.
    """
    retention: dict[str, int] = {}
    lags = Lags({}, {}, retention)
    limit = asyncio.Semaphore(PARALLEL_READS)
    await asyncio.gather(
        *(
            _of_stream(clients, roles.stream(arn), rows, limit, lags, retention)
            for arn, rows in shards.items()
        )
    )
    return lags


async def _of_stream(
    clients: Clients,
    stream: Stream,
    rows: Sequence[ShardRow],
    limit: asyncio.Semaphore,
    lags: Lags,
    retention: dict[str, int],
) -> None:
    try:
        source = await open_source(clients, stream)
        retention[stream.name] = (await source.describe()).retention_hours
        open_rows = [row for row in rows if not row.ended]
        found = await asyncio.gather(*(_of_shard(source, r, limit) for r in open_rows))
    except KinesumerError as error:
        lags.problems[stream.name] = str(error)
        return
    for row, millis in zip(open_rows, found, strict=True):
        if millis is not None:
            lags.millis[row.key] = millis


async def _of_shard(
    source: StreamSource, row: ShardRow, limit: asyncio.Semaphore
) -> int | None:
    """Read one record after the position; None if Kinesis has none of it any more.

    The shard's readers have the same five calls a second: throttling isn't a fault.
    """
    async with limit:
        for attempt in range(TRIES):
            try:
                after = row.position or row.start
                iterator = await source.get_iterator(row.key.shard_id, after)
                return (await source.get_records(iterator, 1)).millis_behind
            except (ShardMissingError, TrimmedPositionError):
                return None
            except (SourceThrottledError, SourceUnavailableError):
                if attempt == TRIES - 1:
                    raise
                await asyncio.sleep(PAUSE_SECONDS * (attempt + 1))
    return None
