"""Preview and apply the changes of the page, which commands offer as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kinesumer.aws.session import ClientFactory
from kinesumer.coordination import pauses
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import stream_name
from kinesumer.ops.dashboard.records import LetterBrowser, LetterIds
from kinesumer.ops.group import changes, seek
from kinesumer.ops.group.changes import still_held_in
from kinesumer.ops.group.connect import Roles, operator_context
from kinesumer.ops.group.seek import SeekPlan, parse_position, plan_seeks
from kinesumer.ops.group.seek_counts import (
    count_seek,
    describe_count,
    describe_seek,
    first_lines,
    total,
)
from kinesumer.ops.group.shard_reads import READ_INTERVAL_SECONDS, PacedReader
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.ports import StateStore
from kinesumer.runtime.tasks import gather_or_cancel
from kinesumer.runtime.text import counted, escape_unprintable


class _Action(msgspec.Struct, tag_field="do", forbid_unknown_fields=True):
    """A change that a browser requests; the request must have the token."""


class Pause(_Action, tag="pause"):
    """Stop all clients from reading a shard, a stream, or all streams."""

    stream: str | None = None
    shard: str | None = None
    reason: str = ""


class Resume(_Action, tag="resume"):
    """End a pause."""

    stream: str | None = None
    shard: str | None = None


class Drain(_Action, tag="drain"):
    """Move all shards of a client to other clients while the client runs."""

    client: str


class Undrain(_Action, tag="undrain"):
    """Let a client own shards again."""

    client: str


class Seek(_Action, tag="seek"):
    """Continue a shard, a stream, or all streams at another position."""

    to: str
    stream: str | None = None
    shard: str | None = None


class PutBack(_Action, tag="redrive"):
    """Put the records of dead letters back into their streams."""

    letters: LetterIds


Action = Pause | Resume | Drain | Undrain | Seek | PutBack


class Preview(NamedTuple):
    """The effect of an action."""

    lines: list[str]
    summary: str = ""  # the total number of records that a seek skips and re-reads
    # Whether a seek skips records, or may skip some that couldn't be counted. The user
    # must confirm this separately.
    skips: bool = False


class ActionHandler:
    """Previews and applies changes for one app."""

    def __init__(
        self,
        app: str,
        clients: ClientFactory,
        store: StateStore,
        roles: Roles,
        letters: LetterBrowser | None = None,
    ) -> None:
        self._context, self._letters = operator_context(app, store), letters
        self._clients, self._roles = clients, roles

    async def preview(self, action: Action) -> Preview:
        """Return what a change will do; change nothing. Raises KinesumerError."""
        if isinstance(action, Seek):
            return await self._preview_seek(action)
        if isinstance(action, PutBack):
            return Preview(await self._opened_letters().preview(action.letters))
        return Preview(await self._lines(action))

    async def _preview_seek(self, action: Seek) -> Preview:
        plans, reader = await self._plans(action), PacedReader(READ_INTERVAL_SECONDS)
        # One reader for all plans, since it limits the reads of the whole preview.
        counts = await gather_or_cancel(count_seek(plan, reader) for plan in plans)
        lines = [
            line
            for plan, count in zip(plans, counts, strict=True)
            for line in describe_seek(plan, count)
        ]
        whole = total(count for by_shard in counts for count in by_shard.values())
        skips = whole.skipped > 0 or bool(whole.problem)
        now = max(plan.stream.info.now for plan in plans)
        return Preview(lines, describe_count(whole, now), skips)

    async def _lines(self, action: Pause | Resume | Drain | Undrain) -> list[str]:
        context = self._context
        snapshot = await read_snapshot(context.store, context.app)
        if isinstance(action, Drain | Undrain):
            return _draining(action, snapshot)
        target, _, _ = await pauses.find_pause_target(
            context, action.stream, action.shard
        )
        if isinstance(action, Resume):
            return ["clients may read it again, unless another pause covers it"]
        return _pausing(still_held_in(target)(snapshot))

    async def apply(self, action: Action) -> str:
        """Apply a change, and return its result in words. Raises KinesumerError."""
        context = self._context
        if isinstance(action, Seek):
            # Plan again, since positions have advanced since the preview.
            plans = await self._plans(action)
            rows = [row for plan in plans for row in await seek.seek(context, plan)]
            text = f"seeked {counted(len(rows), 'shard')} to {action.to}"
            if moved := await seek.conflicting_seeks(context, plans, rows):
                text += f"; another seek has moved {counted(len(moved), 'shard')} since"
            return text
        if isinstance(action, PutBack):
            return await self._opened_letters().redrive(action.letters)
        if isinstance(action, Drain | Undrain):
            undo = isinstance(action, Undrain)
            await changes.drain(context, action.client, undo=undo)
            text = "may own shards again" if undo else "is drained"
            return f"{escape_unprintable(action.client)} {text}"
        if isinstance(action, Resume):
            marked = await pauses.resume(context, action.stream, action.shard)
            return f"{marked.target}: resumed"
        marked = await pauses.pause(context, action.stream, action.shard, action.reason)
        return f"{marked.target}: paused"

    def _opened_letters(self) -> LetterBrowser:
        if self._letters is None:
            raise ConfigurationError(
                "no dead-letter target is named: start it again with --dead-letters"
            )
        return self._letters

    async def _plans(self, action: Seek) -> list[SeekPlan]:
        to = parse_position(action.to, action.shard, name="to")
        place = to, action.stream, action.shard
        return await plan_seeks(self._context, self._clients, self._roles, *place)


def _draining(action: Drain | Undrain, snapshot: Snapshot) -> list[str]:
    members = {member.client_id: member for member in snapshot.alive}
    if action.client not in members:
        raise ConfigurationError(
            f"no client {escape_unprintable(action.client)} is alive; reload the page"
        )
    if isinstance(action, Undrain):
        return ["the next plan assigns it a part of every stream again"]
    count = snapshot.owned[members[action.client].session]
    return [
        f"its {counted(count, 'shard')} move to the other clients",
        "it remains in the group without shards until it is undrained or restarted",
    ]


def _pausing(held: Iterable[ShardRow]) -> list[str]:
    owners = Counter((row.owner_id, row.key.stream_arn) for row in held)
    lines = [
        f"{escape_unprintable(owner)} gives up {counted(count, 'shard')} of "
        f"{escape_unprintable(stream_name(arn))}"
        for (owner, arn), count in sorted(owners.items())
    ]
    return [
        *first_lines(lines or ["no client reads any of it now"]),
        "no client reads it until it is resumed, even after restarts; the lag grows "
        "meanwhile",
    ]
