"""Keeps a stream's shard rows in step with Kinesis: baseline, repairs, pruning.

Every write is conditional and repeatable, so that two keepers do no harm.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.coordination.membership import MAX_REQUEST_DELAY_SECONDS
from kinesumer.coordination.store_queries import read_shards
from kinesumer.core import lineage
from kinesumer.errors import CorruptRowError, StreamRecreatedError
from kinesumer.model.positions import Position
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import Start
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import gather_or_cancel
from kinesumer.wire import rows, writes
from kinesumer.wire.fields import is_sequence_number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kinesumer.consuming.streams import OpenStream
    from kinesumer.model.rows import Row, ShardRow
    from kinesumer.model.streams import Shard, StreamInfo
    from kinesumer.ports import Write
    from kinesumer.runtime.context import ClientContext

RESYNC_SECONDS = 300.0
"""How long rows are taken to be in step with a listing that stays the same: operators
may have opened shards again."""


class ShardSyncer:
    """Keeps the rows of some streams: every so often, and at once when asked to."""

    def __init__(
        self,
        context: ClientContext,
        streams: Mapping[str, OpenStream],
        kept: Callable[[], Collection[str]],
        changed: Callable[[], None],
    ) -> None:
        self._context = context
        self._streams = streams
        self._kept = kept
        self._changed = changed
        self._wake = asyncio.Event()

    def sync_soon(self) -> None:
        """Look at once: there may be more to keep."""
        self._wake.set()

    def resync(self) -> None:
        """Look at once, also where everything was in step: an operator wrote."""
        for stream in self._streams.values():
            stream.synced_listing = None
        self._wake.set()

    async def run(self) -> None:
        """Keep what is to be kept until cancelled."""
        running: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                kept = self._kept()
                for arn in running.keys() - kept:
                    # It may be deleted by now, which concerns nobody any more.
                    running.pop(arn).cancel()
                for arn in sorted(kept):
                    if arn not in running or running[arn].done():
                        running[arn] = tasks.create_task(self._sync(arn))
                try:
                    async with asyncio.timeout(
                        self._context.config.listing_interval_seconds
                    ):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()

    async def _sync(self, arn: str) -> None:
        if await sync_shards(self._context, self._streams[arn]):
            self._changed()


async def sync_shards(context: ClientContext, stream: OpenStream) -> bool:
    """Bring one stream's rows in step with its listing; tell whether they changed.

    Nothing changes while the stream's own row can't be read, which is reported. Raises
    StreamRecreatedError if the stream was made anew under the same name.
    """
    try:
        return await _sync_shards(context, stream)
    except CorruptRowError as error:
        context.failure_log.record_corrupt_row(error)
        return False


async def _sync_shards(context: ClientContext, stream: OpenStream) -> bool:
    info = await stream.describe(context)
    row = await _stream_row(context, stream.arn)
    if row is not None:
        check_identity(row, info)
    if row is None or not row.baseline:
        return await _create_initial_rows(context, stream, row, info)
    shards = await _list(context, stream)
    if context.clock.now() >= stream.synced_until:
        stream.synced_listing = None
    if shards == stream.synced_listing or not lineage.is_complete(shards):
        return False
    found, unreadable = await read_shards(context, stream.arn)
    repairs = lineage.repairs(stream.arn, found, shards, unreadable)
    before = stream.open_shard_starts
    stream.open_shard_starts = lineage.open_shard_starts([*found, *repairs.create])
    await write_all(
        context, [writes.create_shard(context.app, new) for new in repairs.create]
    )
    ready = repairs.ready and await _still_ready(context, stream, repairs.ready, shards)
    await write_all(
        context,
        [
            *(writes.ready(context.app, shard) for shard in ready),
            *(
                writes.prune_shard(context.app, shard)
                for shard in _long_unlisted(context, stream, repairs.prune)
            ),
        ],
    )
    # Nothing to repair, nothing under way: so it stays until the listing changes.
    is_open = all(row.ready or row.ended for row in found)
    is_synced = is_open and not (unreadable or any(repairs))
    stream.synced_listing = shards if is_synced else None
    stream.synced_until = context.clock.now() + RESYNC_SECONDS
    # The first time it is news, too: the leader may have read the rows before that.
    return before != stream.open_shard_starts or bool(repairs.create or repairs.ready)


async def _still_ready(
    context: ClientContext,
    stream: OpenStream,
    ready: list[ShardRow],
    shards: Sequence[Shard],
) -> list[ShardRow]:
    """Return those of the shards whose parents have ended, read after their epochs.

    A seek may have opened the parents again: then it raises the epochs after that.
    """
    found, unreadable = await read_shards(context, stream.arn, consistent=True)
    now = lineage.repairs(stream.arn, found, shards, unreadable).ready
    keys = {row.key for row in now}
    return [row for row in ready if row.key in keys]


def _long_unlisted(
    context: ClientContext, stream: OpenStream, shards: list[ShardRow]
) -> list[ShardRow]:
    """Return those of the ended shards that have been missing for long.

    A request to create the row may still be on its way: it must find the row there.
    """
    now, since = context.clock.now(), stream.unlisted_since
    stream.unlisted_since = {
        shard.key.shard_id: since.get(shard.key.shard_id, now) for shard in shards
    }
    return [
        shard
        for shard in shards
        if now - stream.unlisted_since[shard.key.shard_id] >= MAX_REQUEST_DELAY_SECONDS
    ]


def check_identity(row: StreamRow, info: StreamInfo) -> None:
    """Raise StreamRecreatedError if a stream isn't the one that the group knows."""
    if row.created_at != info.created_at:
        raise StreamRecreatedError(
            f"stream {info.arn} was made anew at "
            f"{rows.timestamp_text(info.created_at)}; the stored positions belong to "
            f"the one made at {rows.timestamp_text(row.created_at)}: consume it under "
            "another app name, or delete its rows from the state store"
        )


