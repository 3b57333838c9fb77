"""Set pauses for operators, and read them for clients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from kinesumer.coordination.shard_sync import write_all
from kinesumer.coordination.startup_checks import require_no_spark_query
from kinesumer.coordination.store_queries import (
    REREAD_SECONDS,
    find_shard,
    find_stream,
    read_all,
    read_shards,
    unknown_app_text,
)
from kinesumer.core.claims import Pauses
from kinesumer.errors import ConfigurationError, GroupBusyError, KinesumerError
from kinesumer.model.rows import Key, MemberRow, Row, ShardRow
from kinesumer.model.streams import stream_name
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import admin_writes, rows, shard_writes

MAX_REASON_CHARACTERS = 200  # keeps rows below 1 KB, the unit that DynamoDB bills
QUERY_ADVICE = "a running query doesn't notice changes: stop the query first"


class Target(NamedTuple):
    """The target of a pause: everything, a stream, or one shard."""

    stream_arn: str = ""
    shard_id: str = ""

    def covers(self, shard: ShardRow) -> bool:
        """Return whether the target includes a shard."""
        arn, shard_id = shard.key
        return self.stream_arn in ("", arn) and self.shard_id in ("", shard_id)

    def __str__(self) -> str:
        if not self.stream_arn:
            return "all streams"
        stream = f"stream {escape_unprintable(stream_name(self.stream_arn))}"
        return f"shard {self.shard_id} of {stream}" if self.shard_id else stream


class PauseResult(NamedTuple):
    """A pause or resume that was stored, and the state before it."""

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
    """Pause a shard, a stream, or everything for all clients, until resumed.

    The owners wait for user code, store positions and release the shards. Raises
    ConfigurationError for a stream or shard that the app doesn't know, and for a reason
    that is too long or not printable. Raises GroupBusyError while a Spark query runs.
    """
    if len(reason) > MAX_REASON_CHARACTERS:
        raise ConfigurationError(
            f"the reason has {len(reason)} characters: use at most "
            f"{MAX_REASON_CHARACTERS}"
        )
    if not reason.isprintable():
        raise ConfigurationError(
            f"reason {escape_unprintable(reason)} can't be printed: remove the "
            "unprintable characters"
        )
    return await _mark(context, stream, shard, reason, paused=True)


async def resume(
    context: ClientContext, stream: str | None = None, shard: str | None = None
) -> PauseResult:
    """End the pause of a shard, a stream, or everything. Other pauses remain.

    Raises the same errors as ``pause()``.
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
        raise KinesumerError(
            f"{target} was deleted a moment ago: check kinesumer status"
        )
    await notify(context)
    was = before.get("paused") is True
    return PauseResult(target, paused, reason, was, str(before.get("pause_reason", "")))


async def find_pause_target(
    context: ClientContext, stream: str | None, shard: str | None
) -> tuple[Target, Key, Row]:
    """Return the target of a pause, and the key and row that store it.

    Raises ConfigurationError for a stream or shard that the app doesn't know.
    """
    if stream is None:
        if shard is not None:
            raise ConfigurationError(
                f"shard {shard} without a stream: name the stream, too"
            )
        key = rows.group_key(context.app)
        row = await context.read(key)
        if row is None:
            raise ConfigurationError(unknown_app_text(context.app))
        return Target(), key, row
    arn = (await find_stream(context, stream)).arn
    key = rows.stream_key(context.app, arn)
    if shard is not None:
        shard_row = find_shard(await read_all(context, arn), arn, shard)
        key = shard_writes.shard_row_key(context.app, shard_row)
    return Target(arn, shard or ""), key, await context.read(key) or {}


# --- clients -------------------------------------------------------------------------


async def notify(context: ClientContext) -> None:
    """Make all clients read the rows again after their next heartbeat."""
    app, members = context.app, await live_members(context)
    # If a write is refused, the client has died, registered again, or got another
    # notice. In each case the client or the shards' next owner reads the changed rows.
    await write_all(context, [admin_writes.notify(app, member) for member in members])


async def live_members(context: ClientContext) -> list[MemberRow]:
    """Return the rows of the members that aren't marked dead, read consistently."""
    partition = rows.member_key(context.app, "").pk
    members = context.parse_rows(rows.read_member, await context.query(partition))
    return [member for member in members if not member.dead]


async def read_pauses(context: ClientContext, *, consistent: bool) -> Pauses:
    """Return the paused streams, and whether all are. Raises StoreUnavailableError."""
    partition = rows.group_key(context.app).pk
    stored = await context.store.query(partition, consistent=consistent)
    for row in stored:
        own = row["sk"] == rows.GROUP_SK
        context.parse_rows(rows.read_group if own else rows.read_stream, [row])
    # A malformed value counts as paused.
    marked = {str(row["sk"]) for row in stored if row.get("paused", False) is not False}
    arns = (sk.removeprefix(rows.STREAM_PREFIX) for sk in marked - {rows.GROUP_SK})
    return Pauses(rows.GROUP_SK in marked, frozenset(arns))


async def require_not_paused(context: ClientContext, arns: Iterable[str]) -> None:
    """Raise GroupBusyError if any shard of these streams is paused."""
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
        f"app {context.app!r} is paused ({what}), and a query can't skip shards: "
        "run kinesumer resume, and start the query again",
    )


class PauseCache:
    """The pauses as one session last read them."""

    def __init__(self, context: ClientContext) -> None:
        self.pauses: Pauses = Pauses()
        self._context = context
        self._next_read = -math.inf

    async def refresh(self, *, noticed: bool) -> None:
        """Read the pauses if they may have changed. Raises StoreUnavailableError."""
        now = self._context.clock.now()
        # During a pause, do not rely on a notice: the command that ends the pause may
        # be killed before it has notified this client.
        if noticed or self.pauses != Pauses() or now >= self._next_read:
            self.pauses = await read_pauses(self._context, consistent=noticed)
            self._next_read = now + REREAD_SECONDS
