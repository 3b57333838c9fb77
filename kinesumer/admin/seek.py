"""Move the positions of shards while clients run.

Every change is conditional writes of single rows that clients find there sooner or
later; notices have them look at once. A Spark query reads its group's rows when it
starts only, so nothing of this is done while one lives.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.consuming.streams import open_streams
from kinesumer.coordination import store_queries
from kinesumer.coordination.pauses import QUERY_ADVICE, notify
from kinesumer.coordination.shard_sync import check_identity, write_all
from kinesumer.coordination.startup_checks import require_no_spark_query
from kinesumer.coordination.store_queries import (
    find_shard,
    find_stream,
    read_all,
    read_with_listing,
)
from kinesumer.core import lineage
from kinesumer.core.seek import steps
from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.wire import admin_writes, rows, writes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.aws.session import ClientFactory
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.core.seek import Step
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Shard
    from kinesumer.ports import Write
    from kinesumer.runtime.context import ClientContext


class SeekPlan(NamedTuple):
    """What a seek of one stream, or of one shard of it, will do."""

    stream: OpenStream
    to: Position | Start
    """LATEST has become a time."""
    generations: list[list[Step]]
    """Parents come before their children."""
    reopens: bool
    """Shards that have ended are read again."""
    ended: frozenset[str] = frozenset()
    """Ids of shards that have ended, and are to stay so."""

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self.stream.arn

    @property
    def steps(self) -> list[Step]:
        """All steps, parents first."""
        return [step for generation in self.generations for step in generation]


# --- seeks ---------------------------------------------------------------------------


async def plan_seek(
    context: ClientContext,
    stream: OpenStream,
    to: Position | Start,
    shard_id: str | None = None,
) -> SeekPlan:
    """Return what a seek of a stream, or of one of its shards, will do; write nothing.

    A stream's shards all go to the same time; those that have ended are read again,
    except for LATEST. A shard that has ended can't be sought alone, since its children
    come after it. Raises ConfigurationError, InvalidPositionError and
    TrimmedPositionError for a place that there isn't, StreamRecreatedError, and
    GroupBusyError while a Spark query lives.
    """
    await require_no_spark_query(context, QUERY_ADVICE)
    row = await find_stream(context, stream.arn)
    if not row.baseline:
        raise ConfigurationError(
            f"{stream.label}: its shards haven't been listed yet; clients that start "
            "begin at its start"
        )
    reopens = shard_id is None and to != Start.LATEST
    info = await context.until_available(stream.source.describe, stream.label)
    check_identity(row, info)
    if to == Start.LATEST:
        listed = await context.until_available(stream.source.list_shards, stream.label)
        to = await stream.latest_start(context, info, listed)
    if shard_id is not None:
        known = await read_all(context, stream.arn)
        await _check_shard(context, stream, find_shard(known, stream.arn, shard_id), to)
        return SeekPlan(stream, to, steps(known, (), {shard_id}), reopens)
    if isinstance(to, Position):
        raise ConfigurationError(f"position {to.sequence_number}: say of which shard")
    # Listed after that time: who isn't listed holds later records only.
    return await _plan_stream(context, stream, to, reopens=reopens)


async def _plan_stream(
    context: ClientContext, stream: OpenStream, to: Position | Start, *, reopens: bool
) -> SeekPlan:
    known, listed = await read_with_listing(context, stream)
    new = lineage.repairs(stream.arn, known, listed).create
    wanted = _wanted([*known, *new], listed, reopens=reopens)
    ended = frozenset(row.key.shard_id for row in known if row.ended) - wanted
    return SeekPlan(stream, to, steps(known, new, wanted), reopens, ended)


def _wanted(
    shards: Sequence[ShardRow], listed: Sequence[Shard], *, reopens: bool
) -> set[str]:
    """Return the ids of the shards that a seek of all is for: those still listed."""
    ids = {shard.shard_id for shard in listed}
    found = {row.key.shard_id for row in shards if reopens or not row.ended}
    return found & ids


async def _check_shard(
    context: ClientContext, stream: OpenStream, row: ShardRow, to: Position | Start
) -> None:
    shard_id = row.key.shard_id
    if row.ended:
        raise ConfigurationError(
            f"{stream.label}: shard {shard_id} has ended, and its children come after "
            "it: seek the whole stream"
        )
    if isinstance(to, Position):
        await context.until_available(
            lambda: stream.source.get_iterator(shard_id, to), stream.label
        )


async def seek(context: ClientContext, planned: SeekPlan) -> list[ShardRow]:
    """Do what ``plan_seek()`` said, and return the rows of the shards sought.

    Shards that ended meanwhile stay so where the plan reopens none, and aren't
    returned. May be repeated after a crash in the middle.
    """
    found, has_ended = await _seek_all(context, planned)
    while has_ended and planned.reopens:
        # Children of it that the plan doesn't know may be read already.
        planned = await _plan_stream(
            context, planned.stream, planned.to, reopens=planned.reopens
        )
        found, has_ended = await _seek_all(context, planned)
    await _open_children(context, planned.stream_arn)
    await notify(context)
    return found


async def conflicting_seeks(
    context: ClientContext, plans: Iterable[SeekPlan], sought: Iterable[ShardRow]
) -> list[ShardRow]:
    """Return the shards that another seek has moved or opened meanwhile, as they are.

    Of two seeks at a time each shard follows the last one: who ends last is told here.
    """
    then = {row.key: row.start for row in sought}
    return [
        row
        for plan in plans
        for row in await read_all(context, plan.stream_arn)
        if row.start != then.get(row.key, row.start)
        or (row.key.shard_id in plan.ended and not row.ended)
    ]


async def _seek_all(
    context: ClientContext, planned: SeekPlan
) -> tuple[list[ShardRow], bool]:
    """Return the rows sought, and whether a shard has ended since the plan was made."""
    met: list[ShardRow] = []
    for generation in planned.generations:
        sought = await asyncio.gather(
            *(_seek_one(context, planned.to, step) for step in generation)
        )
        met += [row for row in sought if row is not None]
        if planned.reopens and any(row.ended for row in met):
            break
    return [row for row in met if not row.ended], any(row.ended for row in met)


async def _seek_one(
    context: ClientContext, to: Position | Start, step: Step
) -> ShardRow | None:
    """Seek a shard unless it has ended since; return its row, if there is one still."""
    write = _first_write(context.app, to, step)
    while True:
        written = await context.write(write)
        if written.row is None:
            return None  # deleted, as Kinesis had forgotten it
        row = rows.read_shard(written.row)
        if written.applied or (row.ended and not step.row.ended):
            return row
        write = admin_writes.seek(context.app, row, to, waits=step.waits)


def _first_write(app: str, to: Position | Start, step: Step) -> Write:
    if not step.is_new:
        return admin_writes.seek(app, step.row, to, waits=step.waits)
    assert isinstance(to, Start)
    row = step.row._replace(start=to, ready=not step.waits)
    return writes.create_shard(app, row)


async def _open_children(context: ClientContext, arn: str) -> None:
    """Open shards whose parents have ended again before they were sought themselves.

    Their parents are read after them: what a seek beside this one reopens meanwhile
    refuses the write. Where a parent has no row, a keeper knows more.
    """
    children = await read_all(context, arn)
    pending = {parent for row in children for parent in row.parents}
    waiting = lineage.ready_children(children, await read_all(context, arn), pending)
    await write_all(context, [writes.ready(context.app, row) for row in waiting])


class SeekTarget(NamedTuple):
    """What to seek, and where to."""

    to: Position | Start
    stream: str | None = None
    """A name or an ARN; None: all streams that the app has consumed."""
    shard_id: str | None = None


async def plan_seeks(
    context: ClientContext, clients: ClientFactory, place: SeekTarget, roles: Roles
) -> list[SeekPlan]:
    """Return what a seek will do in each stream; write nothing.

    Raises as ``plan_seek`` does, StreamMissingError, and ConfigurationError for
    a time that lies in the future.
    """
    from kinesumer.aws.kinesis import open_source

    if place.stream is None:
        arns = [row.arn for row in await store_queries.read_streams(context)]
    else:
        arns = [(await store_queries.find_stream(context, place.stream)).arn]
    start = place.to if isinstance(place.to, Start) else Start.LATEST
    opened = await open_streams(
        context,
        [roles.stream(arn) for arn in arns],
        start,
        lambda stream: open_source(clients, stream),
    )
    return [
        await plan_seek(context, stream, place.to, place.shard_id)
        for stream in opened.values()
    ]
