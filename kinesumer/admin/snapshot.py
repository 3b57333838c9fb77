"""All rows of one app, read at about the same moment: what others can see of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kinesumer.errors import KinesumerError
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kinesumer.model.rows import (
        GroupRow,
        LeaderRow,
        MemberRow,
        Row,
        ShardRow,
        StreamRow,
    )
    from kinesumer.model.streams import Interval, ShardKey
    from kinesumer.ports import StateStore


def state(row: ShardRow, found: Snapshot) -> str:
    """Return owned, moving, orphaned, unowned, waiting or ended."""
    if row.ended:
        return "ended"
    if not row.ready:
        return "waiting"
    if not row.owner:
        return "unowned"
    if row.owner not in found.sessions:
        return "orphaned"
    planned = found.planned.get(row.key, row.owner_id)
    return "owned" if planned == row.owner_id else "moving"


T = TypeVar("T")


class Pause(NamedTuple):
    """What an operator asked for."""

    of: str
    """all, stream or shard: what was paused."""
    reason: str


@dataclass(frozen=True)
class Snapshot:
    """Members (dead ones included), the leader, and each stream's shard rows."""

    members: list[MemberRow]
    leader: LeaderRow | None
    streams: list[StreamRow]
    shards: dict[str, list[ShardRow]]
    corrupt: tuple[str, ...] = ()
    """What is wrong with rows that can't be read: they are in none of the others."""
    group: GroupRow | None = None

    @cached_property
    def alive(self) -> list[MemberRow]:
        """The members that aren't marked dead, by client id."""
        return sorted(
            (member for member in self.members if not member.dead),
            key=lambda member: member.client_id,
        )

    @cached_property
    def sessions(self) -> frozenset[str]:
        """The sessions of the members that aren't marked dead."""
        return frozenset(member.session for member in self.alive)

    @cached_property
    def leader_id(self) -> str | None:
        """The leading client, unless its session is dead."""
        if self.leader is None or self.leader.session not in self.sessions:
            return None
        return self.leader.client_id

    @cached_property
    def owned(self) -> Counter[str]:
        """How many shards each session owns."""
        return Counter(row.owner for page in self.shards.values() for row in page)

    @cached_property
    def planned(self) -> dict[ShardKey, str]:
        """Who is to own each shard; where ranges overlap, the lowest client id."""
        parts: dict[str, list[tuple[Interval, int]]] = {}
        for place, member in enumerate(self.alive):
            for interval in member.range or ():
                parts.setdefault(interval.stream_arn, []).append((interval, place))
        return {
            key: self.alive[place].client_id
            for arn, page in self.shards.items()
            for key, place in _places(page, parts.get(arn, []))
        }

    @property
    def resetting(self) -> bool:
        """Whether a reset has begun that isn't complete: nobody may start."""
        return self.group is not None and self.group.resetting

    def pause(self, row: ShardRow) -> Pause | None:
        """Return the widest of the pauses that keep a shard from being claimed."""
        if self.group is not None and self.group.paused:
            return Pause("all", self.group.pause_reason)
        stream = self._streams.get(row.key.stream_arn)
        if stream is not None and stream.paused:
            return Pause("stream", stream.pause_reason)
        return Pause("shard", row.pause_reason) if row.paused else None

    @cached_property
    def _streams(self) -> dict[str, StreamRow]:
        return {stream.arn: stream for stream in self.streams}


def _places(
    page: Iterable[ShardRow], parts: list[tuple[Interval, int]]
) -> Iterator[tuple[ShardKey, int]]:
    """Yield the first of the members in whose range each shard lies, if there is one.

    Goes once over both: many members' ranges over many shards are too many pairs.
    """
    waiting = sorted(parts, reverse=True)
    open_: list[tuple[int, int]] = []
    for row in sorted(page, key=lambda row: row.first_hash):
        while waiting and waiting[-1][0].first <= row.first_hash:
            interval, place = waiting.pop()
            heappush(open_, (place, interval.last))
        while open_ and open_[0][1] < row.first_hash:
            heappop(open_)
        if open_ and not row.ended:
            yield row.key, open_[0][0]


async def take(store: StateStore, app: str) -> Snapshot:
    """Read everything that an app has stored."""
    corrupt: list[str] = []

    def said(read: Callable[[Row], T], found: Iterable[Row]) -> list[T]:
        values, wrong = rows.parse_rows(read, found)
        corrupt.extend(str(error) for _, error in wrong)
        return values

    members, leader, group = await asyncio.gather(
        store.query(rows.member_key(app, "").pk),
        store.get(rows.leader_key(app)),
        store.query(rows.group_key(app).pk, consistent=True),
    )
    named = [row for row in group if str(row["sk"]).startswith(rows.STREAM_PREFIX)]
    own = [row for row in group if row["sk"] == rows.GROUP_SK]
    streams = said(rows.read_stream, named)
    groups = said(rows.read_group, own)
    pages = await asyncio.gather(
        *(
            store.query(rows.shard_partition(app, stream.arn), consistent=True)
            for stream in streams
        )
    )
    leaders = said(rows.read_leader, [leader] if leader else [])
    return Snapshot(
        said(rows.read_member, members),
        leaders[0] if leaders else None,
        streams,
        {
            stream.arn: said(rows.read_shard, page)
            for stream, page in zip(streams, pages, strict=True)
        },
        tuple(corrupt),
        groups[0] if groups else None,
    )


async def take_known(store: StateStore, app: str, table: str) -> Snapshot:
    """Read everything that an app has stored. Raises KinesumerError for nothing."""
    found = await take(store, app)
    if not (found.members or found.streams or found.corrupt):
        raise KinesumerError(
            f"table {table} knows no app {app!r}: nobody has consumed under this name "
            "there; check --app, --table and --region"
        )
    return found


async def read_members(store: StateStore, app: str) -> list[MemberRow]:
    """Read the member rows only, without those that can't be read."""
    partition = rows.member_key(app, "").pk
    return rows.parse_rows(rows.read_member, await store.query(partition))[0]