async def _stream_row(context: ClientContext, arn: str) -> StreamRow | None:
    row = await context.read(rows.stream_key(context.app, arn))
    return rows.read_stream(row) if row else None


async def _list(context: ClientContext, stream: OpenStream) -> Sequence[Shard]:
    return await context.until_available(stream.source.list_shards, stream.label)


async def _create_initial_rows(
    context: ClientContext, stream: OpenStream, row: StreamRow | None, info: StreamInfo
) -> bool:
    """Create a row for every shard of the start; only then may anyone claim.

    LATEST becomes the time after the listing: shards that it shows as closed hold
    nothing that counts. Whoever finds a start resolved by another can't know that, and
    reads closed shards from that time too.
    """
    shards = await _list(context, stream)
    if not lineage.is_complete(shards):
        return False
    closed: frozenset[str] = frozenset()
    if row is None:
        start = stream.start
        if start == Start.LATEST:
            open_ids = {shard.shard_id for shard in lineage.leaves(shards)}
            closed = frozenset(s.shard_id for s in shards) - open_ids
            info = await context.until_available(stream.source.describe, stream.label)
            start = await stream.latest_start(context, info, shards)
        mine = StreamRow(stream.arn, info.created_at, start)
        written = await context.write(writes.create_stream(context.app, mine))
        assert written.row is not None
        row = rows.read_stream(written.row)
        closed = closed if written.applied else frozenset()
    origin = lineage.Origin(row, closed, await _go_positions(context, stream))
    first = lineage.first_rows(origin, shards)
    stream.open_shard_starts = lineage.open_shard_starts(first)
    await write_all(context, [writes.create_shard(context.app, new) for new in first])
    await context.write(writes.baseline(context.app, row))
    logger.info(
        "%s: %d shards, start %s",
        stream.label,
        len(first),
        rows.start_text(row.start),
        extra={"stream": stream.name, "shards": len(first)},
    )
    return True


async def _go_positions(
    context: ClientContext, stream: OpenStream
) -> dict[str, Position]:
    """Return the checkpoints that Kinesumer for Go left for this app and stream."""
    partition = rows.go_partition(context.app, stream.name)
    found = await context.until_available(
        lambda: context.store.query(partition, consistent=True)
    )
    numbers = {str(row["sk"]): _go_number(row) for row in found}
    return {shard_id: Position(text) for shard_id, text in numbers.items() if text}


def _go_number(row: Row) -> str:
    """Return a checkpoint of Go's, empty where nothing was read yet.

    Raises CorruptRowError: to begin elsewhere would lose or repeat what Go had read.
    """
    number = row.get("sequence_number", "")
    if type(number) is str and (not number or is_sequence_number(number)):
        return number
    raise CorruptRowError(
        f"state store row pk={row.get('pk')!r} sk={row.get('sk')!r}: attribute "
        "sequence_number, which Kinesumer for Go left, can't be read; correct it, or "
        "delete the row to begin at the stream's start"
    )


async def write_all(context: ClientContext, todo: Iterable[Write]) -> None:
    """Apply independent writes; the first fault ends them.

    The context's store limits how many are under way, and how fast they go.
    """
    await gather_or_cancel(context.write(write) for write in todo)
