"""Compares imported positions with a group's rows, writes them and verifies them.

The stream's row is written first, without its baseline, then the shards' rows, then the
baseline. So a client that starts meanwhile claims nothing. After a crash, the same
import completes the rows.
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
    """A shard's new row, and its current row (None: it doesn't exist)."""

    row: ShardRow
    before: ShardRow | None

    @property
    def action(self) -> str:
        """Return create, change or keep."""
        if self.before is None:
            return "create"
        return "keep" if _place(self.row) == _place(self.before) else "change"


class StreamChanges(NamedTuple):
    """The changes of one stream's rows."""

    stream: StreamRow
    before: StreamRow | None
    changes: list[RowChange]

    @property
    def is_done(self) -> bool:
        """Whether all rows have their new values already."""
        return (
            self.before is not None
            and self.before.baseline
            and all(change.action == "keep" for change in self.changes)
        )


async def compare(
    context: ClientContext, info: StreamInfo, wanted: Sequence[ShardRow]
) -> StreamChanges:
    """Return the changes from a stream's current rows to the wanted ones.

    Raise StreamRecreatedError if the group knows another stream of this name, and
    CorruptRowError for a corrupt row.
    """
    stored = await context.read(rows.stream_key(context.app, info.arn))
    before = rows.read_stream(stored) if stored else None
    if before is not None:
        check_identity(before, info)
    known = {row.key.shard_id: row for row in await read_all(context, info.arn)}
    changes = [RowChange(row, known.get(row.key.shard_id)) for row in wanted]
    # If a crash prevents some rows, their shards are read from the start: nothing is
    # lost.
    stream = StreamRow(info.arn, info.created_at, Start.TRIM_HORIZON)
    return StreamChanges(before or stream, before, changes)


async def write(context: ClientContext, stream_changes: StreamChanges) -> None:
    """Write the changed rows, and verify them.

    No client may consume meanwhile: see ``require_no_clients``. Raise KinesumerError if
    the rows have other values afterwards.
    """
    if stream_changes.is_done:
        return
    await check_group(context, None)
    app, stream = context.app, stream_changes.stream
    if stream_changes.before is None:
        await context.write(writes.create_stream(app, stream))
    await context.write(admin_writes.withdraw(app, stream))
    await write_all(
        context,
        (
            writes.create_shard(app, change.row)
            if change.before is None
            else admin_writes.replace(app, change.row, change.before)
            for change in stream_changes.changes
            if change.action != "keep"
        ),
    )
    await _verify(context, stream_changes)
    await context.write(writes.baseline(app, stream))


async def _verify(context: ClientContext, stream_changes: StreamChanges) -> None:
    arn = stream_changes.stream.arn
    stored = {row.key.shard_id: row for row in await read_all(context, arn)}
    wrong = [
        change.row.key.shard_id
        for change in stream_changes.changes
        if (found := stored.get(change.row.key.shard_id)) is None
        or _place(found) != _place(change.row)
        or found.owner != _owner(change)
    ]
    if wrong:
        raise KinesumerError(
            f"stream {arn}: the rows of {', '.join(wrong)} have changed after they "
            "were written; make sure that no client of the app runs, and try again"
        )


def _owner(change: RowChange) -> str:
    """Return the expected owner: none, or the dead one of an unchanged row."""
    if change.before is not None and change.action == "keep":
        return change.before.owner
    return ""


def _place(row: ShardRow) -> tuple[object, ...]:
    """Return the imported values. The start matters only without a position."""
    start = row.start if row.position is None else None
    if row.ended:
        return (True,)
    return row.ended, row.ready, row.position, start
