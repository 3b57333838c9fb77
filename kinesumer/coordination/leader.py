"""Leader election, and the leader's plan: which client gets which shards.

Leadership has no lease of its own: a leader leads until its session is dead. Two
leaders can cause needless moves but no loss, since plans are only advice.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesumer.coordination.events import LeaderElected, SessionRenewed
from kinesumer.coordination.membership import MemberWatcher
from kinesumer.coordination.paced_store import PacedStore
from kinesumer.coordination.store_queries import read_shards
from kinesumer.core import lineage, plan
from kinesumer.core.liveness import interval_seconds
from kinesumer.core.rebalance import MOVING_BEATS, RebalanceSchedule
from kinesumer.errors import CorruptRowError
from kinesumer.runtime.failure_log import logger
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from kinesumer.coordination.events import Notify
    from kinesumer.core.liveness import Lease
    from kinesumer.model.rows import LeaderRow, MemberRow
    from kinesumer.runtime.context import ClientContext

STANDBY_DELAY_SECONDS = 0.2
"""Standbys try to lead in order of index, this far apart."""
LEADER_POLL_SECONDS = 10.0
"""How often clients that aren't standbys check that the group has a leader."""
FIRST_PLAN_DELAY_SECONDS = 1.0
"""A new group's first plan waits until no client has joined for so long."""
FIRST_PLAN_POLL_SECONDS = 0.25
SHARD_READ_SECONDS = 300.0
"""How often the leader reads all shard rows to see whether shares have drifted. Streams
that other clients sync are read at each listing interval."""


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
        """Create it for ``member``, whose client can read the ``reachable`` streams.

        ``notify`` is called on the event loop that runs this.
        """
        self.leader: LeaderRow | None = None
        self.watcher = MemberWatcher(context, lease)
        self._context = context
        self._lease = lease
        self._member = member
        self._reachable = reachable
        self._notify = notify
        self._wake = asyncio.Event()
        self._schedule = RebalanceSchedule(context.config.rebalance_delay_seconds)
        self._plan: plan.Plan = {}
        self._last_change: tuple[frozenset[str], float] = (frozenset(), 0.0)
        """The sessions of a new group, and when they last changed."""
        self._awaits_first_plan = False
        self._shards: dict[str, list[int]] = {}
        """The starting hash keys of each stream's open shards."""
        self._next_shards = 0.0

    def use_context(self, context: ClientContext) -> None:
        """Use the ports of the event loop that runs this."""
        self._context = context
        self.watcher.use_context(context)

    def set_reachable(self, streams: frozenset[str]) -> None:
        """Set the streams that this client can read, by ARN."""
        self._reachable = streams

    def update_member(self, member: MemberRow) -> None:
        """Note this client's own row, as the last heartbeat returned it."""
        self._member = member

    @property
    def is_over(self) -> bool:
        """Whether the session is dead."""
        return self._lease.dead

    @property
    def is_leading(self) -> bool:
        """Whether the session leads, as far as it knows."""
        return self.leader is not None and self.leader.session == self._lease.session

    @property
    def is_alone(self) -> bool:
        """Whether the session leads and no other client could take its shards."""
        members = self.watcher.members
        others = [m for m in members if m.session != self._lease.session]
        return self.is_leading and all(plan.is_departing(m) for m in others)

    @property
    def shard_counts(self) -> dict[str, int]:
        """How many open shards each stream had when the leader last read them."""
        return {arn: len(starts) for arn, starts in list(self._shards.items())}

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
            try:
                async with asyncio.timeout(self._interval()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def poll(self) -> None:
        """Read the members, fence, try to lead, and plan, once."""
        if self.leader is not None and self._polls_leader_only():
            if await self.watcher.read_leader(self.leader):
                return
        config = self._context.config
        max_gap = self._interval() + 2 * config.leader_interval_seconds
        await self.watcher.read_members(self.leader, max_gap)
        if not self.is_leading and not await self._try_to_lead():
            return
        await self._plan_if_changed()
        await self.watcher.prune()

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
        """Clients that aren't standbys watch only the leader."""
        if self.leader is None or self.is_leading:
            return False
        index = self._member.index
        if index is None:
            own_id = self._member.client_id
            index = sum(m.client_id < own_id for m in self.watcher.members)
        return index >= plan.STANDBYS

    # --- election -------------------------------------------------------------------

    async def _try_to_lead(self) -> bool:
        """Lead if the group has no leader; standbys wait for those of lower index."""
        if not await self._is_leaderless():
            return False
        members = self.watcher.members
        ids = [m.client_id for m in members]
        me = self._member.client_id
        if me not in ids:
            return False
        await asyncio.sleep(ids.index(me) * STANDBY_DELAY_SECONDS)
        if ids.index(me) > 0 and not await self._is_leaderless():
            return False
        context, before = self._context, self.leader
        epoch = max(m.leader_epoch for m in members)
        write = writes.lead(context.app, self._member, before, epoch)
        written = await context.write(write)
        self.leader = rows.read_leader(written.row) if written.row else None
        if self.is_leading:
            self._schedule.reset(self._moves_done_at() if before else -math.inf)
            self._next_shards = 0.0
            logger.info(
                "leading %s",
                context.app,
                extra={"app": context.app, "client_id": me},
            )
            self._notify(LeaderElected())
        return self.is_leading

    async def _is_leaderless(self) -> bool:
        """Return whether the leader is dead, reading its row if it may be."""
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
        # Before the first baseline is complete there are no shards to plan.
        if self._awaits_first_plan or not self._shards:
            return
        is_due = self._schedule.is_due(members, self._shards, now)
        if is_due:
            self._plan = self._make_plan()
        changed = plan.to_assign(self._plan, members)
        if changed:
            await self._publish(changed)
        if is_due:
            moves = plan.moves_any(self._plan, members)
            moving_until = self._moves_done_at() if moves else -math.inf
            self._schedule.record_plan(members, moving_until)

    def _moves_done_at(self) -> float:
        """Return when the moves of a plan that is published now are done."""
        config, clients = self._context.config, len(self.watcher.members)
        interval = interval_seconds(config.heartbeat_interval_seconds, clients)
        return self._context.clock.now() + MOVING_BEATS * interval

    def _is_gathering(self, now: float) -> bool:
        """Return whether a new group's first plan should wait for more clients."""
        if self.leader is None or self.leader[2:] != (1, 0):
            return False
        sessions = frozenset(m.session for m in self.watcher.members)
        if sessions != self._last_change[0]:
            self._last_change = (sessions, now)
        return now - self._last_change[1] < FIRST_PLAN_DELAY_SECONDS

    def _make_plan(self) -> plan.Plan:
        return plan.make_plan(
            self.watcher.members,
            self._shards,
            self._context.config.assignor,
            self._reachable,
        )

    async def _read_shards(self, now: float) -> None:
        """Read the shard rows of new streams, and from time to time those of all."""
        members = self.watcher.members
        requested = frozenset[str]().union(*(m.streams for m in members))
        known = set(self._shards)
        if now < self._next_shards and requested <= known:
            return
        if now >= self._next_shards:
            synced_by_others = requested - self._reachable
            listing = self._context.config.listing_interval_seconds
            interval = listing if synced_by_others else SHARD_READ_SECONDS
            self._next_shards = now + interval
            known = set()
        for arn in await self._complete_streams(requested - known):
            if arn not in self._shards:
                self._schedule.request()
            # Consistent: the rows may have changed a moment ago.
            stored = await read_shards(self._context, arn, consistent=True)
            self._shards[arn] = lineage.open_shard_starts(stored.rows)
        new = self._make_plan()
        if plan.has_drifted(self._plan, self._shards, new, members):
            self._schedule.request()

    async def _complete_streams(self, arns: frozenset[str]) -> list[str]:
        """Return those of the streams whose baseline is complete."""
        context = self._context
        stored = await context.until_available(
            lambda: context.store.query(
                rows.group_key(context.app).pk, first=rows.STREAM_PREFIX
            )
        )
        streams = context.parse_rows(rows.read_stream, stored)
        return [s.arn for s in streams if s.baseline and s.arn in arns]

    async def _publish(self, changed: list[MemberRow]) -> None:
        """Write a new plan version, and then the rows of the members that change."""
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
            len(changed),
            len(self.watcher.members),
            extra={
                "app": context.app,
                "leader_epoch": now.leader_epoch,
                "plan_version": now.plan_version,
            },
        )
        # A plan may change a thousand rows of the partition that heartbeats go to.
        store = PacedStore(context.store, context.clock, context.random)
        paced = replace(context, store=store)
        async with asyncio.TaskGroup() as group:
            for member in changed:
                group.create_task(self._assign(paced, member, now))

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
        if now is not None and member.session == self._lease.session:
            # This client need not wait for its next heartbeat.
            self._notify(SessionRenewed(self._lease, now))
