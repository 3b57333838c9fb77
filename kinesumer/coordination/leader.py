"""Elect a leader, which plans which client gets which shards.

A leader leads until its session is dead, so leadership needs no lease. If there are two
leaders, shards may move needlessly. No records are lost, since plans are only advice.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from itertools import chain

from kinesumer.coordination.membership import (
    LeaderElected,
    MemberWatcher,
    Notify,
    SessionRenewed,
)
from kinesumer.coordination.state_store import PacedStore
from kinesumer.coordination.store_queries import (
    POLL_SECONDS,
    REREAD_SECONDS,
    read_shards,
)
from kinesumer.core import lineage, plan
from kinesumer.core.liveness import Lease, interval_seconds
from kinesumer.core.load import KnownLoads
from kinesumer.core.rebalance import (
    MOVING_BEATS,
    LoadSchedule,
    RebalanceSchedule,
    load_reason,
)
from kinesumer.core.scale import clients_wanted
from kinesumer.errors import CorruptRowError
from kinesumer.model.rows import LeaderRow, MemberRow
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import gather_or_cancel, wait_and_clear
from kinesumer.wire import rows, writes
from kinesumer.wire.reports import read_loads

# The interval at which clients that aren't standbys check for a leader.
LEADER_POLL_SECONDS = 10.0
# A new group's first plan waits until no client has joined for this long.
FIRST_PLAN_DELAY_SECONDS = 1.0


class Leader:
    """Takes part in the election for one session, and plans while the session leads."""

    def __init__(
        self,
        context: ClientContext,
        lease: Lease,
        member: MemberRow,
        reachable: frozenset[str],
        notify: Notify,
    ) -> None:
        """Create the leader for ``member``.

        The member's client can read the streams with the ARNs ``reachable``.

        ``notify`` is called on the event loop that runs the leader.
        """
        self.leader: LeaderRow | None = None
        self.watcher: MemberWatcher = MemberWatcher(context, lease)
        self.lease = lease
        self.member = member  # this client's own row, as the store last returned it
        self.reachable = reachable
        self._context = context
        self._notify = notify
        self._wake = asyncio.Event()
        self._schedule = RebalanceSchedule(context.config.rebalance_delay_seconds)
        self._plan: plan.Plan = {}
        # The sessions of a new group, and when a session was last added or removed.
        self._last_change: tuple[frozenset[str], float] = (frozenset(), 0.0)
        self._awaits_first_plan = False
        # The starting hash keys of each stream's open shards.
        self._shards: dict[str, list[int]] = {}
        self._next_shards = 0.0
        self._loads = KnownLoads()
        self._load_schedule = LoadSchedule(context.config.rebalance_interval_seconds)

    def use_context(self, context: ClientContext) -> None:
        """Use a context with ports for the event loop that runs the leader."""
        self._context = self.watcher.context = context

    @property
    def is_leading(self) -> bool:
        """True if the session leads, as far as it knows."""
        return self.leader is not None and self.leader.session == self.lease.session

    @property
    def is_alone(self) -> bool:
        """True if the session leads and no other client could take its shards."""
        members = self.watcher.members
        others = [m for m in members if m.session != self.lease.session]
        return self.is_leading and all(plan.is_departing(m) for m in others)

    @property
    def shard_counts(self) -> dict[str, int]:
        """The number of open shards of each stream when the leader last read them."""
        return {arn: len(starts) for arn, starts in list(self._shards.items())}

    def clients_wanted(self) -> int | None:
        """Return how many clients the load needs. Any thread may call it.

        None if this session doesn't lead, or if no load is known.
        """
        if not self.is_leading:
            return None
        members, shards, known = self.watcher.members, dict(self._shards), KnownLoads()
        reports = (read_loads(m.load, m.streams) for m in members)
        known.observe(chain.from_iterable(reports), shards)
        if not known.loads:
            return None
        work, _ = known.work(shards, now=0.0)
        demands = [each / 1e6 for each in chain.from_iterable(work.values())]
        target = self._context.config.target_utilization
        return clients_wanted(demands, plan.assignable(members), target)

    def shards_changed(self) -> None:
        """Read the shard rows and plan at once, if the session leads."""
        self._next_shards = 0.0
        if self.is_leading:
            self._wake.set()

    async def run(self) -> None:
        """Poll the members until cancelled."""
        while True:
            try:
                await self.poll()
            except CorruptRowError as error:  # the leader's row can't be read
                self._context.failure_log.record_corrupt_row(error)
            await wait_and_clear(self._wake, self._interval())

    async def poll(self) -> None:
        """Read the members once. Fence dead ones, try to lead, and plan."""
        if self.leader is not None and self._polls_leader_only():
            if await self.watcher.read_leader(self.leader):
                return
        config = self._context.config
        max_gap = self._interval() + 2 * config.leader_interval_seconds
        await self.watcher.read_members(self.leader, max_gap)
        if not self.is_leading and not await self._try_to_lead():
            return
        await self._plan_if_changed()
        await self.watcher.pruner.prune(self._context)

    def _interval(self) -> float:
        config = self._context.config
        if self._awaits_first_plan:
            return POLL_SECONDS
        if self.is_leading:
            return config.leader_interval_seconds
        if self._polls_leader_only():
            return LEADER_POLL_SECONDS
        return interval_seconds(config.heartbeat_interval_seconds, self.member.clients)

    def _polls_leader_only(self) -> bool:
        """Return whether this client polls only the leader's row, not all members."""
        if self.leader is None or self.is_leading:
            return False
        index = self.member.index
        if index is None:
            own_id = self.member.client_id
            index = sum(m.client_id < own_id for m in self.watcher.members)
        return index >= plan.STANDBYS

    # --- election -------------------------------------------------------------------

    async def _try_to_lead(self) -> bool:
        """Become the leader if there is none. Standbys with a lower index try first."""
        if not await self._is_leaderless():
            return False
        members = self.watcher.members
        # A member without heartbeats cannot lead, even if no leader has fenced it yet.
        ids = [m.client_id for m in members if m.state != "missing"]
        me = self.member.client_id
        if me not in ids:  # a stale read, or this session is dead
            return False
        context, index = self._context, ids.index(me)
        await asyncio.sleep(plan.election_delay_seconds(index, context.random.random))
        if index > 0 and not await self._is_leaderless():
            return False
        before = self.leader
        # Members ignore plans of older epochs. So if the leader's row was deleted, the
        # new row must not begin at epoch 1 again.
        epoch = max(m.leader_epoch for m in members)
        written = await context.write(
            writes.lead(context.app, self.member, before, epoch)
        )
        self.leader = rows.read_leader(written.row) if written.row else None
        if self.is_leading:
            # The last leader may have published a plan just before its death, so wait
            # for the moves of that plan.
            self._schedule.reset(self._moves_done_at() if before else -math.inf)
            self._next_shards = 0.0
            extra = {"app": context.app, "client_id": me}
            logger.info("leading %s", context.app, extra=extra)
            self._notify(LeaderElected())
        return self.is_leading

    async def _is_leaderless(self) -> bool:
        """Return whether the leader is dead. Read its row if necessary."""
        alive = {m.session for m in self.watcher.members}
        if self.leader is not None and self.leader.session in alive:
            return False
        row = await self._context.read(rows.leader_key(self._context.app))
        leader = self.leader = rows.read_leader(row) if row else None
        if leader is None:
            return True
        if leader.session in alive:
            return False
        return await self.watcher.is_dead(leader.client_id, leader.session)

    # --- the plan -------------------------------------------------------------------

    async def _plan_if_changed(self) -> None:
        now, members = self._context.clock.now(), self.watcher.members
        await self._read_shards(now)
        self._awaits_first_plan = self._is_gathering(now)
        # Until all initial rows of a stream are stored, there are no shards to plan.
        if self._awaits_first_plan or not self._shards:
            return
        if self._is_by_load:
            self._follow_load(now)
        is_due = self._schedule.is_due(members, self._shards, now)
        reason = ""
        if is_due:
            self._plan = self._make_plan()
            reason = self._reason() if self._is_by_load else ""
        changed = plan.to_assign(self._plan, members)
        if changed:
            await self._publish(changed, reason)
        if is_due:
            moves = plan.moves_any(self._plan, members)
            moving_until = self._moves_done_at() if moves else -math.inf
            self._schedule.record_plan(members, moving_until)
            self._load_schedule.record_plan(now)

    def _moves_done_at(self) -> float:
        """Return when all moves should be done if a plan is published now."""
        config, clients = self._context.config, len(self.watcher.members)
        interval = interval_seconds(config.heartbeat_interval_seconds, clients)
        return self._context.clock.now() + MOVING_BEATS * interval

    def _is_gathering(self, now: float) -> bool:
        """Return whether a new group's first plan should wait for more clients."""
        if self.leader is None or self.leader[2:4] != (1, 0):
            return False
        sessions = frozenset(m.session for m in self.watcher.members)
        if sessions != self._last_change[0]:
            self._last_change = (sessions, now)
        return now - self._last_change[1] < FIRST_PLAN_DELAY_SECONDS

    @property
    def _is_by_load(self) -> bool:
        return self._context.config.assignor == "load"

    def _follow_load(self, now: float) -> None:
        """Note the members' loads, and request a plan if it would balance them."""
        if not self._load_schedule.looks(now):
            return
        reports = (read_loads(m.load, m.streams) for m in self.watcher.members)
        self._loads.observe(chain.from_iterable(reports), self._shards)
        is_better = self._make_plan() != self._plan
        if self._load_schedule.is_due(now, is_better=is_better):
            self._schedule.request()

    def _make_plan(self) -> plan.Plan:
        assignor, members = self._context.config.assignor, self.watcher.members
        work = self._work() if self._is_by_load else None
        return plan.make_plan(members, self._shards, assignor, self.reachable, work)

    def _work(self) -> plan.Work:
        return plan.Work(*self._loads.work(self._shards, self._context.clock.now()))

    def _reason(self) -> str:
        """Return why a plan by load is as it is."""
        shards, known = self._shards, len(self._loads.loads)
        unknown = sum(map(len, shards.values())) - known
        return load_reason(self.watcher.members, shards, self._work(), unknown)

    async def _read_shards(self, now: float) -> None:
        """Read the shard rows of new streams, and at intervals of all streams."""
        members = self.watcher.members
        requested = frozenset[str]().union(*(m.streams for m in members))
        known = set(self._shards)
        has_limits = any(m.max_shards is not None for m in members)
        if now < self._next_shards and requested <= known:
            return
        if now >= self._next_shards:
            # If clients have ``max_shards``, or if other clients sync some of the
            # streams, what the plan depends on changes more often.
            is_soon = has_limits or requested - self.reachable
            listing = self._context.config.listing_interval_seconds
            interval = listing if is_soon else REREAD_SECONDS
            self._next_shards = now + interval
            known = set()
        for arn in await self._complete_streams(requested - known):
            if arn not in self._shards:
                self._schedule.request()
            # Read consistently, since the rows may have changed a moment ago.
            stored = await read_shards(self._context, arn, consistent=True)
            # Closed shards count towards ``max_shards`` until they are read.
            starts_of = (
                lineage.unended_shard_starts
                if has_limits
                else lineage.open_shard_starts
            )
            self._shards[arn] = starts_of(stored.rows)
        # The numbers of shards don't matter to the assignor by load.
        is_wrong = plan.exceeds_limits if self._is_by_load else plan.has_drifted
        if is_wrong(self._plan, self._shards, self._make_plan(), members):
            self._schedule.request()

    async def _complete_streams(self, arns: frozenset[str]) -> list[str]:
        """Return the streams of ``arns`` whose initial shard rows are all stored."""
        context = self._context
        partition = rows.group_key(context.app).pk
        stored = await context.query(
            partition, first=rows.STREAM_PREFIX, consistent=False
        )
        streams = context.parse_rows(rows.read_stream, stored)
        return [s.arn for s in streams if s.baseline and s.arn in arns]

    async def _publish(self, changed: list[MemberRow], reason: str) -> None:
        """Write a new plan version, then the members' rows that change."""
        context, leader, config = self._context, self.leader, self._context.config
        assert leader is not None
        version = leader.plan_version + 1
        # Write the version first: if the leader was replaced, the store refuses this
        # write, and the leader publishes nothing.
        publish = writes.publish(
            context.app,
            leader,
            version,
            assignor=config.assignor,
            rebalance_seconds=config.rebalance_interval_seconds,
            now=context.clock.wall(),
        )
        written = await context.write(publish)
        now = self.leader = rows.read_leader(written.row) if written.row else None
        if now is None or now[:3] != leader[:3]:
            return
        epoch, version = now.leader_epoch, now.plan_version
        logger.info(
            "plan %d.%d changes %d of %d clients%s",
            epoch,
            version,
            len(changed),
            len(self.watcher.members),
            f": {reason}" if reason else "",
            extra={"app": context.app, "leader_epoch": epoch, "plan_version": version},
        )
        # A plan may change a thousand rows. They are in the partition that takes all
        # heartbeats, so limit the rate of these writes.
        store = PacedStore(context.store, context.clock, context.random)
        paced = replace(context, store=store)
        await gather_or_cancel(self._assign(paced, member, now) for member in changed)

    async def _assign(
        self, context: ClientContext, member: MemberRow, leader: LeaderRow
    ) -> None:
        assignment = self._plan[member.client_id]
        write = writes.assign(
            context.app,
            member,
            leader,
            index=assignment.index,
            range_=assignment.range,
            clients=len(self.watcher.members),
            syncs=assignment.syncs,
        )
        written = await context.write(write)
        now = context.parse_row(rows.read_member, written.row)
        if now is not None and member.session == self.lease.session:
            # Let this client apply its own change before its next heartbeat.
            self._notify(SessionRenewed(self.lease, now))
