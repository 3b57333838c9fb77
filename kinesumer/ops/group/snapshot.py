"""Read all rows of one app at about the same time, or summarize every app."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from kinesumer.aws.dynamodb import DynamoStateStore
from kinesumer.coordination.store_queries import unknown_app_text
from kinesumer.core import plan
from kinesumer.errors import KinesumerError
from kinesumer.model.rows import (
    GroupRow,
    LeaderRow,
    MemberRow,
    Row,
    ShardRow,
    StreamRow,
)
from kinesumer.model.streams import ShardKey
from kinesumer.ops.group.client_reports import LIVE_SECONDS, failures_of
from kinesumer.ports import StateStore
from kinesumer.wire import rows

T = TypeVar("T")
MEMBERS, GROUPS, SHARDS = "member", "group", "shard"  # kinds of partitions
# A commit takes this long at most, usually. A client that reads everything may be
# behind by this time and its commit interval.
COMMIT_MILLIS = 1_000


class Pause(NamedTuple):
    """A pause that an operator requested."""

    scope: str  # ``all``, ``stream`` or ``shard``
    reason: str


@dataclass(frozen=True)
class Snapshot:
    """The members (dead ones included), the leader, and each stream's shard rows."""

    members: list[MemberRow]
    leader: LeaderRow | None
    streams: list[StreamRow]
    shards: dict[str, list[ShardRow]]
    # Errors of the rows that can't be parsed. The other fields omit these rows.
    corrupt: tuple[str, ...] = ()
    group: GroupRow | None = None
    read_at: float | None = None  # in seconds since 1970; None if unknown

    @cached_property
    def alive(self) -> list[MemberRow]:
        """The members that aren't marked dead, by client id."""
        alive = (member for member in self.members if not member.dead)
        return sorted(alive, key=lambda member: member.client_id)

    @property
    def rows(self) -> Iterator[ShardRow]:
        """The rows of all shards."""
        return chain.from_iterable(self.shards.values())

    @cached_property
    def sessions(self) -> frozenset[str]:
        """The sessions of the members that aren't marked dead."""
        return frozenset(member.session for member in self.alive)

    @cached_property
    def assignable(self) -> list[MemberRow]:
        """The clients, without Spark queries, that a plan assigns shards to."""
        return plan.assignable(plan.live_clients(self.alive))

    @property
    def held(self) -> list[ShardRow]:
        """The shards that live clients own; dead clients consume nothing."""
        return [row for row in self.rows if row.owner in self.sessions]

    @cached_property
    def leader_id(self) -> str | None:
        """The leader's client id; None if the leader's session is dead."""
        leader = self.leader
        return leader.client_id if leader and leader.session in self.sessions else None

    @cached_property
    def owned(self) -> Counter[str]:
        """The number of shards that each session owns."""
        return Counter(row.owner for row in self.rows)

    @cached_property
    def planned(self) -> dict[ShardKey, str]:
        """The planned owner of each shard; the lowest client id if ranges overlap."""
        open_rows = {
            arn: sorted((row for row in page if not row.ended), key=_first_hash)
            for arn, page in self.shards.items()
        }
        planned: dict[ShardKey, str] = {}
        # The lowest client id comes last, so that it prevails.
        for member in reversed(self.alive):
            for arn, first, last in member.range or ():
                page = open_rows.get(arn, [])
                covered = slice(
                    bisect_left(page, first, key=_first_hash),
                    bisect_right(page, last, key=_first_hash),
                )
                planned |= {row.key: member.client_id for row in page[covered]}
        return planned

    @cached_property
    def _commit_millis(self) -> dict[str, int]:
        return {member.session: member.commit_ms for member in self.alive}

    def expected_lag_millis(self, session: str) -> int:
        """Return how far the positions of a session's shards trail if it reads all.

        0 if the session isn't alive, since it reads nothing.
        """
        interval = self._commit_millis.get(session)
        return 0 if interval is None else interval + COMMIT_MILLIS

    @property
    def resetting(self) -> bool:
        """Return whether an unfinished reset prevents clients from starting."""
        return self.group is not None and self.group.resetting

    def state(self, row: ShardRow) -> str:
        """Return owned, foreign, moving, orphaned, unowned, waiting or ended."""
        if row.ended:
            return "ended"
        if not row.ready:
            return "waiting"
        if row.is_foreign and row.owner_id:
            return "foreign"
        if not row.owner or row.is_foreign:
            return "unowned"
        if row.owner not in self.sessions:
            return "orphaned"
        # Without a plan for its hash key, a shard remains with its owner.
        planned = self.planned.get(row.key, row.owner_id)
        return "owned" if planned == row.owner_id else "moving"

    def pause(self, row: ShardRow) -> Pause | None:
        """Return the widest pause that prevents a shard from being claimed."""
        if self.group is not None and self.group.paused:
            return Pause("all", self.group.pause_reason)
        stream = self._streams.get(row.key.stream_arn)
        if stream is not None and stream.paused:
            return Pause("stream", stream.pause_reason)
        return Pause("shard", row.pause_reason) if row.paused else None

    def unconsumed(self, arn: str) -> dict[ShardKey, ShardRow]:
        """Return a stream's shards that aren't paused and have no live owner."""
        return {
            row.key: row
            for row in self.shards.get(arn, [])
            if self.state(row) in ("unowned", "orphaned") and self.pause(row) is None
        }

    def unassignable(self, arn: str) -> dict[ShardKey, ShardRow]:
        """Return a stream's unconsumed shards that ``max_shards`` lets no client take.

        Empty if no client may consume the stream for another reason.
        """
        takers = [member for member in self.assignable if arn in member.streams]
        is_full = all(
            member.max_shards is not None
            and self.owned[member.session] >= member.max_shards
            for member in takers
        )
        return self.unconsumed(arn) if takers and is_full else {}

    @cached_property
    def _streams(self) -> dict[str, StreamRow]:
        return {stream.arn: stream for stream in self.streams}


