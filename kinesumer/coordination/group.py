"""One client of a group: its sessions one after the other, and what they own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.consuming.checkpointer import Checkpointer
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.streams import OpenStream, as_streams, open_streams
from kinesumer.consuming.watchdog import oldest_of
from kinesumer.coordination.heartbeat import (
    Event,
    Failed,
    Heartbeater,
    LeaderElected,
    SessionLost,
    SessionRenewed,
)
from kinesumer.coordination.leader import Leader
from kinesumer.coordination.lease_coordinator import LeaseCoordinator
from kinesumer.coordination.paced_store import PacedStore
from kinesumer.coordination.reachability import Reachability
from kinesumer.coordination.shard_sync import ShardSyncer
from kinesumer.coordination.startup_checks import (
    Identity,
    check_group,
    require_no_go_clients,
    require_no_spark_query,
)
from kinesumer.core.liveness import interval_seconds
from kinesumer.core.write_rate import share_of
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
    from kinesumer.coordination.heartbeat_thread import HeartbeatRunner
    from kinesumer.model.records import Record
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.model.streams import ShardKey, Stream
    from kinesumer.ports import StreamSource
    from kinesumer.runtime.context import ClientContext

LEAVE_TIMEOUT_HEARTBEATS = 8
"""How long leave() waits for heirs: until a new leader leads, the moves of the plan
before are done, and one's own."""


class Session:
    """A registered session: its lease, its part in the group, and the tasks of both."""

    def __init__(
        self, member: MemberRow, leader: Leader, coordinator: LeaseCoordinator
    ) -> None:
        self.member, self.leader, self.coordinator = member, leader, coordinator
        self.tasks: list[asyncio.Task[None]] = []


