"""One client of a group: its streams, and its sessions one after the other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.consuming.checkpointer import Checkpointer
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.streams import OpenStream, as_streams, open_streams
from kinesumer.consuming.watchdog import oldest_of
from kinesumer.coordination.events import (
    Failed,
    LeaderElected,
    SessionLost,
    SessionRenewed,
)
from kinesumer.coordination.heartbeat import Heartbeater
from kinesumer.coordination.paced_store import PacedStore
from kinesumer.coordination.reachability import Reachability
from kinesumer.coordination.session import Session
from kinesumer.coordination.shard_sync import ShardSyncer
from kinesumer.coordination.startup_checks import (
    Identity,
    check_group,
    require_no_go_clients,
    require_no_spark_query,
)
from kinesumer.core.liveness import interval_seconds
from kinesumer.errors import (
    CommitTimeoutError,
    KinesumerError,
    ShardsLostError,
)
from kinesumer.model.streams import Start
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import FailFastTaskGroup, first_error, raise_in_task
from kinesumer.runtime.timeouts import timeout
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from kinesumer.consuming.delivery_protocol import DeliveryProtocol
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.streams import StreamLike
    from kinesumer.consuming.watchdog import InFlightWork
    from kinesumer.coordination.events import Event, Notify
    from kinesumer.coordination.heartbeat_thread import HeartbeatRunner
    from kinesumer.model.records import Record
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.model.streams import ShardKey, Stream
    from kinesumer.ports import StreamSource
    from kinesumer.runtime.context import ClientContext

LEAVE_TIMEOUT_HEARTBEATS = 8
"""Maximum heartbeats that leave() waits for the hand-over: for the election of a new
leader, the moves of the plan before, and this client's own moves."""


