"""Sync shard rows with Kinesis: create, repair and prune them.

Every write is conditional and repeatable. So two clients may sync the same stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.store_queries import (
    REREAD_SECONDS,
    read_shards,
    read_stream_row,
)
from kinesumer.core import lineage
from kinesumer.core.liveness import MAX_REQUEST_DELAY_SECONDS
from kinesumer.errors import CorruptRowError, StreamRecreatedError
from kinesumer.model.positions import Position
from kinesumer.model.rows import Row, ShardRow, StreamRow
from kinesumer.model.streams import Shard, Start, StreamInfo
from kinesumer.ports import Write
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import gather_or_cancel, wait_and_clear
from kinesumer.wire import rows, shard_writes, writes
from kinesumer.wire.fields import is_sequence_number

# Rows are created so long after a read at most. KCL's workers look once a minute for
# leases that they can delete.
MAX_AGE_SECONDS = 30.0


class ShardSyncer:
    """Syncs the shard rows of a client's streams, at intervals and on request."""

    def __init__(
        self,
        context: ClientContext,
        streams: Mapping[str, OpenStream],
        synced: Callable[[], frozenset[str]],
        rows_changed: Callable[[], None],
    ) -> None:
        """Create the syncer. ``synced`` returns the ARNs that the client syncs now."""
        self._context = context
        self._streams = streams
        self._synced, self._rows_changed = synced, rows_changed
        self._wake = asyncio.Event()

    def sync_soon(self) -> None:
        """Sync at once, since this client may now sync more streams."""
        self._wake.set()

    def resync(self) -> None:
        """Sync all streams at once, since an operator may have changed rows."""
        for stream in self._streams.values():
            stream.synced_listing = None
        self._wake.set()

    async def run(self) -> None:
        """Sync until cancelled."""
        interval = self._context.config.listing_interval_seconds
        running: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                streams = self._synced()
                for arn in running.keys() - streams:
                    # This client no longer syncs the stream, which may have been
                    # deleted. So errors of the stream don't matter.
                    running.pop(arn).cancel()
                for arn in sorted(streams):
                    if arn not in running or running[arn].done():
                        running[arn] = tasks.create_task(self._sync(arn))
                await wait_and_clear(self._wake, interval)

    async def _sync(self, arn: str) -> None:
        if await sync_shards(self._context, self._streams[arn]):
            self._rows_changed()


async def sync_shards(context: ClientContext, stream: OpenStream) -> bool:
    """Sync one stream's rows with its listing; return whether open shards changed.

    If the stream's own row is corrupt, report that and change nothing. Raises
    StreamRecreatedError if the stream was deleted and created again.
    """
    try:
        return await _sync_shards(context, stream)
    except CorruptRowError as error:
        context.failure_log.record_corrupt_row(error)
        return False


async def _sync_shards(context: ClientContext, stream: OpenStream) -> bool:
    info = await stream.describe(context)
    row = await read_stream_row(context, stream.arn)
    if row is not None:
        check_identity(row, info)
    if row is None or not row.baseline:
        return await _create_initial_rows(context, stream, row, info)
    shards = await stream.list_shards(context)
    if context.clock.now() >= stream.synced_until:
        stream.synced_listing = None
    if shards == stream.synced_listing or not lineage.is_complete(shards):
        return False
    found, unreadable = await read_shards(context, stream.arn)
    repairs = lineage.repairs(stream.arn, found, shards, unreadable)
    read_at = context.clock.now()
    if repairs.create:
        # Rows that seem to be missing may only be newer than the ones that were read.
        found, unreadable = await read_shards(context, stream.arn, consistent=True)
        repairs = lineage.repairs(stream.arn, found, shards, unreadable)
    reopened = await _reopen(context, stream, repairs.reopen)
    found = [row for row in found if row not in reopened]
    found += [row._replace(ended=False) for row in reopened]
    before = stream.open_shard_starts
    stream.open_shard_starts = lineage.open_shard_starts([*found, *repairs.create])
    await create_rows(context, repairs.create, read_at)
    ready = repairs.ready and await _still_ready(context, stream, repairs.ready, shards)
    await write_all(
        context,
        [
            *(shard_writes.ready(context.app, shard) for shard in ready),
            *(
                shard_writes.prune_shard(context.app, shard)
                for shard in _long_unlisted(context, stream, repairs.prune)
            ),
        ],
    )
    # If all shards are ready or ended, only a new listing can require repairs. So the
    # rows of a stream without reshards are seldom read.
    is_open = all(row.ready or row.ended for row in found)
    is_synced = is_open and not (unreadable or any(repairs))
    stream.synced_listing = shards if is_synced else None
    stream.synced_until = context.clock.now() + REREAD_SECONDS
    # Report a change also on the first pass: the leader may have read older rows.
    return before != stream.open_shard_starts or bool(repairs.create or repairs.ready)


async def create_rows(
    context: ClientContext, missing: Iterable[ShardRow], read_at: float
) -> None:
    """Create the rows that were missing in a consistent read, which began at a time.

    In a KCL fleet, a shard without a lease counts as read to its end. So parents come
    first. And KCL's workers delete the leases of ended shards early. So after some
    time, a missing lease may be one that was deleted, and no more are created.
    """
    for generation in lineage.generations(missing):
        if context.clock.now() - read_at > MAX_AGE_SECONDS:
            return
        creates = [shard_writes.create_shard(context.app, row) for row in generation]
        await write_all(context, creates)


