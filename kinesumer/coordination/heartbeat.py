"""Register the sessions of a client, and send their heartbeats.

In production this runs on the thread that makes the calls to the state store. So a
client keeps its lease even if user code blocks the client's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from kinesumer.consuming.watchdog import InFlightWork
from kinesumer.coordination.leader import Leader
from kinesumer.coordination.membership import (
    Event,
    Failed,
    Notify,
    SessionLost,
    SessionRenewed,
)
from kinesumer.coordination.startup_checks import outlive_predecessor
from kinesumer.coordination.state_store import StoreThread, StoreThreadEndedError
from kinesumer.core.liveness import Lease, interval_seconds, lease_ms
from kinesumer.errors import StoreThrottledError, StoreUnavailableError
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.rows import CLIENT, LivenessRow, MemberRow
from kinesumer.model.streams import FanOutUse
from kinesumer.ports import Write, WriteResult
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import cancel_and_wait, wait_and_clear
from kinesumer.wire import rows, writes
from kinesumer.wire.reports import room_bytes

# The part of the lease after which the session stops delivering records. The rest is a
# margin, since the session's clock may run slower than the clock of an observer.
SAFE_LEASE_SHARE = 0.75
# The time between two heartbeats that also write ``last_update``. Each of these costs
# three write units, other heartbeats cost one. With the default of 2 s, that is 3 %
# more. Only people and the search for long dead members need the time.
UPDATE_SECONDS = 120.0
# The heartbeats in an interval before the first plan, which an answer brings.
FIRST_BEATS = 8
# The least and the most factor of the time between two of them. Without jitter, clients
# that started together would send their heartbeats at the same times.
JITTER = 0.75, 1.25


class Heartbeater:
    """Registers sessions one after the other, and sends their heartbeats.

    Calls ``notify`` with each event, on the heartbeater's event loop.
    """

    def __init__(
        self,
        context: ClientContext,
        *,
        streams: frozenset[str],
        notify: Notify,
        oldest_work: Callable[[], InFlightWork | None],
        fan_out: Callable[[], Mapping[str, FanOutUse]] = dict,
        reports: Callable[[MemberRow, int], dict[str, str]] = lambda *_: {},
        kind: str = CLIENT,
    ) -> None:
        self.state: str = "up"
        # The streams that the next registration requests.
        self.streams: frozenset[str] = streams
        # The last registration sent. It may be stored even if no answer arrived.
        self.registering: MemberRow | None = None
        # True if the store throttled a heartbeat, so that other writes must wait. Any
        # thread may read it.
        self.is_throttled: bool = False
        self._context = context
        self._notify = notify
        self._oldest_work = oldest_work
        self._fan_out = fan_out
        self._reports = reports
        self._kind = kind
        self._beat_now = asyncio.Event()
        self._lease_ms = round(context.config.lease_duration_seconds * 1000)
        self._leader: Leader | None = None
        self._leader_task: asyncio.Task[None] | None = None

    def set_state(self, state: str) -> None:
        """Send a heartbeat with a new state at once. The state "leaving" is final."""
        if self.state not in (state, "leaving"):
            self.state = state
            self._beat_now.set()

    def set_streams(self, streams: frozenset[str]) -> None:
        """Set the streams that the client reads, and requests when it registers."""
        self.streams = streams
        if self._leader is not None:
            self._leader.reachable = streams

    def watch_members(self, leader: Leader) -> None:
        """Run a session's leader on this event loop, until the session is dead.

        A leader must notice dead members even while user code blocks the client's event
        loop.
        """
        if leader.lease.dead:
            return
        leader.use_context(self._context)
        self._leader = leader
        self._leader_task = asyncio.create_task(self._watch_members(leader))

    def stop_watching(self) -> None:
        """Stop fencing and planning."""
        if self._leader_task is not None:
            self._leader_task.cancel()

    async def _watch_members(self, leader: Leader) -> None:
        try:
            await leader.run()
        except Exception as error:
            self._notify(Failed(error))

    async def run(self) -> None:
        """Run one session after the other until cancelled."""
        context = self._context
        try:
            while True:
                member, lease = await self._register()
                self._notify(SessionRenewed(lease, member))
                await self._beat_until_dead(member, lease)
                lease.end()
                self.stop_watching()
                self._notify(SessionLost(lease))
                # Register only when user code makes progress again. Otherwise the new
                # session would lose its shards, too.
                while self._stuck_work() is not None:
                    await asyncio.sleep(context.config.heartbeat_interval_seconds)
        except Exception as error:
            self._notify(Failed(error))
        finally:
            self.stop_watching()
            if self._leader_task is not None:
                await asyncio.wait([self._leader_task])

    # --- registration ---------------------------------------------------------------

    async def _register(self) -> tuple[MemberRow, Lease]:
        context, session = self._context, self._context.new_id()
        first_sent, mine = context.clock.now(), self.registering
        while True:
            row = await context.read(rows.member_key(context.app, context.client_id))
            before = rows.read_liveness(row) if row else None
            drained = False
            if row is not None and before is not None:
                is_own = before.session == session
                if is_own and not before.dead:  # an earlier attempt has succeeded
                    return rows.read_member(row), self._lease(session, first_sent)
                if is_own:  # fenced before the answer arrived, so it stays dead
                    session = context.new_id()
                elif not before.dead:
                    await outlive_predecessor(context, session)
                    continue
                # If it is this process that registers again, it stays drained.
                if mine is not None and mine.session == before.session:
                    drained = row.get("drained") is True
            first_sent = context.clock.now()
            member = self._member(session, before)._replace(drained=drained)
            self.registering = member
            write = writes.register(context.app, member, before, self._timestamp())
            if (await context.write(write)).applied:
                return member, self._lease(session, first_sent)

    def _member(self, session: str, before: LivenessRow | None) -> MemberRow:
        config = self._context.config
        seen = before.incarnation if before else None
        return MemberRow(
            client_id=self._context.client_id,
            session=session,
            incarnation=seen + 1 if type(seen) is int else 0,
            lease_ms=self._lease_ms,
            weight=config.weight,
            state=self.state,
            streams=self.streams,
            fan_out=self._fan_out(),
            kind=self._kind,
            label=config.label,
            max_shards=config.max_shards,
            commit_ms=round(config.commit_interval_seconds * 1000),
        )

    def _lease(self, session: str, first_sent: float) -> Lease:
        return Lease(session, first_sent + SAFE_LEASE_SHARE * self._lease_ms / 1000)

    # --- heartbeats -----------------------------------------------------------------

    async def _beat_until_dead(self, member: MemberRow, lease: Lease) -> None:
        """Send heartbeats until the session's row says that it is dead."""
        clock, config = self._context.clock, self._context.config
        configured = config.heartbeat_interval_seconds, config.lease_duration_seconds
        beat, next_update = 0, clock.now() + UPDATE_SECONDS
        row, room = member, 0
        while True:
            # If the lease has run out, send the next heartbeat at once.
            if lease.permits(clock.now()):
                await wait_and_clear(self._beat_now, self._interval(row))
            if (stuck := self._stuck_work()) is not None:
                lease.end()
                await self._leave(member, stuck)
                return
            beat, first_sent = beat + 1, clock.now()
            update = first_sent >= next_update
            # Observers use the lease in the row. So this session uses a shorter lease
            # at once, but a longer one only after a heartbeat has written it.
            next_lease_ms = lease_ms(configured, self._clients(row))
            trusted_ms = min(self._lease_ms, next_lease_ms)
            self._lease_ms = next_lease_ms
            timestamp = self._timestamp() if update else None
            reports = self._reports(row, room)
            written = await self._beat(row, beat, timestamp, reports)
            if not written.applied or written.row is None:
                return
            row, room = rows.read_member(written.row), room_bytes(written.row)
            # Count from the first attempt, not from a retry: observers may have counted
            # from it. Otherwise a new owner could deliver while this one still does.
            lease.deadline = first_sent + SAFE_LEASE_SHARE * trusted_ms / 1000
            if update:
                next_update = first_sent + UPDATE_SECONDS
            self._notify(SessionRenewed(lease, row))

    async def _beat(
        self,
        member: MemberRow,
        beat: int,
        timestamp: str | None,
        reports: Mapping[str, str],
    ) -> WriteResult:
        """Send one heartbeat, and repeat it until the store answers."""
        context, fan_out = self._context, self._fan_out()
        while True:
            # Every attempt has the same beat number. So an attempt that arrives late
            # isn't taken for a new heartbeat.
            write = writes.heartbeat(
                context.app,
                member,
                beat,
                state=self.state,
                lease_ms=self._lease_ms,
                moment=timestamp,
                fan_out=fan_out,
                reports=reports,
            )
            try:
                written = await self._try(write)
            except StoreUnavailableError as error:
                self.is_throttled = isinstance(error, StoreThrottledError)
                context.failure_log.record_failure("heartbeat", error)
                wait = context.config.heartbeat_interval_seconds / 4
                await asyncio.sleep(wait * (0.5 + context.random.random()))
            else:
                self.is_throttled = False
                context.failure_log.record_success("heartbeat")
                return written

    async def _try(self, write: Write) -> WriteResult:
        try:
            async with asyncio.timeout(self._context.config.heartbeat_interval_seconds):
                with self._context.telemetry.measure("coordination.heartbeat"):
                    return await self._context.store.write(write)
        except TimeoutError:
            raise StoreUnavailableError(
                "the state store didn't answer a heartbeat in time"
            ) from None

    def _interval(self, row: MemberRow) -> float:
        """Return the seconds until the next heartbeat, fewer if a plan is expected."""
        heartbeat = self._context.config.heartbeat_interval_seconds
        clients = self._clients(row)
        # Other clients use the lease in the row until a heartbeat changes it. So the
        # interval must fit that lease: a quarter of it, as in ``lease_ms()``.
        longest = max(heartbeat, self._lease_ms / 1000 / 4)
        if row.range is None or (row.range and self.state == "leaving"):
            least, most = JITTER
            jitter = least + (most - least) * self._context.random.random()
            first = interval_seconds(heartbeat / FIRST_BEATS, clients)
            return jitter * min(longest, first)
        return min(longest, interval_seconds(heartbeat, clients))

    def _clients(self, row: MemberRow) -> int:
        """Return how many clients the plan has or, before a plan, were observed."""
        members = self._leader.watcher.members if self._leader is not None else ()
        return row.clients if row.range is not None else max(row.clients, len(members))

    # --- the watchdog ---------------------------------------------------------------

    def _stuck_work(self) -> InFlightWork | None:
        """Return the work that has made no progress for too long, if any."""
        work, now = self._oldest_work(), self._context.clock.now()
        limit = self._context.config.max_processing_seconds
        return work if work is not None and now - work.since > limit else None

    async def _leave(self, member: MemberRow, stuck: InFlightWork) -> None:
        context = self._context
        if stuck.request_of is not None:
            stuck.request_of.is_stuck = True
        logger.error(
            "%s has made no progress for max_processing_seconds=%g s: "
            "this client's shards go to other clients\n%s",
            stuck.what,
            context.config.max_processing_seconds,
            stuck.stack(),
            extra={"client_id": context.client_id},
        )
        context.incidents.note(IncidentKind.STALLED, error=stuck.what)
        await context.write(writes.leave(context.app, member, self._timestamp()))

    def _timestamp(self) -> str:
        return rows.timestamp_text(self._context.clock.wall())