class GroupConsumer:
    """One client's engine. It reaches AWS only through ports."""

    def __init__(
        self,
        context: ClientContext,
        open_source: Callable[[Stream], Awaitable[StreamSource]],
        heartbeat_runner: HeartbeatRunner,
        delivery: DeliveryProtocol,
    ) -> None:
        config = context.config
        unpaced, self._store = context, self._paced(context)
        self.context = context = replace(context, store=self._store)
        self.session: Session | None = None
        self.streams: dict[str, OpenStream] = {}
        self.buffer = PrefetchBuffer(config.buffer_bytes)
        self.checkpointer = Checkpointer(context, self)
        self.delivery = delivery
        delivery.connect(self.buffer, self.checkpointer, context.telemetry)
        self._reachability = Reachability(context, self)
        # A store of its own: only one client syncs a stream, at the full write rate.
        syncing = replace(context, store=self._paced(unpaced))
        self._shard_syncer = ShardSyncer(syncing, self.streams, self)
        self._requested_arns: frozenset[str] = frozenset()
        self._start = Start.LATEST
        self._open_source = open_source
        self._heartbeat_runner = heartbeat_runner
        self._heartbeater: Heartbeater | None = None
        self._group_identity: Identity | None = None
        self._registered = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._lost_acks: set[ShardKey] = set()
        self._run: asyncio.Task[None] | None = None
        self._fatal: BaseException | None = None
        self._leaving = False
        self._stopping = False

    # --- the client's calls ---------------------------------------------------------

    async def start(
        self, streams: StreamLike | Sequence[StreamLike], start: Start
    ) -> None:
        """Open the streams and register; return once registered."""
        self._start = start
        self.streams.update(await self._open(as_streams(streams)))
        self._requested_arns = frozenset(self.streams)
        await self.context.until_available(self.context.store.verify)
        await require_no_go_clients(self.context)
        await require_no_spark_query(self.context)
        loop = asyncio.get_running_loop()
        self._run = loop.create_task(self._main(), name="kinesumer")
        registered = loop.create_task(self._registered.wait())
        first = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait([self._run, registered], return_when=first)
        finally:
            registered.cancel()
        if self._fatal is not None:
            raise self._fatal

    def ack(self, record: Record) -> None:
        """Mark a record as processed, in any order (``commit="manual"``)."""
        fence = record.fence
        owned = self._shards().get(fence.shard)
        if owned is None or owned.row.epoch != fence.epoch:
            if self.session and self.session.shards.was_seeked(fence):
                return
            self._lost_acks.add(fence.shard)
        else:
            owned.ack(record.position)
            if owned.wants_commit:
                self.checkpointer.commit_soon()

    async def commit(self) -> None:
        """Commit all processed records. Raises ShardsLostError for lost shards."""
        lost = set(await self.checkpointer.commit_all()) | self._lost_acks
        if self.session is not None:
            lost |= self.session.shards.lost
            self.session.shards.lost.clear()
        self._lost_acks.clear()
        if lost:
            raise ShardsLostError([(arn, shard_id) for arn, shard_id in sorted(lost)])

    async def refresh(self, streams: StreamLike | Sequence[StreamLike]) -> None:
        """Consume these streams from now on instead of those before."""
        async with self._refreshing:
            opened = await self._open(as_streams(streams))
            for arn, stream in opened.items():
                self.streams.setdefault(arn, stream)
            arns = self._requested_arns = frozenset(opened)
            self._heartbeat_runner.call_in_loop(lambda it: it.set_streams(arns))
            if self.session is not None:
                await self._request_streams(self.session)
            self._shard_syncer.sync_soon()

    async def _request_streams(self, session: Session) -> None:
        arns = self._requested_arns
        await self.context.write(
            writes.request_streams(self.context.app, session.member, arns)
        )
        session.coordinator.restrict(arns)

    async def leave(self) -> None:
        """Hand every shard over while still consuming, then end the iteration.

        Other clients take each shard over with a short gap. That takes a few
        heartbeats, and more if the leader changes or a plan is being carried out.
        """
        self.set_state("leaving")
        self._leaving = True
        is_alone = self.session is not None and self.session.leader.is_alone
        if is_alone or self._stopping:
            self.delivery.close()
            return
        clients = self.session.member.clients if self.session else 1
        interval = interval_seconds(
            self.context.config.heartbeat_interval_seconds, clients
        )
        try:
            async with timeout(LEAVE_TIMEOUT_HEARTBEATS * interval):
                while self._shards() or (
                    self.session and self.session.coordinator.range
                ):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pass
        self.delivery.close()

    async def stop(self, *, wait_for_user: bool) -> None:
        """Stop reading, wait for user code, commit, release the shards, and leave.

        Raises CommitTimeoutError if the state store doesn't answer within a lease. The
        next owners then repeat the records whose positions aren't stored.
        """
        drain = self.context.config.drain_timeout_seconds if wait_for_user else 0.0
        try:
            async with timeout(drain + self.context.config.lease_duration_seconds):
                await self._give_up(drain)
        except TimeoutError:
            raise CommitTimeoutError(
                "the state store didn't answer: positions may not be stored, and other "
                "clients take the shards when this client's lease runs out"
            ) from None
        finally:
            await self._heartbeat_runner.stop()
            if self._run is not None:
                self._run.cancel()
                await asyncio.wait([self._run])

    async def _give_up(self, drain_seconds: float) -> None:
        self._stopping = True
        self.delivery.close()
        session = self.session
        self._heartbeat_runner.call_in_loop(lambda it: it.stop_watching())
        if session is not None:
            session.cancel_tasks()
            releases = (
                session.shards.release(owned, drain_seconds)
                for owned in list(session.shards.by_key.values())
            )
            await asyncio.gather(*releases)
        await self._heartbeat_runner.stop()
        # Also leave with a registration that isn't answered yet.
        member = (
            self._heartbeater.registering if self._heartbeater is not None else None
        )
        if member is not None and (session is not None or self._fatal is None):
            timestamp = rows.timestamp_text(self.context.clock.wall())
            await self.context.write(writes.leave(self.context.app, member, timestamp))

    def owned_shards(self) -> Iterable[OwnedShard]:
        """Return the shards that this client owns now. Any thread may call it."""
        return list(self._shards().values())

    # --- running --------------------------------------------------------------------

    async def _main(self) -> None:
        """Run until a fatal error, which ends the iteration."""
        try:
            async with FailFastTaskGroup() as self._tasks:
                self._tasks.create_task(self.context.loop_clock.run())
                self._heartbeat_runner.start(self._make_heartbeater, self._notify)
                self._tasks.create_task(self.checkpointer.run())
                self._tasks.create_task(self._shard_syncer.run())
                self._tasks.create_task(self._reachability.run())
        except BaseExceptionGroup as errors:
            self._fatal = first_error(errors)
            logger.error(
                "consuming ends: %s", self._fatal, extra={"error": str(self._fatal)}
            )
            self.delivery.close(self._fatal)
            await self.release_all(self.context.config.drain_timeout_seconds)

    async def release_all(self, drain_seconds: float) -> None:
        """Release all shards and leave, when nothing reads any more.

        Log failures only: stop() tries again and raises them.
        """
        try:
            async with timeout(
                drain_seconds + self.context.config.lease_duration_seconds
            ):
                await self._give_up(drain_seconds)
        except (TimeoutError, KinesumerError) as error:
            logger.warning(
                "other clients take the shards when this client's lease runs out: %s",
                str(error) or "the state store didn't answer",
                extra={"client_id": self.context.client_id},
            )
        finally:
            await self._heartbeat_runner.stop()

    def _make_heartbeater(self, context: ClientContext, notify: Notify) -> Heartbeater:
        self._notify_from_heartbeat = notify
        self._heartbeater = Heartbeater(
            context,
            streams=self._requested_arns,
            notify=notify,
            oldest_work=self._oldest_work,
        )
        return self._heartbeater

    def _oldest_work(self) -> InFlightWork | None:
        """Return the work that has made no progress for longest, for the watchdog."""
        clock = self.context.loop_clock
        return oldest_of(self.delivery, self.owned_shards(), clock)

    def _paced(self, context: ClientContext) -> PacedStore:
        """Return the store with paced writes, which let heartbeats go first."""
        return PacedStore(
            context.store,
            context.clock,
            context.random,
            self._is_heartbeat_throttled,
        )

    def _is_heartbeat_throttled(self) -> bool:
        return self._heartbeater is not None and self._heartbeater.is_throttled

    def set_state(self, state: str) -> None:
        """Report a state to the leader with the next heartbeat."""
        if not self._leaving:
            self._heartbeat_runner.call_in_loop(lambda it: it.set_state(state))

    def _notify(self, event: Event) -> None:
        """Handle an event of the heartbeat, on the client's event loop."""
        if self._stopping or self._tasks.is_ending:
            return
        match event:
            case Failed(error):
                self._tasks.create_task(raise_in_task(error))
            case SessionLost():
                self._session_died()
            case LeaderElected():
                self._shard_syncer.sync_soon()
            case SessionRenewed(lease, member):
                known = self.session
                if known is None or known.member.session != lease.session:
                    if not lease.dead:
                        self._begin_session(event)
                    return
                self._follow(member)

    def _follow(self, member: MemberRow) -> None:
        """Note this client's own row. Answers may arrive in another order than sent."""
        session = self.session
        if session is None or session.member.session != member.session:
            return
        if session.member.plan > member.plan:
            return
        if member.streams != self._requested_arns and not self._refreshing.locked():
            # A delayed earlier request was applied last: repeat the current one.
            self._tasks.create_task(self._request_streams(session))
        if member.notice > session.member.notice:
            self._shard_syncer.resync()
        elif member.syncs - session.member.syncs:
            self._shard_syncer.sync_soon()
        self._store.rate.share_among(member.clients)
        session.update_member(member)

    def _begin_session(self, registered: SessionRenewed) -> None:
        session = self.session = Session(
            self.context,
            registered,
            self.streams,
            self._requested_arns,
            self.buffer,
            self.delivery,
            self._notify_from_heartbeat,
        )
        member, leader = session.member, session.leader
        session.tasks = [
            self._tasks.create_task(self._check_group()),
            self._tasks.create_task(session.coordinator.run()),
        ]
        self._heartbeat_runner.call_in_loop(lambda it: it.watch_members(leader))
        if member.streams != self._requested_arns:  # refresh() came in between
            session.tasks.append(
                self._tasks.create_task(self._request_streams(session))
            )
        self._registered.set()
        logger.info(
            "registered as %s, session %s",
            member.client_id,
            member.session,
            extra={"client_id": member.client_id, "session": member.session},
        )

    def _session_died(self) -> None:
        session, self.session = self.session, None
        if session is None:
            return
        dead = session.member
        logger.warning(
            "session %s is dead; registering a new one",
            dead.session,
            extra={"client_id": dead.client_id, "session": dead.session},
        )
        session.shards.drop_all()
        self._lost_acks |= session.shards.lost
        session.cancel_tasks()

    async def _check_group(self) -> None:
        self._group_identity = await check_group(self.context, self._group_identity)
        await require_no_spark_query(self.context)

    # --- for the parts of the engine ------------------------------------------------

    @property
    def synced_streams(self) -> frozenset[str]:
        """The ARNs of the streams that this client syncs now."""
        if self.session is None:
            return frozenset()
        return self.session.streams_to_sync(self._requested_arns)

    def rows_changed(self) -> None:
        """Have the leader plan, and claim shards, after a change of shard rows."""
        if self.session is not None:
            leader = self.session.leader
            self._heartbeat_runner.call_in_loop(lambda _: leader.shards_changed())
            self.session.coordinator.poll_now()

    def streams_with_shards(self) -> list[OpenStream]:
        """Return the streams of which this client owns shards."""
        arns = {key.stream_arn for key in self._shards()}
        return [self.streams[arn] for arn in arns]

    def streams_without_shards(self) -> list[OpenStream]:
        """Return the other streams that this client consumes."""
        arns = {key.stream_arn for key in self._shards()}
        return [self.streams[arn] for arn in self._requested_arns - arns]

    def sync_progress(self) -> None:
        """Update the shards' progress by what user code has done."""
        self.delivery.sync_progress()

    def commit_share(self, stream_arn: str) -> float:
        """Return this client's share of the stream's commits, from 0 to 1."""
        return 1.0 if self.session is None else self.session.commit_share(stream_arn)

    def commit_rejected(self, owned: OwnedShard, row: ShardRow | None) -> None:
        """Handle a rejected commit: ``row`` is the shard's row as it is now."""
        if self.session is not None:
            self.session.coordinator.on_rejected(owned, row)

    async def _open(self, streams: list[Stream]) -> dict[str, OpenStream]:
        return await open_streams(self.context, streams, self._start, self._open_source)

    def _shards(self) -> dict[ShardKey, OwnedShard]:
        return session.shards.by_key if (session := self.session) else {}
