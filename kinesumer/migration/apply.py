"""Positions that a group takes over: compared with its rows, written once, verified.

The stream's row comes first, without its baseline, then its shards' rows, then the
baseline: a client that starts in between claims nothing, and what a crash left half
done is done by the next try.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.coordination.shard_sync import check_identity, write_all
from kinesumer.coordination.startup_checks import check_group
from kinesumer.coordination.store_queries import read_all
from kinesumer.errors import KinesumerError
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import Start
from kinesumer.wire import admin_writes, rows, writes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import StreamInfo
    from kinesumer.runtime.context import ClientContext


class RowChange(NamedTuple):
    """A shard's row as it is to be, and as it is (None: there is none)."""

    row: ShardRow
    before: ShardRow | None

    @property
    def action(self) -> str:
        """Return create, change or keep."""
        if self.before is None:
            return "create"
        return "keep" if _place(self.row) == _place(self.before) else "change"


class StreamChanges(NamedTuple):
    """What is to be written for one stream."""

    stream: StreamRow
    before: StreamRow | None
    changes: list[RowChange]

    @property
    def is_done(self) -> bool:
        """Whether all of it stands there already, free for clients."""
        return (
            self.before is not None
            and self.before.baseline
            and all(change.action == "keep" for change in self.changes)
        )


async def compare(
    context: ClientContext, info: StreamInfo, wanted: Sequence[ShardRow]
) -> StreamChanges:
    """Return what rows a stream has and which it is to get.

    Raises StreamRecreatedError if the group knows another stream of this name, and
    CorruptRowError.
    """
    stored = await context.read(rows.stream_key(context.app, info.arn))
    before = rows.read_stream(stored) if stored else None
    if before is not None:
        check_identity(before, info)
    known = {row.key.shard_id: row for row in await read_all(context, info.arn)}
    changes = [RowChange(row, known.get(row.key.shard_id)) for row in wanted]
    # Should a crash leave rows out, nothing is lost: they are read from their start.
    stream = StreamRow(info.arn, info.created_at, Start.TRIM_HORIZON)
    return StreamChanges(before or stream, before, changes)


async def write(context: ClientContext, adoption: StreamChanges) -> None:
    """Write what differs, and verify that it stands there.

    Nobody may consume meanwhile: see ``acting.refuse_clients``. Raises KinesumerError
    where somebody did.
    """
    if adoption.is_done:
        return
    await check_group(context, None)
    app, stream = context.app, adoption.stream
    if adoption.before is None:
        await context.write(writes.create_stream(app, stream))
    await context.write(admin_writes.withdraw(app, stream))
    await write_all(
        context,
        (
            writes.create_shard(app, change.row)
            if change.before is None
            else admin_writes.replace(app, change.row, change.before)
            for change in adoption.changes
            if change.action != "keep"
        ),
    )
    await _verify(context, adoption)
    await context.write(writes.baseline(app, stream))


async def _verify(context: ClientContext, adoption: StreamChanges) -> None:
    arn = adoption.stream.arn
    stored = {row.key.shard_id: row for row in await read_all(context, arn)}
    wrong = [
        change.row.key.shard_id
        for change in adoption.changes
        if (found := stored.get(change.row.key.shard_id)) is None
        or _place(found) != _place(change.row)
        or found.owner != _owner(change)
    ]
    if wrong:
        raise KinesumerError(
            f"stream {arn}: the rows of {', '.join(wrong)} aren't what was written: "
            "somebody else writes there; make sure that no client of the app runs, "
            "and repeat it"
        )


def _owner(change: RowChange) -> str:
    """Return the owner that a row may have: a dead one where nothing was changed."""
    if change.before is not None and change.action == "keep":
        return change.before.owner
    return ""


def _place(row: ShardRow) -> tuple[object, ...]:
    """Return what is taken over: a start counts as long as there is no position."""
    start = row.start if row.position is None else None
    if row.ended:
        return (True,)
    return row.ended, row.ready, row.position, start