_first_hash = attrgetter("first_hash")


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
    streams = parse(rows.read_stream, named)
    groups = parse(rows.read_group, [r for r in group if r["sk"] == rows.GROUP_SK])
    leaders = parse(rows.read_leader, [leader] if leader else [])
    pages = await asyncio.gather(
        *(
            store.query(rows.shard_partition(app, stream.arn), consistent=True)
            for stream in streams
        )
    )
    return Snapshot(
        parse(rows.read_member, members),
        next(iter(leaders), None),
        streams,
        {
            stream.arn: parse(rows.read_shard, page)
            for stream, page in zip(streams, pages, strict=True)
        },
        tuple(corrupt),
        next(iter(groups), None),
        time.time(),
    )


async def read_known_snapshot(
    store: StateStore, app: str, table: str | None = None
) -> Snapshot:
    """Read an app's rows. Raises KinesumerError if nothing is stored."""
    snapshot = await read_snapshot(store, app)
    if not (snapshot.members or snapshot.streams or snapshot.corrupt):
        raise KinesumerError(unknown_app_text(app, table))
    return snapshot


async def read_members(store: StateStore, app: str) -> list[MemberRow]:
    """Return the member rows that can be parsed."""
    partition = rows.member_key(app, "").pk
    return rows.parse_rows(rows.read_member, await store.query(partition))[0]


class AppSummary(NamedTuple):
    """An app at a glance."""

    app: str
    clients: int  # that have written to their rows in the last minutes
    streams: list[str]  # the streams' ARNs
    shards: int  # that are to be read now
    unread: int  # shards of these that no client reads and that are not paused
    paused: bool  # whether a stream or the whole app is paused
    failures: str  # what user code could not handle in the last minute, in words
    last_seen: str  # when a client wrote to its row last; empty if no row says so


async def read_apps(store: DynamoStateStore, now: float) -> list[AppSummary]:
    """Return a summary of each app, by name. ``now`` is in seconds since 1970.

    This reads the whole table once. It leaves corrupt rows out, which ``status`` shows.
    """
    found: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in await store.scan(*(f"{kind}#" for kind in (MEMBERS, GROUPS, SHARDS))):
        kind, app = str(row["pk"]).split("#", 2)[:2]
        found[app][kind].append(row)
    return [_summary(app, found[app], now) for app in sorted(found)]


def _summary(app: str, parts: dict[str, list[Row]], now: float) -> AppSummary:
    members = rows.parse_rows(rows.read_member, parts[MEMBERS])[0]
    # If an app's last client was killed, no other client marks its row as dead.
    seen = [rows.timestamp_seconds(member.last_update) for member in members]
    live = [m for m, at in zip(members, seen, strict=True) if now - at <= LIVE_SECONDS]
    named = [row for row in parts[GROUPS] if row["sk"] != rows.GROUP_SK]
    own = [row for row in parts[GROUPS] if row["sk"] == rows.GROUP_SK]
    streams = rows.parse_rows(rows.read_stream, named)[0]
    groups = rows.parse_rows(rows.read_group, own)[0]
    shards = rows.parse_rows(rows.read_shard, parts[SHARDS])[0]
    by_stream = {
        arn: [row for row in shards if row.key.stream_arn == arn]
        for arn in sorted(stream.arn for stream in streams)
    }
    snapshot = Snapshot(live, None, streams, by_stream, group=next(iter(groups), None))
    failures = failures_of(snapshot.alive)
    return AppSummary(
        app,
        clients=len(snapshot.alive),
        streams=list(by_stream),
        shards=sum(row.ready and not row.ended for row in snapshot.rows),
        unread=sum(map(len, map(snapshot.unconsumed, by_stream))),
        paused=any(map(attrgetter("paused"), chain(groups, streams))),
        failures="" if failures is None else failures.text,
        last_seen=max(
            (member.last_update for member in members),
            key=rows.timestamp_seconds,
            default="",
        ),
    )


def apps_report(table: str, apps: Iterable[AppSummary]) -> dict[str, Any]:
    """Return the summaries as JSON."""
    return {"table": table, "apps": [app._asdict() for app in apps]}
