"""A registered session of a client: its leader, its shards, and its end.

A client that leaves hands its shards over, or releases them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from kinesumer.consuming.delivery_protocol import DeliveryProtocol
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.heartbeat import HeartbeatTask
from kinesumer.coordination.held_shards import HeldShards
from kinesumer.coordination.leader import Leader
from kinesumer.coordination.lease_coordinator import LeaseCoordinator
from kinesumer.coordination.membership import Notify, SessionRenewed
from kinesumer.core.backoff import CHECK_SECONDS
from kinesumer.core.congestion import share_of
from kinesumer.core.liveness import interval_seconds
from kinesumer.core.load import work_of_report
from kinesumer.errors import CommitTimeoutError, KinesumerError
from kinesumer.model.rows import MemberRow
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import timeout
from kinesumer.telemetry.api import ClientState, StreamState
from kinesumer.wire import rows, writes
from kinesumer.wire.reports import read_loads

# The maximum number of heartbeat intervals for which a client that leaves waits. It
# suffices for the election of a new leader, the moves of the previous plan, and this
# client's own moves.
LEAVE_TIMEOUT_HEARTBEATS = 8


class Session:
    """A session's member row, leader, lease coordinator and tasks."""

    def __init__(
        self,
        context: ClientContext,
        registered: SessionRenewed,
        streams: Mapping[str, OpenStream],
        requested_arns: frozenset[str],
        buffer: PrefetchBuffer,
        delivery: DeliveryProtocol,
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


class Departure:
    """Ends the membership of one client."""

    def __init__(
        self,
        context: ClientContext,
        session: Callable[[], Session | None],
        registered: Callable[[], MemberRow | None],
        delivery: DeliveryProtocol,
        heartbeat_runner: HeartbeatTask,
    ) -> None:
        """Create it. ``registered`` returns the row of a session that may be alive."""
        self.is_stopping: bool = False
        self._context = context
        self._session, self._registered = session, registered
        self._delivery = delivery
        self._heartbeat_runner = heartbeat_runner

    async def hand_over(self) -> None:
        """Wait until other clients have all shards, then end the iteration.

        The wait has a limit. A client that is alone does not wait.
        """
        session, callbacks = self._session(), self._delivery.callbacks
        if callbacks is not None:
            callbacks.is_leaving = True
        if not (self.is_stopping or (session and session.leader.is_alone)):
            clients = session.member.clients if session else 1
            heartbeat = self._context.config.heartbeat_interval_seconds
            interval = interval_seconds(heartbeat, clients)
            try:
                async with timeout(LEAVE_TIMEOUT_HEARTBEATS * interval):
                    while self._has_shards_or_range():
                        await asyncio.sleep(CHECK_SECONDS)
            except TimeoutError:
                pass
        self._delivery.close()

    def _has_shards_or_range(self) -> bool:
        # As long as the plan gives this client a range, no other client claims shards
        # in it.
        session = self._session()
        return session is not None and bool(
            session.shards.by_key or session.coordinator.range
        )

    async def stop(self, drain_seconds: float) -> None:
        """Stop reading, wait for user code, commit, release the shards, and leave.

        Raises CommitTimeoutError if the state store doesn't answer for a lease's time.
        """
        try:
            await self._release_and_finish(drain_seconds, is_last=True)
        except TimeoutError:
            raise CommitTimeoutError(
                "the state store didn't answer, so positions may not be stored; expect "
                "other clients to repeat records when this client's lease runs out"
            ) from None
        finally:
            await self._heartbeat_runner.stop()

    async def release_all(self, drain_seconds: float) -> None:
        """Release all shards and leave the group, after reading has stopped.

        Without ``drain_seconds``, user code is over. Failures are only logged.
        """
        try:
            await self._release_and_finish(drain_seconds, is_last=not drain_seconds)
        except (TimeoutError, KinesumerError) as error:
            logger.warning(
                "other clients take the shards when this client's lease runs out: %s",
                str(error) or "the state store didn't answer",
                extra={"client_id": self._context.client_id},
            )
        finally:
            await self._heartbeat_runner.stop()

    async def _release_and_finish(self, drain_seconds: float, *, is_last: bool) -> None:
        """Release all shards. With ``is_last``, user code is over: call all callbacks.

        Raises TimeoutError if the state store doesn't answer for the length of a lease.
        """
        try:
            await self._release(drain_seconds)
        except (TimeoutError, KinesumerError):
            await self._end_callbacks(is_last=is_last)
            raise
        await self._end_callbacks(is_last=is_last)

    async def _end_callbacks(self, *, is_last: bool) -> None:
        if is_last and self._delivery.callbacks is not None:
            await self._delivery.callbacks.finish()

    async def _release(self, drain_seconds: float) -> None:
        self.is_stopping = True
        context, session = self._context, self._session()
        callbacks = self._delivery.callbacks
        wait = drain_seconds if callbacks is None else callbacks.wait_seconds
        lease_seconds = context.config.lease_duration_seconds
        # This also limits the end of the heartbeats.
        async with timeout(wait + lease_seconds):
            self._delivery.close()
            self._heartbeat_runner.call_in_loop(lambda it: it.stop_watching())
            if session is not None:
                session.cancel_tasks()
                releases = (
                    self._release_shard(session.shards, owned, drain_seconds)
                    for owned in list(session.shards.by_key.values())
                )
                # A shard whose release fails doesn't keep the others from theirs.
                for outcome in await asyncio.gather(*releases, return_exceptions=True):
                    if outcome is not None:
                        raise outcome
            # Send heartbeats during the releases, which may take longer than the lease.
            # But end them before the row is marked as dead: a heartbeater that finds
            # this mark registers a new session.
            await self._heartbeat_runner.stop()
            member = self._registered()
            if member is not None:
                timestamp = rows.timestamp_text(context.clock.wall())
                async with timeout(lease_seconds):
                    await context.write(writes.leave(context.app, member, timestamp))

    async def _release_shard(
        self, shards: HeldShards, owned: OwnedShard, drain_seconds: float
    ) -> None:
        await shards.drain(owned, drain_seconds, "closed")
        # If the store doesn't answer for the length of a lease, other clients take the
        # shards anyway.
        async with timeout(self._context.config.lease_duration_seconds):
            await shards.hand_back(owned)
