"""Membership seen from one client: fencing, election, and the leader's plan.

Leadership has no lease of its own: it is held while the leader's session isn't dead. A
wrong leader can cause movement, never loss, since plans are advice.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.coordination.membership import Pruner
from kinesumer.coordination.paced_store import PacedStore
from kinesumer.coordination.store_queries import read_shards
from kinesumer.core import lineage, plan
from kinesumer.core.liveness import HeartbeatWatch, interval_seconds, proves_death
from kinesumer.core.rebalance import MOVING_BEATS, RebalanceSchedule
from kinesumer.errors import CorruptRowError, StoreUnavailableError
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.core.liveness import Lease
    from kinesumer.model.rows import LeaderRow, LivenessRow, MemberRow
    from kinesumer.runtime.context import ClientContext

STANDBY_DELAY_SECONDS = 0.2
"""Standbys step up in order of index, this far apart."""
LEADER_POLL_SECONDS = 10.0
"""How often clients that aren't standbys look whether somebody leads."""
FIRST_PLAN_DELAY_SECONDS = 1.0
"""A new group's first plan waits for who starts at the same moment: until nobody has
joined for so long."""
FIRST_PLAN_POLL_SECONDS = 0.25
SILENT_LEASE_SHARE = 0.625
"""Share of the lease after which a heart that hasn't beaten is thought to be silent:
between two and three beats."""
SHARD_READ_SECONDS = 300.0
"""How often the leader reads all shard rows to see whether shares drifted, if its own
keeper tells of no change; while others keep streams, as often as these are listed."""


