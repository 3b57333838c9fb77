"""A session's life: registration, heartbeats, death.

Runs on an event loop of its own thread in production, so that user code which blocks
the client's loop doesn't cost the lease.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.liveness import Lease, interval_seconds, lease_ms
from kinesumer.errors import (
    ClientIdInUseError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.rows import CLIENT, LivenessRow, MemberRow
from kinesumer.runtime.failure_log import logger
from kinesumer.telemetry.names import HEARTBEAT_DURATION
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.consuming.watchdog import InFlightWork
    from kinesumer.coordination.leader import Leader
    from kinesumer.ports import Write, WriteResult
    from kinesumer.runtime.context import ClientContext

SAFE_LEASE_SHARE = 0.75
"""Share of the lease for which its holder trusts itself."""
UPDATE_SECONDS = 120.0
"""How often ``last_update`` is written: it costs three write units in place of one."""


class SessionRenewed(NamedTuple):
    """The session was registered, or a beat was acknowledged, with this row."""

    lease: Lease
    row: MemberRow


class SessionLost(NamedTuple):
    """The session is over: everything it owned is lost, another one will follow."""

    lease: Lease


class Failed(NamedTuple):
    """The heartbeat can't go on."""

    error: BaseException


class LeaderElected(NamedTuple):
    """The session leads from now on."""


Event = SessionRenewed | SessionLost | Failed | LeaderElected


