"""Run one client of a group, with its streams and its successive sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kinesumer.consuming.checkpointer import Checkpointer
from kinesumer.consuming.delivery_protocol import (
    DeliveryProtocol,
    EngineParts,
    oldest_of,
)
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.streams import (
    OpenStream,
    StreamLike,
    as_streams,
    fan_out_uses,
    open_streams,
)
from kinesumer.coordination.app_count import AppCount
from kinesumer.coordination.heartbeat import Heartbeater, HeartbeatTask
from kinesumer.coordination.member_reports import MemberReports, Reachability
from kinesumer.coordination.membership import (
    Event,
    Failed,
    LeaderElected,
    Notify,
    SessionLost,
    SessionRenewed,
)
from kinesumer.coordination.session import Departure, Session
from kinesumer.coordination.shard_end import until_read
from kinesumer.coordination.shard_sync import ShardSyncer
from kinesumer.coordination.startup_checks import (
    StoreIdentity,
    check_group,
    require_no_go_clients,
    require_no_spark_query,
)
from kinesumer.coordination.state_store import PacedStore
from kinesumer.errors import ShardsLostError
from kinesumer.model.batches import Batch
from kinesumer.model.records import Record
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import ShardKey, Start, Stream
from kinesumer.ports import StreamSource
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import (
    FailFastTaskGroup,
    cancel_and_wait,
    first_error,
    raise_in_task,
    wait_for_start,
)
from kinesumer.telemetry.api import ClientState, StreamState


class GroupConsumer:
    """Runs one client of a group. It calls AWS only through the ports."""

    def __init__(
        self,
        context: ClientContext,
        open_source: Callable[[Stream], Awaitable[StreamSource]],
        heartbeat_runner: HeartbeatTask,
        delivery: DeliveryProtocol,
    ) -> None:
        # All clients share one rate limit, but only one client syncs a stream.
        syncing = replace(context, store=self._paced(context))
        self._store = self._paced(context)
        self.context = context = replace(context, store=self._store)
        self.session: Session | None = None
        self.streams: dict[str, OpenStream] = {}
        self.buffer: PrefetchBuffer = PrefetchBuffer(context.config.buffer_bytes)
        self.checkpointer: Checkpointer = Checkpointer(context, self)
        self.delivery = delivery
        delivery.connect(
            EngineParts(self.buffer, self.checkpointer.commit_soon, context.telemetry)
        )
        if delivery.callbacks is not None:
            delivery.callbacks.connect(
                context, delivery.has_records, self._callback_failed
            )
        self._reachability = Reachability(context, self.streams_by_use, self.set_state)
        self._app_count = AppCount(context, self.requested_streams)
        self._shard_syncer = ShardSyncer(
            syncing, self.streams, self._synced_streams, self._rows_changed
        )
        self._requested_arns: frozenset[str] = frozenset()
        self._start = Start.LATEST
        self._open_source = open_source
        self._heartbeat_runner = heartbeat_runner
        self._heartbeater: Heartbeater | None = None
        self._group_identity: StoreIdentity | None = None
        self._registered, self._refreshing = asyncio.Event(), asyncio.Lock()
        self._lost_acks: set[ShardKey] = set()
        self._run: asyncio.Task[None] | None = None
        self._fatal: BaseException | None = None
        self._leaving = False
        self.departure = Departure(
            context,
            lambda: self.session,
            self._registered_member,
            delivery,
            heartbeat_runner,
        )

    # --- the client's calls ---------------------------------------------------------

    async def start(
        self, streams: StreamLike | Sequence[StreamLike], start: Start
    ) -> None:
        """Open the streams, and wait until the client is registered."""
        self._start = start
        opened = await self._open(as_streams(streams))
        await self.delivery.add_streams(opened.values())
        self.streams.update(opened)
        self._requested_arns = frozenset(self.streams)
        await self.context.until_available(self.context.store.verify)
        # Check before the registration, so that a refused client leaves no row behind.
        await require_no_go_clients(self.context)
        await require_no_spark_query(self.context)
        self._run = asyncio.create_task(self._main(), name="kinesumer")
        await wait_for_start(self._registered, self._run)
        if self._fatal is not None:
            raise self._fatal

    def ack(self, done: Record[Any] | Batch[Any]) -> None:
        """Mark a record or a batch as processed, in any order (``commit="manual"``)."""
        fence = done.fence
        owned = self._shards().get(fence.shard)
        if owned is not None and owned.row.epoch == fence.epoch:
            owned.ack(done)
            if owned.wants_commit:
                self.checkpointer.commit_soon()
        elif not (self.session and self.session.shards.was_seeked(fence)):
            self._lost_acks.add(fence.shard)

    async def commit(self) -> None:
        """Commit all processed records. Raises ShardsLostError for lost shards."""
        lost = set(await self.checkpointer.commit_all()) | self._lost_acks
        if self.session is not None:
            lost |= self.session.shards.lost
            self.session.shards.lost.clear()
        self._lost_acks.clear()
        if lost:
            raise ShardsLostError([(arn, shard_id) for arn, shard_id in sorted(lost)])

    async def refresh(
        self, streams: StreamLike | Sequence[StreamLike] | Mapping[Any, object]
    ) -> None:
        """Consume these streams, or those in {stream: handler}, and no others."""
        handlers = None
        if isinstance(streams, Mapping):
            handlers, streams = streams, [*streams]
        async with self._refreshing:
            opened = await self._open(as_streams(streams))
            await self.delivery.add_streams(opened.values(), handlers)
            for arn, stream in opened.items():
                self.streams.setdefault(arn, stream)
            arns = self._requested_arns = frozenset(opened)
            # Tell the heartbeater first. If the session dies during the write below,
            # the next session must register with the new streams.
            self._heartbeat_runner.call_in_loop(lambda it: it.set_streams(arns))
            if self.session is not None:
                await self.session.request_streams(arns)
            self._shard_syncer.sync_soon()

    async def leave(self) -> None:
        """Hand every shard over while still consuming, then end the iteration.

        Leaving takes a few heartbeat intervals, or more if the leader changes.
        """
        self.set_state("leaving")
        self._leaving = True
        await self.departure.hand_over()

    async def stop(self, *, wait_for_user: bool) -> None:
        """Stop reading, wait for user code, commit, release the shards, and leave.

        Raises CommitTimeoutError if the state store doesn't answer for a lease's time.
        """
        drain = self.context.config.drain_timeout_seconds if wait_for_user else 0.0
        try:
            await self.departure.stop(drain)
        finally:
            if self._run is not None:
                await cancel_and_wait(self._run)

    def owned_shards(self) -> Iterable[OwnedShard]:
        """Return the shards that this client owns now. Any thread may call it."""
        return list(self._shards().values())

    def read_gauges(self) -> ClientState:
        """Return the values of this client's gauges. Any thread may call it."""
        app, used, arns = self.context.app, max(0, self.buffer.used), [*self.streams]
        if (session := self.session) is None:
            state = ClientState(app, used, None, tuple(map(StreamState, arns)))
        else:
            state = session.gauges(app, used, arns)
        return state._replace(incidents=tuple(self.context.incidents.current()))

    # --- running --------------------------------------------------------------------

    async def _main(self) -> None:
        """Run the client's tasks until one fails, which ends the iteration."""
        try:
            async with FailFastTaskGroup() as self._tasks:
                self._tasks.create_task(self.context.loop_clock.run())
                self._heartbeat_runner.start(self._make_heartbeater, self._notify)
                self._tasks.create_task(self.checkpointer.run())
                self._tasks.create_task(self._shard_syncer.run())
                self._tasks.create_task(self._reachability.run())
                self._tasks.create_task(self._app_count.run())
                if self.delivery.until is not None:
                    self._tasks.create_task(self._end_when_read())
        except BaseExceptionGroup as errors:
            self._fatal = first_error(errors)
            text = str(self._fatal)
            logger.error("consumption ends: %s", text, extra={"error": text})
            self.delivery.close(self._fatal)
            # Release the shards now, since user code may catch the error and stay in
            # its ``async with`` block for long.
            await self.departure.release_all(self.context.config.drain_timeout_seconds)

    async def _end_when_read(self) -> None:
        await until_read(self.context, self.owned_shards, self.requested_streams)
        self.delivery.close()

    def _make_heartbeater(self, context: ClientContext, notify: Notify) -> Heartbeater:
        self._notify_from_heartbeat = notify
        clock = self.context.loop_clock
        self._heartbeater = Heartbeater(
            context,
            streams=self._requested_arns,
            notify=notify,
            oldest_work=lambda: oldest_of(self.delivery, self.owned_shards(), clock),
            fan_out=lambda: fan_out_uses(self.streams),
            reports=MemberReports(context, self.owned_shards),
        )
        return self._heartbeater

    def _paced(self, context: ClientContext) -> PacedStore:
        """Return the context's store with paced writes, so that heartbeats go first."""
        return PacedStore(
            context.store,
            context.clock,
            context.random,
            lambda: self._heartbeater is not None and self._heartbeater.is_throttled,
        )

    def set_state(self, state: str) -> None:
        """Report a state to the leader with the next heartbeat."""
        if not self._leaving:
            self._heartbeat_runner.call_in_loop(lambda it: it.set_state(state))

    def _notify(self, event: Event) -> None:
        """Handle an event that the heartbeater reports, on the client's event loop."""
        if self.departure.is_stopping or self._tasks.is_ending:
            return
        match event:
            case Failed(error):
                self._tasks.create_task(raise_in_task(error))
            case SessionLost() if self.session is not None:
                self._session_died(self.session)
            case LeaderElected():
                self._shard_syncer.sync_soon()
            case SessionRenewed(lease, member):
                # The session may have died since the heartbeater sent this event.
                session = self.session
                if session is not None and session.member.session == lease.session:
                    self._follow(session, member)
                elif not lease.dead:
                    self._begin_session(event)

    def _follow(self, session: Session, member: MemberRow) -> None:
        """Apply this client's own member row, unless a newer one was applied before."""
        if session.member.plan > member.plan:
            return
        arns = self._requested_arns
        if member.streams != arns and not self._refreshing.locked():
            # A delayed older request has overwritten the current one in the row, so
            # send the current one again.
            self._tasks.create_task(session.request_streams(arns))
        if member.notice > session.member.notice:
            self._shard_syncer.resync()
        elif member.syncs - session.member.syncs:
            self._shard_syncer.sync_soon()
        self._store.rate.share_among(member.clients)
        session.update_member(member)

    def _callback_failed(self, error: BaseException) -> bool:
        """End the iteration with an error of user code. Return False after its end."""
        if self.departure.is_stopping or self._tasks.is_ending:
            return False
        if isinstance(error, Exception):
            self._tasks.create_task(raise_in_task(error))
        else:  # raising it in a task would end the event loop
            self.delivery.close(error)
        return True

    def _begin_session(self, registered: SessionRenewed) -> None:
        arns = self._requested_arns
        session = self.session = Session(
            self.context,
            registered,
            self.streams,
            arns,
            self.buffer,
            self.delivery,
            self._notify_from_heartbeat,
        )
        member, leader = session.member, session.leader
        work = [self._check_group(), session.coordinator.run()]
        if member.streams != arns:  # refresh() has changed them since
            work.append(session.request_streams(arns))
        session.tasks = [self._tasks.create_task(one) for one in work]
        self._heartbeat_runner.call_in_loop(lambda it: it.watch_members(leader))
        self._registered.set()
        logger.info(
            "registered as %s, session %s",
            member.client_id,
            member.session,
            extra={"client_id": member.client_id, "session": member.session},
        )

    def _session_died(self, session: Session) -> None:
        self.session, dead = None, session.member
        logger.warning(
            "session %s is dead; registering a new one",
            dead.session,
            extra={"client_id": dead.client_id, "session": dead.session},
        )
        session.shards.drop_all()
        self._lost_acks |= session.shards.lost
        session.cancel_tasks()

    async def _check_group(self) -> None:
        # A Spark query may have started at the same time as this client.
        self._group_identity = await check_group(self.context, self._group_identity)
        await require_no_spark_query(self.context)

    # --- for the parts of the engine ------------------------------------------------

    def _registered_member(self) -> MemberRow | None:
        """Return the member row, also while the answer to a registration is due.

        None if no session may be alive.
        """
        if self._heartbeater is None or (self._fatal and not self.session):
            return None
        return self._heartbeater.registering

    def _synced_streams(self) -> frozenset[str]:
        session, arns = self.session, self._requested_arns
        return frozenset() if session is None else session.streams_to_sync(arns)

    def requested_streams(self) -> list[OpenStream]:
        """Return the streams that this client consumes."""
        return [self.streams[arn] for arn in self._requested_arns]

    def _rows_changed(self) -> None:
        if self.session is not None:
            leader = self.session.leader
            self._heartbeat_runner.call_in_loop(lambda _: leader.shards_changed())
            self.session.coordinator.poll_now()

    def streams_by_use(self) -> tuple[list[OpenStream], list[OpenStream]]:
        """Return the streams of which this client owns shards, and the others."""
        used = {key.stream_arn for key in self._shards()}
        idle = self._requested_arns - used
        return [self.streams[arn] for arn in used], [self.streams[arn] for arn in idle]

    def sync_progress(self) -> None:
        """Update the shards' progress with the records that user code has processed."""
        self.delivery.sync_progress()

    def commit_share(self, stream_arn: str) -> float:
        """Return this client's share of the stream's commits, from 0 to 1."""
        return 1.0 if self.session is None else self.session.commit_share(stream_arn)

    def commit_rejected(self, owned: OwnedShard, row: ShardRow | None) -> None:
        """Handle a rejected commit. ``row`` is the shard's current row."""
        if self.session is not None:
            self.session.coordinator.on_rejected(owned, row)

    async def _open(self, streams: list[Stream]) -> dict[str, OpenStream]:
        return await open_streams(
            self.context, streams, self._start, self._open_source, self.delivery.until
        )

    def _shards(self) -> dict[ShardKey, OwnedShard]:
        return session.shards.by_key if (session := self.session) else {}
