"""Define a registered session of a client, with its leader and shards."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.held_shards import CallbackSource, HeldShards
from kinesumer.coordination.leader import Leader
from kinesumer.coordination.lease_coordinator import LeaseCoordinator
from kinesumer.coordination.membership import Notify, SessionRenewed
from kinesumer.core.congestion import share_of
from kinesumer.core.load import work_of_report
from kinesumer.model.rows import MemberRow
from kinesumer.runtime.context import ClientContext
from kinesumer.telemetry.api import ClientState, StreamState
from kinesumer.wire import writes
from kinesumer.wire.reports import read_loads


class Session:
    """A session's member row, leader, lease coordinator and tasks."""

    member: MemberRow

    def __init__(
        self,
        context: ClientContext,
        registered: SessionRenewed,
        streams: Mapping[str, OpenStream],
        requested_arns: frozenset[str],
        buffer: PrefetchBuffer,
        delivery: CallbackSource,
        notify: Notify,
    ) -> None:
        lease, self.member = registered
        self._context = context
        self._streams = streams
        self.leader: Leader = Leader(
            context, lease, self.member, requested_arns, notify
        )
        dead = self.leader.watcher.dead
        self.coordinator: LeaseCoordinator = LeaseCoordinator(
            context, lease, self.member, streams, buffer, dead, delivery
        )
        self.shards: HeldShards = self.coordinator.shards
        self.tasks: list[asyncio.Task[None]] = []

    def update_member(self, member: MemberRow) -> None:
        """Record the session's own member row, which the last heartbeat returned."""
        self.member = self.leader.member = member
        self.coordinator.update_member(member)

    async def request_streams(self, arns: frozenset[str]) -> None:
        """Set the streams that this session requests, and give up all other streams."""
        app = self._context.app
        await self._context.write(writes.request_streams(app, self.member, arns))
        self.coordinator.restrict(arns)

    def streams_to_sync(self, requested_arns: frozenset[str]) -> frozenset[str]:
        """Return the streams whose shard rows this session syncs."""
        if self.leader.is_leading:
            return requested_arns
        return self.member.syncs & requested_arns

    def commit_share(self, stream_arn: str) -> float:
        """Return this session's share of the stream's commits, from 0 to 1."""
        return share_of(stream_arn, self.coordinator.range, self.member.clients)

    def gauges(self, app: str, buffered_bytes: int, arns: Iterable[str]) -> ClientState:
        """Return the gauges of the client and these streams. Any thread may call it."""
        leader, member = self.leader, self.member
        reports = read_loads(member.load, member.streams)
        return ClientState(
            app,
            buffered_bytes,
            len(leader.watcher.members) if leader.is_leading else None,
            self._stream_gauges(arns),
            sum(map(work_of_report, reports)) / 1e6 if reports else None,
            leader.clients_wanted(),
        )

    def _stream_gauges(self, arns: Iterable[str]) -> tuple[StreamState, ...]:
        # Copy the shards first, since another thread may change them.
        held: dict[str, list[OwnedShard]] = defaultdict(list)
        for owned in list(self.shards.by_key.values()):
            held[owned.key.stream_arn].append(owned)
        pending = [row.key.stream_arn for row in self.coordinator.pending]
        counts = self.leader.shard_counts if self.leader.is_leading else {}
        return tuple(
            StreamState(
                arn,
                current_leases=len(held[arn]),
                leases_to_take=pending.count(arn),
                total_leases=counts.get(arn),
                millis_behind_latest=max(
                    (s.millis_behind for s in held[arn] if s.millis_behind is not None),
                    default=None,
                ),
                records_uncommitted=sum(
                    owned.progress.uncommitted for owned in held[arn]
                ),
                fan_out_polling=self._streams[arn].fan_out_polling,
                isolated_leases=sum(owned.row.is_isolated for owned in held[arn]),
            )
            for arn in arns
        )

    def cancel_tasks(self) -> None:
        """Cancel the tasks of this session."""
        for task in self.tasks:
            task.cancel()
