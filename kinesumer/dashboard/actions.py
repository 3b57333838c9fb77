"""What the page may change: told before it is done, and done as the commands do it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kinesumer.admin import drain, seek, snapshot
from kinesumer.admin.arguments import (
    describe_count,
    describe_seek,
    parse_position,
    shards_text,
)
from kinesumer.admin.context import operator_context
from kinesumer.admin.seek import SeekTarget, plan_seeks
from kinesumer.admin.seek_counts import READ_INTERVAL_SECONDS, count_seek, total
from kinesumer.admin.shard_reads import PacedReader
from kinesumer.admin.wait import still_held_in
from kinesumer.coordination import pauses
from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import stream_name
from kinesumer.runtime.tasks import gather_or_cancel
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.seek import SeekPlan
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.rows import ShardRow
    from kinesumer.ports import StateStore

MOST_NAMED = 10


class _Change(msgspec.Struct, tag_field="do", forbid_unknown_fields=True):
    """What is asked for by whoever has the token."""


class Pause(_Change, tag="pause"):
    """Have nobody read everything, a stream, or a shard of it."""

    stream: str | None = None
    shard: str | None = None
    reason: str = ""


class Resume(_Change, tag="resume"):
    """End that pause."""

    stream: str | None = None
    shard: str | None = None


class Drain(_Change, tag="drain"):
    """Keep a client free of shards."""

    client: str


class Undrain(_Change, tag="undrain"):
    """Let it have shards again."""

    client: str


class Seek(_Change, tag="seek"):
    """Read everything, a stream, or a shard of it on from elsewhere."""

    to: str
    stream: str | None = None
    shard: str | None = None


Action = Pause | Resume | Drain | Undrain | Seek


class Preview(NamedTuple):
    """What a change will do."""

    lines: list[str]
    summary: str = ""
    """What a seek skips and repeats altogether."""


class ActionHandler:
    """Takes changes for one app."""

    def __init__(
        self, app: str, clients: ClientFactory, store: StateStore, roles: Roles
    ) -> None:
        self._context = operator_context(app, store)
        self._clients, self._roles = clients, roles

    async def foretell(self, change: Action) -> Preview:
        """Return what a change will do; change nothing.

        Raises ConfigurationError and other KinesumerErrors.
        """
        if isinstance(change, Seek):
            return await self._foretell_seek(change)
        return Preview(await self._lines(change))

    async def _foretell_seek(self, change: Seek) -> Preview:
        plans, asking = await self._plans(change), PacedReader(READ_INTERVAL_SECONDS)
        counts = await gather_or_cancel(count_seek(plan, asking) for plan in plans)
        found = [
            line
            for plan, count in zip(plans, counts, strict=True)
            for line in describe_seek(plan, count)
        ]
        every = [count for each in counts for count in each.values()]
        return Preview(found, describe_count(total(every)))

    async def _lines(self, change: Pause | Resume | Drain | Undrain) -> list[str]:
        context = self._context
        found = await snapshot.take(context.store, context.app)
        if isinstance(change, Drain | Undrain):
            return _draining(change, found)
        target, _, _ = await pauses.find_pause_target(
            context, change.stream, change.shard
        )
        if isinstance(change, Resume):
            return ["clients may read it again, unless another pause covers it"]
        return _pausing(still_held_in(target)(found))

    async def carry_out(self, change: Action) -> str:
        """Do it, and return what was done. Raises as ``foretell()``."""
        context = self._context
        if isinstance(change, Seek):
            plans = await self._plans(change)
            rows = [row for plan in plans for row in await seek.seek(context, plan)]
            said = f"sought {shards_text(len(rows))} to {change.to}"
            if moved := await seek.conflicting_seeks(context, plans, rows):
                said += f"; another seek has moved {shards_text(len(moved))} since"
            return said
        if isinstance(change, Drain | Undrain):
            undo = isinstance(change, Undrain)
            await drain.drain(context, change.client, undo=undo)
            said = "may have shards again" if undo else "is drained"
            return f"{escape_unprintable(change.client)} {said}"
        if isinstance(change, Resume):
            marked = await pauses.resume(context, change.stream, change.shard)
            return f"{marked.target}: resumed"
        marked = await pauses.pause(context, change.stream, change.shard, change.reason)
        return f"{marked.target}: paused"

    async def _plans(self, change: Seek) -> list[SeekPlan]:
        to = parse_position(change.to, change.shard)
        place = SeekTarget(to, change.stream, change.shard)
        return await plan_seeks(self._context, self._clients, place, self._roles)


def _draining(change: Drain | Undrain, found: Snapshot) -> list[str]:
    members = {member.client_id: member for member in found.alive}
    if change.client not in members:
        raise ConfigurationError(
            f"no client {escape_unprintable(change.client)} is alive"
        )
    if isinstance(change, Undrain):
        return ["it gets a part of every stream again, at the next plan"]
    count = found.owned[members[change.client].session]
    return [
        f"its {shards_text(count)} move to the other clients",
        "it stays in the group without shards, until that is undone or it is restarted",
    ]


def _pausing(held: Iterable[ShardRow]) -> list[str]:
    owners = Counter((row.owner_id, row.key.stream_arn) for row in held)
    lines = [
        f"{escape_unprintable(owner)} gives up {shards_text(count)} of "
        f"{escape_unprintable(stream_name(arn))}"
        for (owner, arn), count in sorted(owners.items())[:MOST_NAMED]
    ]
    left = len(owners) - MOST_NAMED
    return [
        *(lines or ["nobody reads any of it now"]),
        *([f"… and {left} more"] if left > 0 else []),
        "nobody reads it until it is resumed, restarts or not; lag grows meanwhile",
    ]
