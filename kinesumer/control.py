"""What operators change while clients run: pauses, drained clients, seeks.

Every change is conditional writes of single rows that clients find there sooner or
later; notices have them look at once. A Spark query reads its group's rows when it
starts only, so nothing of this is done while one lives.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core import lineage, plan, seeking
from kinesumer.errors import ConfigurationError, KinesumerError, shown
from kinesumer.identity import refuse_query
from kinesumer.keeper import check_identity, write_all
from kinesumer.lookup import find_shard, find_stream, unknown_app
from kinesumer.model import Position, Start, stream_name
from kinesumer.shard_rows import read_all, read_with_listing
from kinesumer.wire import operators, rows, writes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesumer.context import Context
    from kinesumer.core.seeking import Step
    from kinesumer.model import Shard
    from kinesumer.ports import Key, Row, Write
    from kinesumer.streams import OpenStream
    from kinesumer.wire.rows import MemberRow, ShardRow

LONGEST_REASON = 200
"""Rows stay under a kilobyte, since DynamoDB bills by it."""
QUERY_ADVICE = "it notices no change while it runs: stop the query first"


class Target(NamedTuple):
    """What a pause is for: everything, a stream, or one shard of it."""

    stream_arn: str = ""
    shard_id: str = ""

    def covers(self, shard: ShardRow) -> bool:
        """Tell whether a shard is part of it."""
        arn, shard_id = shard.key
        return self.stream_arn in ("", arn) and self.shard_id in ("", shard_id)

    def __str__(self) -> str:
        if not self.stream_arn:
            return "all streams"
        stream = f"stream {shown(stream_name(self.stream_arn))}"
        return f"shard {self.shard_id} of {stream}" if self.shard_id else stream


class Marked(NamedTuple):
    """A pause or its end: what it is for, and how it was before."""

    target: Target
    paused: bool
    reason: str
    was_paused: bool
    was_reason: str


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


# --- pauses --------------------------------------------------------------------------


async def pause(
    context: Context,
    stream: str | None = None,
    shard: str | None = None,
    reason: str = "",
) -> Marked:
    """Have nobody consume an app's shards, those of a stream, or one, until resumed.

    Their owners finish what is in user code, store positions and release them. Raises
    ConfigurationError for a stream or shard that the app doesn't know, and for a reason
    that is too long or can't be printed; GroupHeldError while a Spark query lives.
    """
    if len(reason) > LONGEST_REASON:
        raise ConfigurationError(
            f"a reason of {len(reason)} characters: say it in {LONGEST_REASON}"
        )
    if not reason.isprintable():
        raise ConfigurationError(
            f"reason {shown(reason)}: it has characters that can't be printed"
        )
    return await _mark(context, stream, shard, reason, paused=True)


async def resume(
    context: Context, stream: str | None = None, shard: str | None = None
) -> Marked:
    """Take back the pause of an app, a stream or a shard, and no other pause.

    Raises as ``pause()`` does.
    """
    return await _mark(context, stream, shard, "", paused=False)


async def _mark(
    context: Context,
    stream: str | None,
    shard: str | None,
    reason: str,
    *,
    paused: bool,
) -> Marked:
    await refuse_query(context, QUERY_ADVICE)
    target, key, before = await marked_row(context, stream, shard)
    write = operators.pause(key, reason) if paused else operators.resume(key)
    written = await context.write(write)
    if not written.applied:
        raise KinesumerError(f"{target} was deleted just now: look at the app again")
    await notify(context)
    was = before.get("paused") is True
    return Marked(target, paused, reason, was, str(before.get("pause_reason", "")))


async def marked_row(
    context: Context, stream: str | None, shard: str | None
) -> tuple[Target, Key, Row]:
    """Return what is meant, and the row that is marked for it.

    Raises ConfigurationError for a stream or shard that the app doesn't know.
    """
    if stream is None:
        if shard is not None:
            raise ConfigurationError(f"shard {shard}: say of which stream")
        key = rows.group_key(context.app)
        row = await context.read(key)
        if row is None:
            raise unknown_app(context)
        return Target(), key, row
    arn = (await find_stream(context, stream)).arn
    if shard is None:
        key = rows.stream_key(context.app, arn)
        return Target(arn), key, await context.read(key) or {}
    found = find_shard(await read_all(context, arn), arn, shard)
    key = writes.shard_row_key(context.app, found)
    return Target(arn, shard), key, await context.read(key) or {}


# --- clients -------------------------------------------------------------------------


async def notify(context: Context) -> None:
    """Have all clients read the rows again: they see it at their next heartbeat."""
    app, members = context.app, await _live_members(context)
    # One refused has died, registered anew, or been told by another operator: it reads
    # the rows after our change.
    await write_all(context, [operators.notify(app, member) for member in members])


async def drain(
    context: Context, client_id: str, *, undo: bool = False, even_last: bool = False
) -> MemberRow:
    """Take a client's shards away for as long as it runs, or let it have some again.

    Returns its row as it was before. Raises ConfigurationError if no such client lives,
    and, unless ``even_last``, if no other would be left to take its shards.
    """
    await refuse_query(context, QUERY_ADVICE)
    members = plan.alive(await _live_members(context))
    found = {member.client_id: member for member in members}
    member = found.pop(client_id, None)
    if member is None:
        names = shown(", ".join(found)) or "none"
        raise ConfigurationError(
            f"no client {client_id!r} of app {context.app!r} is alive; there is {names}"
        )
    if not (undo or even_last or plan.takers(list(found.values()))):
        raise ConfigurationError(
            f"{shown(client_id)} is the last client that takes shards: without it "
            "nothing is consumed; start another one first, or pause the app"
        )
    written = await context.write(
        operators.drain(context.app, member, drained=not undo)
    )
    if not written.applied:
        raise KinesumerError(f"{shown(client_id)} has just died or begun anew")
    return member


async def _live_members(context: Context) -> list[MemberRow]:
    partition = rows.member_key(context.app, "").pk
    found = await context.until_available(
        lambda: context.store.query(partition, consistent=True)
    )
    members = context.all_readable(rows.read_member, found)
    return [member for member in members if not member.dead]


# --- seeks ---------------------------------------------------------------------------


async def plan_seek(
    context: Context,
    stream: OpenStream,
    to: Position | Start,
    shard_id: str | None = None,
) -> SeekPlan:
    """Return what a seek of a stream, or of one of its shards, will do; write nothing.

    A stream's shards all go to the same time; those that have ended are read again,
    except for LATEST. A shard that has ended can't be sought alone, since its children
    come after it. Raises ConfigurationError, PositionRefusedError and
    TrimmedPositionError for a place that there isn't, StreamReplacedError, and
    GroupHeldError while a Spark query lives.
    """
    await refuse_query(context, QUERY_ADVICE)
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
        to = Start(type="AT_TIMESTAMP", timestamp=info.now)
    if shard_id is not None:
        known = await read_all(context, stream.arn)
        await _check_shard(context, stream, find_shard(known, stream.arn, shard_id), to)
        return SeekPlan(stream, to, seeking.steps(known, (), {shard_id}), reopens)
    if isinstance(to, Position):
        raise ConfigurationError(f"position {to.sequence_number}: say of which shard")
    # Listed after that time: who isn't listed holds later records only.
    return await _plan_stream(context, stream, to, reopens=reopens)


async def _plan_stream(
    context: Context, stream: OpenStream, to: Position | Start, *, reopens: bool
) -> SeekPlan:
    known, listed = await read_with_listing(context, stream)
    new = lineage.repairs(stream.arn, known, listed).create
    wanted = _wanted([*known, *new], listed, reopens=reopens)
    ended = frozenset(row.key.shard_id for row in known if row.ended) - wanted
    return SeekPlan(stream, to, seeking.steps(known, new, wanted), reopens, ended)


def _wanted(
    shards: Sequence[ShardRow], listed: Sequence[Shard], *, reopens: bool
) -> set[str]:
    """Return the ids of the shards that a seek of all is for: those still listed."""
    ids = {shard.shard_id for shard in listed}
    found = {row.key.shard_id for row in shards if reopens or not row.ended}
    return found & ids


async def _check_shard(
    context: Context, stream: OpenStream, row: ShardRow, to: Position | Start
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


async def seek(context: Context, planned: SeekPlan) -> list[ShardRow]:
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


async def overtaken(
    context: Context, plans: Iterable[SeekPlan], sought: Iterable[ShardRow]
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


async def _seek_all(context: Context, planned: SeekPlan) -> tuple[list[ShardRow], bool]:
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
    context: Context, to: Position | Start, step: Step
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
        write = operators.seek(context.app, row, to, waits=step.waits)


def _first_write(app: str, to: Position | Start, step: Step) -> Write:
    if not step.is_new:
        return operators.seek(app, step.row, to, waits=step.waits)
    assert isinstance(to, Start)
    row = step.row._replace(start=to, ready=not step.waits)
    return writes.create_shard(app, row)


async def _open_children(context: Context, arn: str) -> None:
    """Open shards whose parents have ended again before they were sought themselves.

    Their parents are read after them: what a seek beside this one reopens meanwhile
    refuses the write. Where a parent has no row, a keeper knows more.
    """
    children = await read_all(context, arn)
    pending = {parent for row in children for parent in row.parents}
    waiting = lineage.to_open(children, await read_all(context, arn), pending)
    await write_all(context, [writes.ready(context.app, row) for row in waiting])