MakeHeartbeater = Callable[[ClientContext, Notify], Heartbeater]


class HeartbeatTask:
    """Runs a heartbeater as a task of the event loop that starts it."""

    def __init__(self, context: ClientContext) -> None:
        self.task: asyncio.Task[None] | None = None
        self._context = context
        self._heartbeater: Heartbeater | None = None

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeater; ``notify`` is called on the caller's event loop."""
        self._heartbeater = make_heartbeater(self._context, notify)
        self.task = asyncio.create_task(self._heartbeater.run())

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Call ``change`` with the heartbeater, on its event loop."""
        if self._heartbeater is not None:
            change(self._heartbeater)

    async def stop(self) -> None:
        """Stop the heartbeater. No heartbeat is sent after this returns."""
        if self.task is not None:
            await cancel_and_wait(self.task)


class HeartbeatThread(HeartbeatTask):
    """Runs a heartbeater on a thread, where user code can't block it."""

    def __init__(self, context: ClientContext, thread: StoreThread) -> None:
        super().__init__(replace(context, store=thread.store))
        self._thread = thread
        self._is_stopping = False

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeater; ``notify`` is called on the caller's event loop."""
        home, start_task = asyncio.get_running_loop(), super().start

        def pass_on(event: Event) -> None:
            # The last event may come after the client's event loop was closed.
            if not home.is_closed():
                home.call_soon_threadsafe(notify, event)

        def begin() -> None:
            start_task(make_heartbeater, pass_on)
            assert self.task is not None
            self.task.add_done_callback(report_end)

        def report_end(task: asyncio.Task[None]) -> None:
            # If the thread has ended, it has cancelled the task. Then the client must
            # end, too, since it sends no more heartbeats.
            if task.cancelled() and not self._is_stopping:
                pass_on(Failed(StoreThreadEndedError()))

        self._thread.call_soon(begin)

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Call ``change`` with the heartbeater, on the thread."""
        self._thread.call_soon(super().call_in_loop, change)

    async def stop(self) -> None:
        """Stop the heartbeater. No heartbeat is sent after this returns."""
        self._is_stopping = True
        with suppress(StoreThreadEndedError):
            await self._thread.call(super().stop())
