"""All rows of one app, read at about the same moment: what others can see of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.wire import rows

if TYPE_CHECKING:
    from kinesumer.ports import StateStore
    from kinesumer.wire.rows import LeaderRow, MemberRow, ShardRow, StreamRow


class Snapshot(NamedTuple):
    """Members (dead ones included), the leader, and each stream's shard rows."""

    members: list[MemberRow]
    leader: LeaderRow | None
    streams: list[StreamRow]
    shards: dict[str, list[ShardRow]]

    @property
    def alive(self) -> list[MemberRow]:
        """The members that aren't marked dead, by client id."""
        return sorted(
            (member for member in self.members if not member.dead),
            key=lambda member: member.client_id,
        )

    @property
    def leader_id(self) -> str | None:
        """The leading client, unless its session is dead."""
        if self.leader is None:
            return None
        sessions = {member.session for member in self.alive}
        return self.leader.client_id if self.leader.session in sessions else None


async def take(store: StateStore, app: str) -> Snapshot:
    """Read everything that an app has stored."""
    members, leader, group = await asyncio.gather(
        read_members(store, app),
        store.get(rows.leader_key(app)),
        store.query(rows.group_key(app).pk, first=rows.STREAM_PREFIX, consistent=True),
    )
    streams = [rows.read_stream(row) for row in group]
    pages = await asyncio.gather(
        *(
            store.query(rows.shard_partition(app, stream.arn), consistent=True)
            for stream in streams
        )
    )
    return Snapshot(
        members,
        None if leader is None else rows.read_leader(leader),
        streams,
        {
            stream.arn: [rows.read_shard(row) for row in page]
            for stream, page in zip(streams, pages, strict=True)
        },
    )


async def read_members(store: StateStore, app: str) -> list[MemberRow]:
    """Read the member rows only."""
    partition = rows.member_key(app, "").pk
    return [rows.read_member(row) for row in await store.query(partition)]