class GroupConsumer:
    """The engine of one client, free of AWS: everything it touches is a port."""

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
        self._reachability = Reachability(
            context, self._reading, self._waiting, self._set_state
        )
        # One client keeps a stream's rows: it shares the table with no other keeper.
        keeping = replace(context, store=self._paced(unpaced))
        self._shard_syncer = ShardSyncer(
            keeping, self.streams, lambda: self._synced_streams, self._rows_changed
        )
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
        """Find the streams, register, and begin to take part."""
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
        """Mark one record as done, in any order (``commit="manual"``)."""
        fence = record.fence
        owned = self._owned().get(fence.shard)
        if owned is None or owned.row.epoch != fence.epoch:
            if self.session and self.session.coordinator.was_seeked_away(fence):
                return
            self._lost_acks.add(fence.shard)
        else:
            owned.ack(record.position)
            if owned.wants_commit:
                self.checkpointer.commit_soon()

    async def commit(self) -> None:
        """Store all that is done. Raises ShardsLostError for what can't be stored."""
        lost = set(await self.checkpointer.commit_all()) | self._lost_acks
        if self.session is not None:
            lost |= self.session.coordinator.lost
            self.session.coordinator.lost.clear()
        self._lost_acks.clear()
        if lost:
            raise ShardsLostError([(arn, shard_id) for arn, shard_id in sorted(lost)])

    async def refresh(self, streams: StreamLike | Sequence[StreamLike]) -> None:
        """Consume these streams from now on, in place of the ones before."""
        async with self._refreshing:
            opened = await self._open(as_streams(streams))
            for arn, stream in opened.items():
                self.streams.setdefault(arn, stream)
            asked = self._requested_arns = frozenset(opened)
            self._heartbeat_runner.call_in_loop(lambda it: it.set_streams(asked))
            if self.session is not None:
                await self._request_streams(self.session)
            self._shard_syncer.sync_soon()

    async def _request_streams(self, session: Session) -> None:
        asked = self._requested_arns
        await self.context.write(
            writes.request_streams(self.context.app, session.member, asked)
        )
        session.coordinator.restrict(asked)

    async def leave(self) -> None:
        """Hand every shard over while still consuming, then end the iteration.

        The others take each shard over with a short gap. It takes some heartbeats, more
        where the leader changes or waits for the moves of a plan before.
        """
        self._set_state("leaving")
        self._leaving = True
        is_alone = self.session is not None and self.session.leader.is_alone
        if is_alone or self._stopping:
            self.delivery.close()
            return
        clients = self.session.member.clients if self.session else 1
        beat = interval_seconds(self.context.config.heartbeat_interval_seconds, clients)
        try:
            async with timeout(LEAVE_TIMEOUT_HEARTBEATS * beat):
                while self._owned() or (
                    self.session and self.session.coordinator.range
                ):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pass
        self.delivery.close()

    async def stop(self, *, wait_for_user: bool) -> None:
        """Stop in order: fetching, user code, positions, shards, membership, tasks.

        Raises CommitTimeoutError, after giving up everything, if the state store
        didn't take them within a lease: then others repeat what isn't stored.
        """
        drain = self.context.config.drain_timeout_seconds if wait_for_user else 0.0
        try:
            async with timeout(drain + self.context.config.lease_duration_seconds):
                await self._give_up(drain)
        except TimeoutError:
            raise CommitTimeoutError(
                "the state store didn't answer: positions may not be stored, and the "
                "shards wait until this client's lease has run out"
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
            for task in session.tasks:
                task.cancel()
            releases = (
                session.coordinator.release(owned, drain_seconds)
                for owned in list(session.coordinator.held.values())
            )
            await asyncio.gather(*releases)
        await self._heartbeat_runner.stop()
        # A registration just made, or on its way, leaves too.
        member = (
            self._heartbeater.registering if self._heartbeater is not None else None
        )
        if member is not None and (session is not None or self._fatal is None):
            moment = rows.timestamp_text(self.context.clock.wall())
            await self.context.write(writes.leave(self.context.app, member, moment))

    def owned_shards(self) -> Iterable[OwnedShard]:
        """Return the shards held now; the heart asks from a thread of its own."""
        return list(self._owned().values())

    # --- running --------------------------------------------------------------------

    async def _main(self) -> None:
        """Run until a fatal fault, which ends the iteration with its reason."""
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
        """Give everything up: nobody reads any more, though user code stays for long.

        stop() tries again what fails here, and tells.
        """
        try:
            async with timeout(
                drain_seconds + self.context.config.lease_duration_seconds
            ):
                await self._give_up(drain_seconds)
        except (TimeoutError, KinesumerError) as error:
            logger.warning(
                "shards wait until this client's lease has run out: %s",
                str(error) or "the state store didn't answer",
                extra={"client_id": self.context.client_id},
            )
        finally:
            await self._heartbeat_runner.stop()

    def _make_heartbeater(
        self, context: ClientContext, notify: Callable[[Event], None]
    ) -> Heartbeater:
        self._post = notify
        self._heartbeater = Heartbeater(
            context,
            streams=self._requested_arns,
            notify=notify,
            oldest_work=lambda: oldest_of(
                self.delivery, self.owned_shards(), context.loop_clock
            ),
        )
        return self._heartbeater

    def _paced(self, context: ClientContext) -> PacedStore:
        """Return the store with writes that let heartbeats go first."""
        return PacedStore(
            context.store,
            context.clock,
            context.random,
            lambda: self._heartbeater is not None and self._heartbeater.is_throttled,
        )

    def _set_state(self, state: str) -> None:
        if not self._leaving:
            self._heartbeat_runner.call_in_loop(lambda it: it.set_state(state))

    def _notify(self, event: Event) -> None:
        """Take in what the heart tells (on the client's loop)."""
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
        """Take in one's own row; answers may come in another order than the writes."""
        session = self.session
        if session is None or session.member.session != member.session:
            return
        if session.member.plan > member.plan:
            return
        if member.streams != self._requested_arns and not self._refreshing.locked():
            # An earlier request came late, and asks for what isn't wanted any more.
            self._tasks.create_task(self._request_streams(session))
        if member.notice > session.member.notice:
            self._shard_syncer.resync()
        elif member.syncs - session.member.syncs:
            self._shard_syncer.sync_soon()
        session.member = member
        self._store.rate.share_among(member.clients)
        session.leader.update_member(member)
        session.coordinator.update_member(member)

    def _begin_session(self, event: SessionRenewed) -> None:
        lease, member = event
        leader = Leader(
            self.context,
            lease,
            member,
            reachable=lambda: self._requested_arns,
            # Both are called on the heart's loop.
            assigned=lambda row: self._post(SessionRenewed(lease, row)),
            elected=lambda: self._post(LeaderElected()),
        )
        coordinator = LeaseCoordinator(
            self.context,
            lease,
            member,
            self.streams,
            self.buffer,
            leader.dead,
            self.sync_progress,
        )
        session = self.session = Session(member, leader, coordinator)
        session.tasks = [
            self._tasks.create_task(self._check_group()),
            self._tasks.create_task(coordinator.run()),
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
            "session %s is over, registering anew",
            dead.session,
            extra={"client_id": dead.client_id, "session": dead.session},
        )
        session.coordinator.drop_all()
        self._lost_acks |= session.coordinator.lost
        for task in session.tasks:
            task.cancel()

    async def _check_group(self) -> None:
        self._group_identity = await check_group(self.context, self._group_identity)
        await require_no_spark_query(self.context)

    @property
    def _synced_streams(self) -> frozenset[str]:
        """The streams whose rows this client keeps in step with Kinesis."""
        if self.session is None:
            return frozenset()
        if self.session.leader.is_leading:
            return self._requested_arns
        return self.session.member.syncs & self._requested_arns

    def _rows_changed(self) -> None:
        if self.session is not None:
            leader = self.session.leader
            self._heartbeat_runner.call_in_loop(lambda _: leader.shards_changed())
            self.session.coordinator.poll_now()

    # --- odds and ends --------------------------------------------------------------

    async def _open(self, streams: list[Stream]) -> dict[str, OpenStream]:
        return await open_streams(self.context, streams, self._start, self._open_source)

    def _reading(self) -> list[OpenStream]:
        arns = {key.stream_arn for key in self._owned()}
        return [self.streams[arn] for arn in arns]

    def _waiting(self) -> list[OpenStream]:
        arns = {key.stream_arn for key in self._owned()}
        return [self.streams[arn] for arn in self._requested_arns - arns]

    def _owned(self) -> dict[ShardKey, OwnedShard]:
        return session.coordinator.held if (session := self.session) else {}

    def sync_progress(self) -> None:
        """Update the shards' progress by what user code has done."""
        self.delivery.sync_progress()

    def commit_share(self, stream_arn: str) -> float:
        """Return this client's share of the stream's commits, from 0 to 1."""
        if (session := self.session) is None:
            return 1.0
        return share_of(stream_arn, session.coordinator.range, session.member.clients)

    def commit_rejected(self, owned: OwnedShard, row: ShardRow | None) -> None:
        """Handle a rejected commit: ``row`` is the shard's row as it is now."""
        if self.session is not None:
            self.session.coordinator.on_rejected(owned, row)
