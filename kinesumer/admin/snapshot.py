"""Read all rows of one app at about the same time."""

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

T = TypeVar("T")


class Pause(NamedTuple):
    """A pause that an operator requested."""

    scope: str
    """``all``, ``stream`` or ``shard``."""
    reason: str


@dataclass(frozen=True)
class Snapshot:
    """The members (dead ones included), the leader, and each stream's shard rows."""

    members: list[MemberRow]
    leader: LeaderRow | None
    streams: list[StreamRow]
    shards: dict[str, list[ShardRow]]
    corrupt: tuple[str, ...] = ()
    """Errors of the rows that can't be parsed; the other fields leave these out."""
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
        """The number of shards that each session owns."""
        return Counter(row.owner for page in self.shards.values() for row in page)

    @cached_property
    def planned(self) -> dict[ShardKey, str]:
        """The planned owner of each shard; the lowest client id if ranges overlap."""
        parts: dict[str, list[tuple[Interval, int]]] = {}
        for number, member in enumerate(self.alive):
            for interval in member.range or ():
                parts.setdefault(interval.stream_arn, []).append((interval, number))
        return {
            key: self.alive[number].client_id
            for arn, page in self.shards.items()
            for key, number in _first_covering(page, parts.get(arn, []))
        }

    @property
    def resetting(self) -> bool:
        """Whether a reset has begun and isn't complete: clients can't start."""
        return self.group is not None and self.group.resetting

    def state(self, row: ShardRow) -> str:
        """Return owned, moving, orphaned, unowned, waiting or ended."""
        if row.ended:
            return "ended"
        if not row.ready:
            return "waiting"
        if not row.owner:
            return "unowned"
        if row.owner not in self.sessions:
            return "orphaned"
        planned = self.planned.get(row.key, row.owner_id)
        return "owned" if planned == row.owner_id else "moving"

    def pause(self, row: ShardRow) -> Pause | None:
        """Return the widest of the pauses that keep a shard from being claimed."""
        if self.group is not None and self.group.paused:
            return Pause("all", self.group.pause_reason)
        stream = self._streams.get(row.key.stream_arn)
        if stream is not None and stream.paused:
            return Pause("stream", stream.pause_reason)
        return Pause("shard", row.pause_reason) if row.paused else None

    def unconsumed(self, arn: str) -> dict[ShardKey, ShardRow]:
        """Return a stream's shards without a living owner that aren't paused."""
        return {
            row.key: row
            for row in self.shards.get(arn, [])
            if self.state(row) in ("unowned", "orphaned") and self.pause(row) is None
        }

    @cached_property
    def _streams(self) -> dict[str, StreamRow]:
        return {stream.arn: stream for stream in self.streams}


def _first_covering(
    page: Iterable[ShardRow], parts: list[tuple[Interval, int]]
) -> Iterator[tuple[ShardKey, int]]:
    """Yield each covered shard with the lowest member number whose range covers it.

    Sweeps once over both: comparing each range with each shard would be too slow.
    """
    upcoming = sorted(parts, reverse=True)
    current: list[tuple[int, int]] = []
    for row in sorted(page, key=lambda row: row.first_hash):
        while upcoming and upcoming[-1][0].first <= row.first_hash:
            interval, number = upcoming.pop()
            heappush(current, (number, interval.last))
        while current and current[0][1] < row.first_hash:
            heappop(current)
        if current and not row.ended:
            yield row.key, current[0][0]


async def read_snapshot(store: StateStore, app: str) -> Snapshot:
    """Read everything that an app has stored."""
    corrupt: list[str] = []

    def parse(read: Callable[[Row], T], result: Iterable[Row]) -> list[T]:
        values, failures = rows.parse_rows(read, result)
        corrupt.extend(str(error) for _, error in failures)
        return values

    members, leader, group = await asyncio.gather(
        store.query(rows.member_key(app, "").pk),
        store.get(rows.leader_key(app)),
        store.query(rows.group_key(app).pk, consistent=True),
    )
    named = [row for row in group if str(row["sk"]).startswith(rows.STREAM_PREFIX)]
    own = [row for row in group if row["sk"] == rows.GROUP_SK]
    streams = parse(rows.read_stream, named)
    groups = parse(rows.read_group, own)
    pages = await asyncio.gather(
        *(
            store.query(rows.shard_partition(app, stream.arn), consistent=True)
            for stream in streams
        )
    )
    leaders = parse(rows.read_leader, [leader] if leader else [])
    return Snapshot(
        parse(rows.read_member, members),
        leaders[0] if leaders else None,
        streams,
        {
            stream.arn: parse(rows.read_shard, page)
            for stream, page in zip(streams, pages, strict=True)
        },
        tuple(corrupt),
        groups[0] if groups else None,
    )


async def read_known_snapshot(
    store: StateStore, app: str, table: str | None = None
) -> Snapshot:
    """Read everything that an app has stored.

    Raises KinesumerError if nothing is stored.
    """
    snapshot = await read_snapshot(store, app)
    if not (snapshot.members or snapshot.streams or snapshot.corrupt):
        raise unknown_app(app, table)
    return snapshot


def unknown_app(app: str, table: str | None = None) -> KinesumerError:
    """Return the error for an app of which a table has no rows."""
    where = f"table {table}" if table else "the table"
    return KinesumerError(
        f"{where} knows no app {app!r}; check --app, --table and --region"
    )


async def read_members(store: StateStore, app: str) -> list[MemberRow]:
    """Return the member rows that can be parsed."""
    partition = rows.member_key(app, "").pk
    return rows.parse_rows(rows.read_member, await store.query(partition))[0]
