"""One registered session of a client: its row, its leader, and its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.coordination.leader import Leader
from kinesumer.coordination.lease_coordinator import LeaseCoordinator
from kinesumer.core.write_rate import share_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from kinesumer.consuming.prefetch import PrefetchBuffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.coordination.events import Notify, SessionRenewed
    from kinesumer.coordination.held_shards import ProgressSource
    from kinesumer.model.rows import MemberRow
    from kinesumer.runtime.context import ClientContext


class Session:
    """A session's member row, leader, lease coordinator and tasks."""

    def __init__(
        self,
        context: ClientContext,
        registered: SessionRenewed,
        streams: Mapping[str, OpenStream],
        requested_arns: frozenset[str],
        buffer: PrefetchBuffer,
        delivery: ProgressSource,
        notify: Notify,
    ) -> None:
        lease, self.member = registered
        self.leader = Leader(context, lease, self.member, requested_arns, notify)
        self.coordinator = LeaseCoordinator(
            context,
            lease,
            self.member,
            streams,
            buffer,
            self.leader.watcher.dead,
            delivery,
        )
        self.shards = self.coordinator.shards
        self.tasks: list[asyncio.Task[None]] = []

    def update_member(self, member: MemberRow) -> None:
        """Note the session's own row, as the last heartbeat returned it."""
        self.member = member
        self.leader.update_member(member)
        self.coordinator.update_member(member)

    def streams_to_sync(self, requested_arns: frozenset[str]) -> frozenset[str]:
        """Return the streams whose shard rows this session syncs."""
        if self.leader.is_leading:
            return requested_arns
        return self.member.syncs & requested_arns

    def commit_share(self, stream_arn: str) -> float:
        """Return this session's share of the stream's commits, from 0 to 1."""
        return share_of(stream_arn, self.coordinator.range, self.member.clients)

    def cancel_tasks(self) -> None:
        """Cancel what runs for this session."""
        for task in self.tasks:
            task.cancel()