class Leader:
    """Watches the members for one session, and leads when it is its turn."""

    def __init__(
        self,
        context: ClientContext,
        lease: Lease,
        member: MemberRow,
        reachable: Callable[[], frozenset[str]],
        assigned: Callable[[MemberRow], None],
        elected: Callable[[], None],
    ) -> None:
        self.members: list[MemberRow] = []
        """Live members as last read, by index."""
        self.leader: LeaderRow | None = None
        self.dead: set[str] = set()
        """Sessions whose death mark was read or written."""
        self._context = context
        self._lease = lease
        self._member = member
        self._reachable = reachable
        self._assigned = assigned
        self._elected = elected
        self._wake = asyncio.Event()
        self._watch = HeartbeatWatch()
        self._schedule = RebalanceSchedule(context.config.rebalance_delay_seconds)
        self._plan: plan.Plan = {}
        self._pruner = Pruner()
        self._newest: tuple[frozenset[str], float] = (frozenset(), 0.0)
        self._awaits_first_plan = False
        self._shards: dict[str, list[int]] = {}
        self._next_shards = 0.0

    def use_context(self, context: ClientContext) -> None:
        """Use the ports of the loop that this runs on."""
        self._context = context

    def update_member(self, member: MemberRow) -> None:
        """Take in one's own row, as the last heartbeat returned it."""
        self._member = member

    @property
    def is_over(self) -> bool:
        """Tell whether the session that this works for is dead."""
        return self._lease.dead

    @property
    def is_leading(self) -> bool:
        """Tell whether this session leads, as far as it knows."""
        return self.leader is not None and self.leader.session == self._member.session

    @property
    def shard_counts(self) -> dict[str, int]:
        """How many shards to consume each stream has, as last read while leading."""
        return {arn: len(places) for arn, places in list(self._shards.items())}

    def shards_changed(self) -> None:
        """Look at the shard rows and plan at once, if it is ours to plan."""
        self._next_shards = 0.0
        if self.is_leading:
            self._wake.set()

    async def run(self) -> None:
        """Look at the members until cancelled."""
        while True:
            try:
                await self.poll()
            except CorruptRowError as error:  # of the leader: who leads can't be known
                self._context.failure_log.record_corrupt_row(error)
            try:
                async with asyncio.timeout(self._interval()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def poll(self) -> None:
        """Read, fence, step up and plan once."""
        if self._polls_leader_only() and await self._leader_beats():
            return
        await self._read_members()
        if not self.is_leading and not await self._try_to_lead():
            return
        await self._plan_if_changed()
        await self._pruner.prune(self._context)

    # --- looking --------------------------------------------------------------------

    def _interval(self) -> float:
        config = self._context.config
        if self._awaits_first_plan:
            return FIRST_PLAN_POLL_SECONDS
        if self.is_leading:
            return config.leader_interval_seconds
        if self._polls_leader_only():
            return LEADER_POLL_SECONDS
        return interval_seconds(config.heartbeat_interval_seconds, self._member.clients)

    def _polls_leader_only(self) -> bool:
        # Who leads stays so, however many clients with lower ids have joined since.
        if self.leader is None or self.is_leading:
            return False
        place = sum(m.client_id < self._member.client_id for m in self.members)
        return (
            place if self._member.index is None else self._member.index
        ) >= plan.STANDBYS

    async def _leader_beats(self) -> bool:
        """Read the leader's row only: enough for those that aren't standbys."""
        assert self.leader is not None
        known = {m.client_id: m for m in self.members}.get(self.leader.client_id)
        key = rows.member_key(self._context.app, self.leader.client_id)
        store = self._context.store
        row = await self._context.until_available(
            lambda: store.get(key, consistent=False)
        )
        now = self._context.parse_row(rows.read_member, row)
        if now is None or proves_death(self.leader.session, now):
            return False
        self.members = [m for m in self.members if m.client_id != now.client_id]
        self.members = plan.live_clients([*self.members, now])
        return known is None or known.beat != now.beat

    async def _read_members(self) -> None:
        context = self._context
        partition = rows.member_key(context.app, "").pk
        found = await context.until_available(lambda: context.store.query(partition))
        pulses = [rows.read_liveness(row) for row in found]
        alive = [row for row, p in zip(found, pulses, strict=True) if not p.dead]
        members = context.parse_rows(rows.read_member, alive)
        self.dead.update(str(pulse.session) for pulse in pulses if pulse.dead)
        config = context.config
        gap = self._interval() + 2 * config.leader_interval_seconds
        now = context.clock.now()
        self._pruner.see(pulses, now)
        if not self._lease.permits(now):
            # Whoever can't beat itself has no business judging others' beats.
            self._watch.reset()
        stale = self._watch.observe(pulses, now, gap)
        self.members = [self._with_liveness(m, now) for m in plan.live_clients(members)]
        for pulse in stale:
            if self._should_fence(pulse):
                await self._fence(pulse)

    def _with_liveness(self, member: MemberRow, now: float) -> MemberRow:
        """Call a member silent that has missed two beats: it may be dead.

        Planned without it, others wait for its shards by the time it is fenced, and it
        is given none that others read well.
        """
        patience = SILENT_LEASE_SHARE * member.lease_ms / 1000
        if member.state != "up" or not self._watch.is_silent(member, now, patience):
            return member
        return member._replace(state="silent")

    @property
    def is_alone(self) -> bool:
        """Tell whether this session leads, and nobody could take its shards over."""
        others = [m for m in self.members if m.session != self._member.session]
        return self.is_leading and all(plan.is_departing(m) for m in others)

    def _should_fence(self, member: LivenessRow) -> bool:
        """The leader fences anybody, others only the leader; nobody fences itself."""
        if member.session == self._member.session:
            return False
        if self.is_leading or self.leader is None:
            return True
        if type(member.session) is str:
            return member.session == self.leader.session
        return member.client_id == self.leader.client_id

    async def _fence(self, member: LivenessRow) -> None:
        """Try once: after an outage a repeated try would hit who couldn't beat yet."""
        context = self._context
        moment = rows.timestamp_text(context.clock.wall())
        try:
            written = await context.store.write(
                writes.fence(context.app, member, moment)
            )
        except StoreUnavailableError as error:
            context.failure_log.record_failure("state store", error)
            self._watch.reset()
            return
        now = rows.read_liveness(written.row) if written.row else None
        if proves_death(member.session, now):
            logger.warning(
                "client %s is dead: no heartbeat for %.1f s",
                escape_unprintable(member.client_id),
                member.lease_ms / 1000,
                extra={"client_id": member.client_id, "session": member.session},
            )
            self.dead.add(str(member.session))
            self.members = [m for m in self.members if m.session != member.session]

    # --- election -------------------------------------------------------------------

    async def _try_to_lead(self) -> bool:
        """Lead if nobody does; standbys wait for those before them."""
        if not await self._is_leaderless():
            return False
        ids = [m.client_id for m in self.members]
        me = self._member.client_id
        if me not in ids:
            return False
        await asyncio.sleep(ids.index(me) * STANDBY_DELAY_SECONDS)
        if ids.index(me) > 0 and not await self._is_leaderless():
            return False
        context, before = self._context, self.leader
        known = max(m.leader_epoch for m in self.members)
        written = await context.write(
            writes.lead(context.app, self._member, before, known)
        )
        self.leader = rows.read_leader(written.row) if written.row else None
        if self.is_leading:
            self._schedule.reset(self._moves_done_at() if before else -math.inf)
            self._next_shards = 0.0
            logger.info(
                "leading %s",
                context.app,
                extra={"app": context.app, "client_id": me},
            )
            self._elected()
        return self.is_leading

    async def _is_leaderless(self) -> bool:
        """Tell whether the leader is gone, reading its row if the answer may be yes."""
        alive = {m.session for m in self.members}
        if self.leader is not None and self.leader.session in alive:
            return False
        context = self._context
        row = await context.read(rows.leader_key(context.app))
        self.leader = rows.read_leader(row) if row else None
        if self.leader is None:
            return True
        if self.leader.session in alive:
            return False
        if self.leader.session not in self.dead:
            await self._verify_death(self.leader.client_id, self.leader.session)
        return self.leader.session in self.dead

    async def _verify_death(self, client_id: str, session: str) -> None:
        row = await self._context.read(rows.member_key(self._context.app, client_id))
        if proves_death(session, rows.read_liveness(row) if row else None):
            self.dead.add(session)

    # --- the plan -------------------------------------------------------------------

    async def _plan_if_changed(self) -> None:
        now = self._context.clock.now()
        await self._read_shards(now)
        self._awaits_first_plan = self._waits_for_others(now)
        # An empty plan, before the first baseline is laid, would help nobody.
        if self._awaits_first_plan or not self._shards:
            return
        made = self._schedule.is_due(self.members, self._shards, now)
        if made:
            self._plan = self._make_plan()
        todo = plan.to_assign(self._plan, self.members)
        if todo:
            await self._publish(todo)
        if made:
            moves = plan.moves_any(self._plan, self.members)
            self._schedule.record_plan(
                self.members, self._moves_done_at() if moves else -math.inf
            )

    def _moves_done_at(self) -> float:
        """Return when the moves of a plan published now are done."""
        config, clients = self._context.config, len(self.members)
        beat = interval_seconds(config.heartbeat_interval_seconds, clients)
        return self._context.clock.now() + MOVING_BEATS * beat

    def _waits_for_others(self, now: float) -> bool:
        """Tell whether a new group's first plan should wait for who just starts."""
        if self.leader is None or self.leader[2:] != (1, 0):
            return False
        sessions = frozenset(m.session for m in self.members)
        if sessions != self._newest[0]:
            self._newest = (sessions, now)
        return now - self._newest[1] < FIRST_PLAN_DELAY_SECONDS

    def _make_plan(self) -> plan.Plan:
        return plan.make_plan(
            self.members,
            self._shards,
            self._context.config.assignor,
            self._reachable(),
        )

    async def _read_shards(self, now: float) -> None:
        """Read the shard rows once in a while: new streams, and shares that drift."""
        asked = frozenset[str]().union(*(m.streams for m in self.members))
        known = set(self._shards)
        if now < self._next_shards and asked <= known:
            return
        if now >= self._next_shards:
            elsewhere = asked - self._reachable()
            listing = self._context.config.listing_interval_seconds
            self._next_shards = now + (listing if elsewhere else SHARD_READ_SECONDS)
            known = set()
        for arn in await self._complete_streams(asked - known):
            if arn not in self._shards:
                self._schedule.request()
            # Told of a change, it mustn't read what was there before it.
            stored = await read_shards(self._context, arn, consistent=True)
            self._shards[arn] = lineage.open_shard_starts(stored.rows)
        new = self._make_plan()
        if plan.has_drifted(self._plan, self._shards, new, self.members):
            self._schedule.request()

    async def _complete_streams(self, arns: frozenset[str]) -> list[str]:
        """Return those of the streams whose baseline is complete."""
        context = self._context
        found = await context.until_available(
            lambda: context.store.query(
                rows.group_key(context.app).pk, first=rows.STREAM_PREFIX
            )
        )
        streams = context.parse_rows(rows.read_stream, found)
        return [s.arn for s in streams if s.baseline and s.arn in arns]

    async def _publish(self, todo: list[MemberRow]) -> None:
        context, leader = self._context, self.leader
        assert leader is not None
        version = leader.plan_version + 1
        written = await context.write(writes.publish(context.app, leader, version))
        now = rows.read_leader(written.row) if written.row else None
        if now is None or now[:3] != leader[:3]:
            self.leader = now
            return
        self.leader = now
        logger.info(
            "plan %d.%d moves %d of %d clients",
            now.leader_epoch,
            now.plan_version,
            len(todo),
            len(self.members),
            extra={
                "app": context.app,
                "leader_epoch": now.leader_epoch,
                "plan_version": now.plan_version,
            },
        )
        # A plan may change a thousand rows, in the partition of all heartbeats.
        store = PacedStore(context.store, context.clock, context.random)
        paced = replace(context, store=store)
        async with asyncio.TaskGroup() as group:
            for member in todo:
                group.create_task(self._assign(paced, member, now))

    async def _assign(
        self, context: ClientContext, member: MemberRow, leader: LeaderRow
    ) -> None:
        part = self._plan[member.client_id]
        write = writes.assign(
            context.app,
            member,
            leader,
            index=part.index,
            range_=part.range,
            clients=len(self.members),
            syncs=part.syncs,
        )
        written = await context.write(write)
        now = context.parse_row(rows.read_member, written.row)
        if now is not None and member.session == self._member.session:
            self._assigned(now)