async def _reopen(
    context: ClientContext, stream: OpenStream, shards: list[ShardRow]
) -> list[ShardRow]:
    """Let shards be read again whose rows have ended, but that are open in Kinesis.

    The first time, the listing may be older than the row. So return, and reopen, only
    the shards that the last sync found, too.
    """
    before = stream.ended_but_open
    stream.ended_but_open = frozenset((row.key.shard_id, row.epoch) for row in shards)
    wrong = [row for row in shards if (row.key.shard_id, row.epoch) in before]
    for row in wrong:
        logger.warning(
            "%s: shard %s was marked as read to its end, but it is open: it is read "
            "again after its position",
            stream.label,
            row.key.shard_id,
            extra={"stream": stream.name, "shard_id": row.key.shard_id},
        )
    await write_all(context, [shard_writes.reopen(context.app, row) for row in wrong])
    return wrong


async def _still_ready(
    context: ClientContext,
    stream: OpenStream,
    ready: list[ShardRow],
    shards: Sequence[Shard],
) -> list[ShardRow]:
    """Read the parents again; return the shards whose parents have ended.

    A seek may have opened the parents again meanwhile. It also raises the children's
    epochs. So if a seek comes after this read, the store refuses to mark them as ready.
    """
    found, unreadable = await read_shards(context, stream.arn, consistent=True)
    now = lineage.repairs(stream.arn, found, shards, unreadable).ready
    keys = {row.key for row in now}
    return [row for row in ready if row.key in keys]


def _long_unlisted(
    context: ClientContext, stream: OpenStream, shards: list[ShardRow]
) -> list[ShardRow]:
    """Return the ended shards that have been missing in the listing for a long time.

    Only their rows may be deleted: after that time, no delayed request to create such a
    row can arrive any more.
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
    """Raise StreamRecreatedError if the group's row belongs to an earlier stream."""
    if row.created_at != info.created_at:
        raise StreamRecreatedError(
            f"stream {info.arn} was created again at "
            f"{rows.timestamp_text(info.created_at)}; the stored positions belong to "
            f"the stream created at {rows.timestamp_text(row.created_at)}: consume it "
            "under another app name, or delete its rows from the state store"
        )


async def _create_initial_rows(
    context: ClientContext, stream: OpenStream, row: StreamRow | None, info: StreamInfo
) -> bool:
    """Create the first rows of a stream; no client claims a shard before that.

    The start LATEST is stored as a time after the listing. So shards that the listing
    shows as closed hold no records after the start.
    """
    shards = await stream.list_shards(context)
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
        new_row = StreamRow(stream.arn, info.created_at, start)
        written = await context.write(writes.create_stream(context.app, new_row))
        assert written.row is not None
        row = rows.read_stream(written.row)
        if row.baseline:  # the store has the rows already
            return True
        _warn_of_expired_start(stream, row.start, info)
        # If another client stored the start before this listing, shards that closed in
        # between may hold records after the start.
        closed = closed if written.applied else frozenset()
    origin = lineage.Origin(row, closed, await _go_positions(context, stream))
    first = lineage.first_rows(origin, shards)
    stream.open_shard_starts = lineage.open_shard_starts(first)
    await write_all(
        context, [shard_writes.create_shard(context.app, new) for new in first]
    )
    # Mark the rows as complete last, so that after a crash another client creates the
    # missing ones.
    await context.write(writes.baseline(context.app, row))
    logger.info(
        "%s: %d shards, start %s",
        stream.label,
        len(first),
        rows.start_text(row.start),
        extra={"stream": stream.name, "shards": len(first)},
    )
    return True


def _warn_of_expired_start(stream: OpenStream, start: Start, info: StreamInfo) -> None:
    if start.timestamp is not None and (text := info.expired_start(start.timestamp)):
        logger.warning(
            "%s: %s; records may be lost, and the app begins with the oldest record",
            stream.label,
            text,
            extra={"stream": stream.name},
        )


async def _go_positions(
    context: ClientContext, stream: OpenStream
) -> dict[str, Position]:
    """Return the checkpoints of Kinesumer for Go for this app and stream."""
    partition = rows.go_partition(context.app, stream.name)
    stored = await context.query(partition)
    numbers = {str(row["sk"]): _go_number(row) for row in stored}
    return {shard_id: Position(text) for shard_id, text in numbers.items() if text}


def _go_number(row: Row) -> str:
    """Return a checkpoint of Kinesumer for Go, or "" if nothing was read yet.

    Raises CorruptRowError for any other value, since starting elsewhere would lose or
    repeat records.
    """
    number = row.get("sequence_number", "")
    if type(number) is str and (not number or is_sequence_number(number)):
        return number
    raise CorruptRowError(
        f"state store row pk={row.get('pk')!r} sk={row.get('sk')!r}: attribute "
        "sequence_number of Kinesumer for Go isn't a sequence number; correct it, or "
        "delete the row to begin at the stream's start"
    )


async def write_all(context: ClientContext, pending: Iterable[Write]) -> None:
    """Apply independent writes in parallel; the first error cancels the others.

    The context's store limits their number and rate.
    """
    await gather_or_cancel(context.write(write) for write in pending)
