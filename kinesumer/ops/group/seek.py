"""Move the positions of shards while clients run.

Each change is a conditional write of one row. Clients read these rows regularly, and
at once after a notice. A Spark query reads its group's rows only when it starts, so a
seek requires that no query is alive.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import NamedTuple

from kinesumer.aws.session import ClientFactory
from kinesumer.aws.sources import open_polled_source
from kinesumer.consuming.streams import OpenStream, open_streams
from kinesumer.coordination.pauses import QUERY_ADVICE, notify
from kinesumer.coordination.shard_sync import check_identity, write_all
from kinesumer.coordination.startup_checks import require_no_spark_query
from kinesumer.coordination.store_queries import (
    find_shard,
    find_stream,
    read_all,
    read_streams,
    read_with_listing,
)
from kinesumer.core import lineage
from kinesumer.core.lineage import SeekStep
from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import Start
from kinesumer.ops.group.connect import Roles
from kinesumer.runtime.context import ClientContext
from kinesumer.wire import admin_writes, rows, shard_writes
from kinesumer.wire.rows import timestamp_text

# A sequence number has up to 129 digits; a single digit is probably a typo.
_POSITION = re.compile(r"[0-9]{2,129}(:[0-9]{1,15})?")


class SeekPlan(NamedTuple):
    """The steps of a seek of one stream, or of one shard of it."""

    stream: OpenStream
    to: Position | Start  # LATEST is replaced by the current time
    generations: list[list[SeekStep]]  # the steps, parents before their children
    reopens: bool  # whether ended shards are read again
    ended: frozenset[str] = frozenset()  # ended shards that aren't read again

    @property
    def steps(self) -> list[SeekStep]:
        """All steps, parents first."""
        return [step for generation in self.generations for step in generation]


async def plan_seek(
    context: ClientContext,
    stream: OpenStream,
    to: Position | Start,
    shard_id: str | None = None,
) -> SeekPlan:
    """Plan a seek of a stream, or of one of its shards, without any write.

    Ended shards are read again, unless the target is LATEST. An ended shard can't be
    seeked alone, because its children are read after it.

    Raises ConfigurationError, StreamRecreatedError, GroupBusyError while a Spark query
    is alive, and, for a position that doesn't exist, InvalidPositionError or
    TrimmedPositionError.
    """
    await require_no_spark_query(context, QUERY_ADVICE)
    row = await find_stream(context, stream.arn)
    if not row.baseline:
        raise ConfigurationError(
            f"{stream.label}: its shards haven't been listed yet; start a client, "
            "which lists them, then seek"
        )
    reopens = shard_id is None and to != Start.LATEST
    info = await context.until_available(stream.source.describe, stream.label)
    check_identity(row, info)
    if to == Start.LATEST:
        # All shards get one time, since LATEST would be another place at each retry.
        listed = await stream.list_shards(context)
        to = await stream.latest_start(context, info, listed)
    if shard_id is not None:
        known = await read_all(context, stream.arn)
        await _check_shard(context, stream, find_shard(known, stream.arn, shard_id), to)
        return SeekPlan(stream, to, lineage.seek_steps(known, (), {shard_id}), reopens)
    if isinstance(to, Position):
        raise ConfigurationError(
            f"position {to.sequence_number}: name the shard that it is in"
        )
    # The listing is made after the target time, so the shards that it lacks hold only
    # later records.
    return await _plan_stream(context, stream, to, reopens=reopens)


async def _plan_stream(
    context: ClientContext, stream: OpenStream, to: Position | Start, *, reopens: bool
) -> SeekPlan:
    known, listed = await read_with_listing(context, stream)
    new = lineage.repairs(stream.arn, known, listed).create
    # Shards that Kinesis no longer lists can't be read again.
    seeked = {shard.shard_id for shard in listed} & {
        row.key.shard_id for row in [*known, *new] if reopens or not row.ended
    }
    ended = frozenset(row.key.shard_id for row in known if row.ended) - seeked
    return SeekPlan(stream, to, lineage.seek_steps(known, new, seeked), reopens, ended)


async def _check_shard(
    context: ClientContext, stream: OpenStream, row: ShardRow, to: Position | Start
) -> None:
    shard_id = row.key.shard_id
    if row.ended:
        raise ConfigurationError(
            f"{stream.label}: shard {shard_id} has ended, and its children follow it: "
            "seek the whole stream"
        )
    if isinstance(to, Position):
        await context.until_available(
            lambda: stream.source.get_iterator(shard_id, to), stream.label
        )


async def seek(context: ClientContext, planned: SeekPlan) -> list[ShardRow]:
    """Carry out a plan, and return the rows of the seeked shards.

    If the plan doesn't reopen shards, shards that ended meanwhile remain ended and
    aren't returned. It is safe to repeat a seek after a crash.
    """
    seeked, has_ended = await _seek_all(context, planned)
    while has_ended and planned.reopens:
        # Clients may already read the ended shard's children, which the plan lacks.
        planned = await _plan_stream(
            context, planned.stream, planned.to, reopens=planned.reopens
        )
        seeked, has_ended = await _seek_all(context, planned)
    await _open_children(context, planned.stream.arn)
    await notify(context)
    return seeked


async def conflicting_seeks(
    context: ClientContext, plans: Iterable[SeekPlan], seeked: Iterable[ShardRow]
) -> list[ShardRow]:
    """Return the current rows of shards that another seek has moved or reopened.

    Of two concurrent seeks, the one that ends last finds what the other wrote last.
    """
    then = {row.key: row.start for row in seeked}
    return [
        row
        for plan in plans
        for row in await read_all(context, plan.stream.arn)
        if row.start != then.get(row.key, row.start)
        or (row.key.shard_id in plan.ended and not row.ended)
    ]


async def _seek_all(
    context: ClientContext, planned: SeekPlan
) -> tuple[list[ShardRow], bool]:
    """Return the seeked rows, and whether a shard has ended since the plan was made."""
    written: list[ShardRow] = []
    for generation in planned.generations:
        results = await asyncio.gather(
            *(_seek_one(context, planned.to, step) for step in generation)
        )
        written += [row for row in results if row is not None]
        # A shard has ended, and the plan lacks its children: the caller plans again
        # before later generations are seeked.
        if planned.reopens and any(row.ended for row in written):
            break
    seeked = [row for row in written if not row.ended]
    return seeked, len(seeked) < len(written)


async def _seek_one(
    context: ClientContext, to: Position | Start, step: SeekStep
) -> ShardRow | None:
    """Seek a shard unless it has ended since the plan; return its row if it exists."""
    if step.is_new:
        assert isinstance(to, Start)
        row = step.row._replace(start=to, ready=not step.waits)
        write = shard_writes.create_shard(context.app, row)
    else:
        write = admin_writes.seek(context.app, step.row, to, waits=step.waits)
    while True:
        written = await context.write(write)
        if written.row is None:
            return None  # Kinesis no longer lists the shard, so its row was deleted
        row = rows.read_shard(written.row)
        if written.applied or (row.ended and not step.row.ended):
            return row
        write = admin_writes.seek(context.app, row, to, waits=step.waits)


async def _open_children(context: ClientContext, arn: str) -> None:
    """Open seeked shards whose parents had ended by the time the shards were seeked.

    If a parent has no row, the leader's shard sync opens the child.
    """
    # If a concurrent seek reopens a parent meanwhile, the write's condition fails.
    children = await read_all(context, arn)
    pending = {parent for row in children for parent in row.parents}
    waiting = lineage.ready_children(children, await read_all(context, arn), pending)
    await write_all(context, [shard_writes.ready(context.app, row) for row in waiting])


async def plan_seeks(
    context: ClientContext,
    clients: ClientFactory,
    roles: Roles,
    to: Position | Start,
    stream: str | None = None,
    shard_id: str | None = None,
) -> list[SeekPlan]:
    """Plan a seek of one stream, or of all that the app has consumed.

    Raises the same errors as ``plan_seek()``.
    """
    if stream is None:
        arns = [row.arn for row in await read_streams(context)]
    else:
        arns = [(await find_stream(context, stream)).arn]
    start = to if isinstance(to, Start) else Start.LATEST
    opened = await open_streams(
        context,
        [roles.stream(arn) for arn in arns],
        start,
        lambda named: open_polled_source(clients, named),
    )
    return [await plan_seek(context, one, to, shard_id) for one in opened.values()]


def parse_position(
    text: str, shard: str | None, *, name: str = "--to"
) -> Position | Start:
    """Parse the value of ``name`` as a position or start. Raises ConfigurationError."""
    if not _POSITION.fullmatch(text):
        return Start.parse(text, name=name)
    if shard is None:
        raise ConfigurationError(
            f"{name} {text} is a position: name its shard by --shard"
        )
    return Position.of_text(text)


def position_text(position: Position | Start) -> str:
    """Format a position or a start as a value of ``--to``."""
    if not isinstance(position, Start):
        return position.text
    if position.timestamp is None:
        return position.type
    return timestamp_text(position.timestamp)
