"""What operators paused, as one session last read it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.coordination.shard_sync import write_all
from kinesumer.coordination.startup_checks import require_no_spark_query
from kinesumer.coordination.store_queries import (
    find_shard,
    find_stream,
    read_all,
    read_shards,
    unknown_app,
)
from kinesumer.core.claims import Pauses
from kinesumer.errors import ConfigurationError, GroupBusyError, KinesumerError
from kinesumer.model.streams import stream_name
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import admin_writes, rows, writes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model.rows import Key, MemberRow, Row, ShardRow
    from kinesumer.runtime.context import ClientContext


MAX_REASON_CHARACTERS = 200
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
        stream = f"stream {escape_unprintable(stream_name(self.stream_arn))}"
        return f"shard {self.shard_id} of {stream}" if self.shard_id else stream


class PauseResult(NamedTuple):
    """A pause or its end: what it is for, and how it was before."""

    target: Target
    paused: bool
    reason: str
    was_paused: bool
    was_reason: str


# --- pauses --------------------------------------------------------------------------


async def pause(
    context: ClientContext,
    stream: str | None = None,
    shard: str | None = None,
    reason: str = "",
) -> PauseResult:
    """Have nobody consume an app's shards, those of a stream, or one, until resumed.

    Their owners finish what is in user code, store positions and release them. Raises
    ConfigurationError for a stream or shard that the app doesn't know, and for a reason
    that is too long or can't be printed; GroupBusyError while a Spark query lives.
    """
    if len(reason) > MAX_REASON_CHARACTERS:
        raise ConfigurationError(
            f"a reason of {len(reason)} characters: say it in {MAX_REASON_CHARACTERS}"
        )
    if not reason.isprintable():
        raise ConfigurationError(
            f"reason {escape_unprintable(reason)}: it has characters that can't be "
            "printed"
        )
    return await _mark(context, stream, shard, reason, paused=True)


async def resume(
    context: ClientContext, stream: str | None = None, shard: str | None = None
) -> PauseResult:
    """Take back the pause of an app, a stream or a shard, and no other pause.

    Raises as ``pause()`` does.
    """
    return await _mark(context, stream, shard, "", paused=False)


async def _mark(
    context: ClientContext,
    stream: str | None,
    shard: str | None,
    reason: str,
    *,
    paused: bool,
) -> PauseResult:
    await require_no_spark_query(context, QUERY_ADVICE)
    target, key, before = await find_pause_target(context, stream, shard)
    write = admin_writes.pause(key, reason) if paused else admin_writes.resume(key)
    written = await context.write(write)
    if not written.applied:
        raise KinesumerError(f"{target} was deleted just now: look at the app again")
    await notify(context)
    was = before.get("paused") is True
    return PauseResult(target, paused, reason, was, str(before.get("pause_reason", "")))


async def find_pause_target(
    context: ClientContext, stream: str | None, shard: str | None
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


async def notify(context: ClientContext) -> None:
    """Have all clients read the rows again: they see it at their next heartbeat."""
    app, members = context.app, await _live_members(context)
    # One refused has died, registered anew, or been told by another operator: it reads
    # the rows after our change.
    await write_all(context, [admin_writes.notify(app, member) for member in members])


async def _live_members(context: ClientContext) -> list[MemberRow]:
    partition = rows.member_key(context.app, "").pk
    found = await context.until_available(
        lambda: context.store.query(partition, consistent=True)
    )
    members = context.parse_rows(rows.read_member, found)
    return [member for member in members if not member.dead]


PAUSE_REFRESH_SECONDS = 600.0
"""How often it is read though no operator gave notice."""


async def read_pauses(context: ClientContext, *, consistent: bool) -> Pauses:
    """Return what is paused beside single shards. Raises StoreUnavailableError."""
    partition = rows.group_key(context.app).pk
    found = await context.store.query(partition, consistent=consistent)
    for row in found:
        own = row["sk"] == rows.GROUP_SK
        context.parse_rows(rows.read_group if own else rows.read_stream, [row])
    marked = {str(row["sk"]) for row in found if _is_marked(row)}
    arns = (sk.removeprefix(rows.STREAM_PREFIX) for sk in marked - {rows.GROUP_SK})
    return Pauses(rows.GROUP_SK in marked, frozenset(arns))


def _is_marked(row: Row) -> bool:
    """Tell whether a row is paused: none is too broken for that, or it would go on."""
    return row.get("paused", False) is not False


async def require_not_paused(context: ClientContext, arns: Iterable[str]) -> None:
    """Raise GroupBusyError if an operator has paused any shard of these streams."""
    pauses = await context.until_available(
        lambda: read_pauses(context, consistent=True)
    )
    for arn in arns:
        if pauses.everything or arn in pauses.streams:
            raise _paused(context, arn)
        stored = await read_shards(context, arn, consistent=True)
        if paused := [row.key.shard_id for row in stored.rows if row.paused]:
            raise _paused(context, f"{', '.join(paused)} of {arn}")


def _paused(context: ClientContext, what: str) -> GroupBusyError:
    return GroupBusyError(
        "paused",
        f"app {context.app!r} is paused ({what}), and a query can't leave shards out: "
        "resume it with kinesumer resume, and start the query again",
    )


class PauseCache:
    """Reads it when a session begins, on notice, and now and then."""

    def __init__(self, context: ClientContext) -> None:
        self.pauses = Pauses()
        self._context = context
        self._next_read = -math.inf

    async def refresh(self, *, noticed: bool) -> None:
        """Read what is paused if it may have changed. Raises StoreUnavailableError."""
        now = self._context.clock.now()
        if noticed or now >= self._next_read:
            self.pauses = await read_pauses(self._context, consistent=noticed)
            self._next_read = now + PAUSE_REFRESH_SECONDS