class Heartbeater:
    """Registers and beats until cancelled; tells what happens through ``notify``."""

    def __init__(
        self,
        context: ClientContext,
        *,
        streams: frozenset[str],
        notify: Callable[[Event], None],
        oldest_work: Callable[[], InFlightWork | None],
        kind: str = CLIENT,
    ) -> None:
        self.state = "up"
        self.streams = streams
        """What the next registration asks for."""
        self.registering: MemberRow | None = None
        """The last registration sent: it may be in the table, whoever knows of it."""
        self.is_throttled = False
        """Whether the state store throttled the last try of a beat; any thread may
        ask, and holds its own writes back meanwhile."""
        self._context = context
        self._notify = notify
        self._oldest_work = oldest_work
        self._kind = kind
        self._beat_now = asyncio.Event()
        self._lease_ms = round(context.config.lease_duration_seconds * 1000)
        self._leader: Leader | None = None
        self._leader_task: asyncio.Task[None] | None = None

    def set_state(self, state: str) -> None:
        """Tell the others a new state with a beat at once (on the heart's loop).

        Who leaves stays leaving.
        """
        if self.state not in (state, "leaving"):
            self.state = state
            self._beat_now.set()

    def set_streams(self, streams: frozenset[str]) -> None:
        """Change what the next registration asks for (on the heart's loop)."""
        self.streams = streams

    def watch_members(self, leader: Leader) -> None:
        """Let a session's leader work here (on the heart's loop), until it dies.

        Whoever leads must see deaths also while its own user code blocks.
        """
        if leader.is_over:
            return
        leader.use_context(self._context)
        self._leader = leader
        loop = asyncio.get_running_loop()
        self._leader_task = loop.create_task(self._watch_members(leader))

    def stop_watching(self) -> None:
        """Stop fencing and planning (on the heart's loop)."""
        if self._leader_task is not None:
            self._leader_task.cancel()

    async def _watch_members(self, leader: Leader) -> None:
        try:
            await leader.run()
        except Exception as error:
            self._notify(Failed(error))

    async def run(self) -> None:
        """Live one session after the other."""
        try:
            while True:
                member, lease = await self._register()
                self._notify(SessionRenewed(lease, member))
                await self._beat_until_dead(member, lease)
                lease.end()
                self.stop_watching()
                self._notify(SessionLost(lease))
                await self._wait_for_progress()
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
            if row is not None and before is not None and before.session == session:
                if not before.dead:
                    return rows.read_member(row), self._lease(session, first_sent)
                session = context.new_id()
            elif before is not None and not before.dead:
                await self._wait_out_predecessor(before)
                continue
            first_sent = context.clock.now()
            # The process goes on: an operator who drained it hasn't undone that.
            is_own = bool(mine and before and mine.session == before.session)
            drained = is_own and row is not None and row.get("drained") is True
            member = self._member(session, before)._replace(drained=drained)
            self.registering = member
            write = writes.register(context.app, member, before, self._timestamp())
            if (await context.write(write)).applied:
                return member, self._lease(session, first_sent)

    def _member(self, session: str, before: LivenessRow | None) -> MemberRow:
        config = self._context.config
        return MemberRow(
            client_id=self._context.client_id,
            session=session,
            incarnation=_next_incarnation(before),
            lease_ms=self._lease_ms,
            weight=config.weight,
            state=self.state,
            streams=self.streams,
            kind=self._kind,
            label=config.label,
        )

    def _lease(self, session: str, first_sent: float) -> Lease:
        return Lease(session, first_sent + SAFE_LEASE_SHARE * self._lease_ms / 1000)

    async def _wait_out_predecessor(self, before: LivenessRow) -> None:
        """Wait until a predecessor's beat has been unchanged for its lease; fence it.

        Raises ClientIdInUseError if it beats twice: once may be a late request.
        """
        context, changes = self._context, 0
        key = rows.member_key(context.app, context.client_id)
        since = context.clock.now()
        while context.clock.now() - since < before.lease_ms / 1000:
            await asyncio.sleep(context.config.heartbeat_interval_seconds / 4)
            asked = context.clock.now()
            row = await context.read(key)
            if context.clock.now() - asked > context.config.heartbeat_interval_seconds:
                since = context.clock.now()  # an outage: it couldn't beat either
            now = rows.read_liveness(row) if row else None
            if now is None or now.dead or now.session != before.session:
                return
            if now.beat != before.beat:
                before, since = now, context.clock.now()
                changes += now.state != "leaving"
            if changes > 1:
                raise ClientIdInUseError(
                    f"client id {context.client_id!r} of app {context.app!r} is in use "
                    "by another live process; give each process an id of its own"
                )
        try:  # once: after an outage a repeated try would hit who couldn't beat yet
            await context.store.write(
                writes.fence(context.app, before, self._timestamp())
            )
        except StoreUnavailableError as error:
            context.failure_log.record_failure("state store", error)

    # --- beating --------------------------------------------------------------------

    async def _beat_until_dead(self, member: MemberRow, lease: Lease) -> None:
        """Beat until the row says that this session is dead."""
        clock = self._context.clock
        beat, next_update = 0, clock.now() + UPDATE_SECONDS
        row = member
        while True:
            # A beat that took an outage to be answered permits nothing any more.
            if lease.permits(clock.now()):
                await self._wait_for_next_beat(row, clock.now())
            if (stuck := self._stuck_work()) is not None:
                lease.end()
                await self._leave(member, stuck)
                return
            beat, first_sent = beat + 1, clock.now()
            update = first_sent >= next_update
            next_lease_ms = lease_ms(self._config_ms(), self._clients(row))
            trusted_ms = min(self._lease_ms, next_lease_ms)
            self._lease_ms = next_lease_ms
            written = await self._beat(
                member, beat, self._timestamp() if update else None
            )
            if not written.applied or written.row is None:
                return
            row = rows.read_member(written.row)
            lease.deadline = first_sent + SAFE_LEASE_SHARE * trusted_ms / 1000
            if update:
                next_update = first_sent + UPDATE_SECONDS
            self._notify(SessionRenewed(lease, row))

    async def _beat(
        self, member: MemberRow, beat: int, moment: str | None
    ) -> WriteResult:
        """Repeat one beat until it is answered."""
        context = self._context
        while True:
            write = writes.heartbeat(
                context.app,
                member,
                beat,
                state=self.state,
                lease_ms=self._lease_ms,
                moment=moment,
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
                with self._context.telemetry.measure(HEARTBEAT_DURATION):
                    return await self._context.store.write(write)
        except TimeoutError:
            raise StoreUnavailableError("the heartbeat wasn't answered") from None

    async def _wait_for_next_beat(self, row: MemberRow, now: float) -> None:
        """Wait for the next beat."""
        try:
            async with asyncio.timeout(self._interval(row)):
                await self._beat_now.wait()
        except TimeoutError:
            pass
        self._beat_now.clear()

    def _interval(self, row: MemberRow) -> float:
        """Who waits for a plan asks more often, as far as a fleet of this size may."""
        heartbeat, clients = (
            self._context.config.heartbeat_interval_seconds,
            self._clients(row),
        )
        # Until a longer lease is told, others go by the one that the row states.
        most = max(heartbeat, self._lease_ms / 4000)
        if row.range is None or (row.range and self.state == "leaving"):
            jitter = 0.75 + 0.5 * self._context.random.random()
            return jitter * min(most, interval_seconds(heartbeat / 8, clients))
        return min(most, interval_seconds(heartbeat, clients))

    def _clients(self, row: MemberRow) -> int:
        """Return how many clients the plan is for; before it, how many are seen."""
        seen = self._leader.members if self._leader is not None else ()
        return row.clients if row.range is not None else max(row.clients, len(seen))

    # --- the watchdog ---------------------------------------------------------------

    def _stuck_work(self) -> InFlightWork | None:
        """Return what has been at the same thing for too long, if anything."""
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
        await context.write(writes.leave(context.app, member, self._timestamp()))

    async def _wait_for_progress(self) -> None:
        while self._stuck_work() is not None:
            await asyncio.sleep(self._context.config.heartbeat_interval_seconds)

    def _config_ms(self) -> tuple[float, float]:
        config = self._context.config
        return config.heartbeat_interval_seconds, config.lease_duration_seconds

    def _timestamp(self) -> str:
        return rows.timestamp_text(self._context.clock.wall())


def _next_incarnation(before: LivenessRow | None) -> int:
    seen = before.incarnation if before else None
    return seen + 1 if type(seen) is int else 0
