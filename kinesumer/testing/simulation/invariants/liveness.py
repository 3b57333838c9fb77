"""Liveness checks of backlogs, unowned shards, memory, and false alarms.

A fault, such as a lost request or a stopped process, excuses a client for some time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from kinesumer.consuming.shard_reader import ACK_SECONDS
from kinesumer.coordination.lease_coordinator import FULL_POLL_SECONDS
from kinesumer.core.claims import contains
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.model.positions import SEEN_SLACK_SECONDS
from kinesumer.model.rows import Row
from kinesumer.model.streams import Range
from kinesumer.ports import Write
from kinesumer.runtime.failure_log import logger
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.testing.simulation import convergence
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.faults import MAX_BLOCKED_SECONDS
from kinesumer.testing.simulation.invariants.base import (
    ShardTrace,
    record_position,
    row_position,
)
from kinesumer.testing.simulation.machine import Machine
from kinesumer.testing.simulation.scenarios import Fault
from kinesumer.testing.simulation.simulation import Simulation
from kinesumer.wire import rows as rows_format

CHECK_INTERVAL_SECONDS = 5.0
# A fault excuses a client until this many seconds after the fault's end.
DISTURBANCE_SECONDS = 30.0
# A client may be degraded only if it has failed to reach Kinesis within this time.
DEGRADED_CAUSE_SECONDS = 120.0
# A shard without an owner is claimed within this time, if clients are able to claim it.
UNOWNED_SECONDS = 45.0
# The records that are in the streams when the faults end are done within
# BACKLOG_SECONDS, plus BACKLOG_TIMES the time that shards (2 MB/s) and links need.
BACKLOG_SECONDS = 60.0
BACKLOG_TIMES = 3.0
# With manual commits, user code acknowledges max_uncommitted_records within this time,
# mostly at the first or second of its attempts, which are half a second apart.
MAX_ACK_ROUND_SECONDS = 2.0
# With these faults alone, no record is delivered twice, except in a KCL fleet.
HARMLESS_FAULTS = {"join", "leave"}
# Parts of messages that clients log if records may be lost, and if none is lost.
LOST = "lost to retention"
WHOLE = ("nothing came after it", "was read to its end")


class LivenessMonitor:
    """Watches the clients of one app. The first violation ends the run."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        # False with a user's own handler, since that may take any time.
        self.is_on: bool = sim.user is None
        self._faults_are_harmless = False
        self._unowned_since: dict[tuple[str, str], float] = {}
        self._disturbed_at = 0.0
        # The times at which operators' commands were seen to be killed.
        self._operators_killed_at: dict[str, float] = {}
        self._due: dict[tuple[str, str], int] = {}
        # For each shard, how many records had expired at the last warning of a loss.
        self._warned: dict[ShardTrace, int] = {}
        self._watcher: asyncio.Task[None] | None = None

    def begin(self, faults: Sequence[Fault]) -> None:
        """Begin to watch a run in which these faults will happen."""
        if self.is_on:
            kinds = {fault.kind for fault in faults} - HARMLESS_FAULTS
            self._faults_are_harmless = not (kinds or self.sim.scenario.kcl_fleet)
            self.sim.store.on_write.insert(0, self._applied)
            self.sim.on_start.append(self._watch_link)
            self._watcher = self.sim.loop.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            for process in self.sim.living:
                self.check_memory(process)
            self._note_disturbances()
            self._check_owners()

    # --- memory ---

    def _watch_link(self, process: Process) -> None:
        process.line.changed = partial(self.check_memory, process)

    def check_memory(self, process: Process) -> None:
        """Check that a client keeps within its memory budget (L8)."""
        group = process.group
        if group is None or not self.is_on:
            return
        used, budget = group.buffer.used, self.sim.config.buffer_bytes + FULL_PAGE_BYTES
        # Answers carry the data in base64, which makes four bytes of three.
        coming = process.line.bytes_in_flight * 3 // 4
        # Events arrive unasked: one complete event of each shard, and no more.
        coming -= process.subscriptions.coming_bytes
        if (most := process.subscriptions.most_waiting) > 1:
            self._fail("L8", f"{process.name} holds {most} events of a shard")
        if used > budget:
            self._fail("L8", f"{process.name} holds {used} bytes, not {budget}")
        if coming > used + FULL_PAGE_BYTES:
            text = f"{process.name} is sent {coming} bytes, but counts with {used}"
            self._fail("L8", text)

    async def check_at_rest(self) -> None:
        """Check that clients hold no memory when all records are done (L8)."""
        if not self.is_on:
            return
        # Reads of empty pages reserve memory for a short time. So look for a client
        # that holds memory in each of many samples.
        held = {p.name: p.group.buffer for p in self.sim.living if p.group is not None}
        for _ in range(80):
            held = {name: buffer for name, buffer in held.items() if buffer.used}
            await asyncio.sleep(0.1 + self.sim.random.random() / 3)
        for name, buffer in held.items():
            self._fail("L8", f"{name} never releases {buffer.used} bytes")

    # --- backlogs ---

    def backlog_seconds(self) -> float:
        """Note all records, and return the seconds within which they must be done."""
        if not self.is_on:
            return 0.0
        scenario = self.sim.scenario
        sizes = []
        for (arn, shard_id), trace in self.sim.checker.shards.items():
            self._due[arn, shard_id] = len(trace.log)
            sizes.append((len(trace.log) - trace.expired) * scenario.record_bytes)
        seconds = max(sizes) / Limits().read_bytes_per_second
        if link := scenario.link_bytes_per_second:
            clients = max(1, len(self.sim.living))
            body = convergence.count_waiting(self.sim) * scenario.record_bytes * 4 / 3
            seconds += body / clients / link
        slack = BACKLOG_SECONDS + 2 * scenario.min_read_interval_seconds
        # The owner of an expired shard's parents may not hear of the shard, so that it
        # waits for the next listing.
        slack += self._count_expired_shards() * self.sim.config.listing_interval_seconds
        if scenario.commit == "manual":
            slack += self._seconds_in_turns() + self._ack_seconds()
        return slack + BACKLOG_TIMES * seconds + convergence.fleet_seconds(self.sim)

    def _count_expired_shards(self) -> int:
        """Return how many shards have expired before a client has ended them."""
        streams = [self.sim.kinesis.stream(name) for name in self.sim.streams]
        listed = {(each.arn, shard_id) for each in streams for shard_id in each.shards}
        shards = self.sim.checker.shards.items()
        rows = [trace.row for place, trace in shards if place not in listed]
        return sum(row is not None and row.get("ended") is not True for row in rows)

    def _seconds_in_turns(self) -> float:
        """Return the longest time that user code has suspects one at a time.

        Those who acknowledge them late get each one after at most two waits.
        """
        traces = self.sim.checker.shards.values()
        shards = sum("deaths" in (trace.row or ()) for trace in traces)
        return shards * self.sim.config.max_uncommitted_records * 2 * ACK_SECONDS

    def _ack_seconds(self) -> float:
        """Return the longest time that user code takes to acknowledge all records.

        Children wait for their parents, so one shard may follow the other.
        """
        most = self.sim.config.max_uncommitted_records
        return convergence.count_waiting(self.sim) / most * MAX_ACK_ROUND_SECONDS

    def check_backlog(self) -> None:
        """Check that the records that ``backlog_seconds()`` noted are done (L7)."""
        requested = {self.sim.arn(n) for p in self.sim.living for n in p.streams}
        for (arn, shard_id), due in self._due.items():
            if arn not in requested:
                continue
            trace = self.sim.checker.shards[arn, shard_id]
            first = convergence.first_due(self.sim, arn, trace)
            left = None if first is None else trace.first_undone(first, due)
            if left is not None:
                text = f"record {left} of {due} in {shard_id} isn't done in time"
                self._fail("L7", f"{text}: {trace.row}")

    # --- owners ---

    def _note_disturbances(self) -> None:
        """Record the last time at which clients might be unable to claim shards."""
        sim, now = self.sim, self.sim.loop.real
        for process in sim.processes:
            frozen = min(process.heartbeat_thread.frozen_until, now)
            disturbed = [link.last_disturbed_at for link in process.networks.values()]
            self._disturbed_at = max(self._disturbed_at, frozen, *disturbed)
            # A call that blocks for longer than MAX_BLOCKED_SECONDS excuses its client.
            if process.machine.frozen_until - now > MAX_BLOCKED_SECONDS:
                self._disturbed_at = now
        if self._is_ordered_otherwise() or not sim.living:
            self._disturbed_at = now
        for operator in sim.operators:
            if not operator.machine.alive:
                self._operators_killed_at.setdefault(operator.name, now)

    def _is_ordered_otherwise(self) -> bool:
        """Return True if an operator is active or a pause or drain is in effect."""
        sim = self.sim
        if not sim.operators:
            return False
        if sim.checker.pauses.is_any or any(op.busy for op in sim.operators):
            return True
        members = sim.store.rows(f"member#{sim.scenario.app}")
        return any(row.get("drained") for row in members)

    def _check_owners(self) -> None:
        """Check that a shard without an owner is claimed soon (L9)."""
        sim, now = self.sim, self.sim.loop.real
        unowned = {}
        for name in sim.streams:
            if not sim.is_consumed(name) or self._are_full(name):
                continue
            arn = sim.arn(name)
            for opened in sim.kinesis.stream(name).open:
                key = arn, opened.shard.shard_id
                row = sim.checker.shards[key].row
                if row is None or not row.get("ready") or row.get("paused"):
                    continue
                if not row.get("owner"):
                    unowned[key] = self._unowned_since.get(key, now)
        self._unowned_since = unowned
        limit_seconds = UNOWNED_SECONDS + convergence.fleet_seconds(sim)
        limit_seconds += 2 * sum(sim.scenario.shards) / sim.store.write_capacity.rate
        excused_until = self._disturbed_at + DISTURBANCE_SECONDS
        # A killed command may have changed rows without notifying the clients.
        killed_at = max(self._operators_killed_at.values(), default=-math.inf)
        excused_until = max(excused_until, killed_at + FULL_POLL_SECONDS)
        for (_, shard_id), since in unowned.items():
            if now - max(since, excused_until) > limit_seconds:
                self._fail("L9", f"{shard_id} has had no owner since {since:.1f} s")

    def _are_full(self, name: str) -> bool:
        """Return True if all clients of a stream own their ``max_shards``.

        A paused shard keeps its place in the plan, and so in its client.
        """
        sim, limit = self.sim, self.sim.config.max_shards
        if limit is None:
            return False
        rows = [t.row for t in sim.checker.shards.values() if t.row is not None]
        owned = Counter(row.get("owner_id") for row in rows)
        waiting = [
            rows_format.read_shard(row)
            for row in rows
            if row.get("paused") and not row.get("owner")
        ]
        for process in sim.living:
            owned[process.client_id] += sum(
                contains(_range_of(process), row.key.stream_arn, row.first_hash)
                for row in waiting
            )
        takers = [p.client_id for p in sim.living if name in p.streams]
        return all(owned[client_id] >= limit for client_id in takers)

    # --- false alarms ---

    def _applied(self, write: Write, before: Row | None, after: Row | None) -> None:
        if after is None or before is None or not write.key.pk.startswith("member#"):
            return
        machine = self.sim.checker.leases.machines.get(str(after["session"]))
        process = next((p for p in self.sim.processes if p.machine is machine), None)
        if process is None or self.sim.checker.is_disabled:
            return
        if after.get("state") == "degraded" != before.get("state"):
            self._check_degraded(process)
        if after.get("dead") is True and before.get("dead") is not True:
            self._check_death(process, str(after["session"]), self.sim.checker.writer)

    def _check_degraded(self, process: Process) -> None:
        """Check that a client is degraded only if it can't reach Kinesis (L10)."""
        disturbed_at = process.kinesis_network.last_disturbed_at
        if disturbed_at < self.sim.loop.real - DEGRADED_CAUSE_SECONDS:
            self._fail("L10", f"{process.name} calls itself degraded without cause")

    def _check_death(
        self, process: Process, session: str, writer: Machine | None
    ) -> None:
        """Check that a client is declared dead by others only after a fault (L11)."""
        now, group = self.sim.loop.real, process.group
        if writer is process.machine or not process.alive:
            return
        if group is None or group.session is None:
            return
        if group.session.member.session != session:
            return  # the client gave that session up, but could not store that
        excuses = [p.store.network.last_disturbed_at for p in self.sim.processes]
        excuses.append(process.heartbeat_thread.frozen_until)
        if process.leaving:
            # The heartbeats end before the event loop marks the session dead.
            excuses.append(process.machine.frozen_until)
        if max(excuses) < now - DISTURBANCE_SECONDS:
            self._fail("L11", f"{process.name} is declared dead without cause")

    def check_repeats(self) -> None:
        """Check that no record is delivered twice if all faults are harmless (L12)."""
        again = self.sim.checker.redelivered
        if self.is_on and self._faults_are_harmless and again:
            text = f"{again} records are delivered again with harmless faults"
            self._fail("L12", text)

    def lost(self, shard_id: str, stream: str) -> None:
        """Check that a client logs a loss only if it may have happened (L13).

        The shard's row may prove that nothing was lost: for an idle shard, it stores
        the time of the last read.
        """
        trace = self.sim.checker.shards[self.sim.arn(stream), shard_id]
        self._warned[trace] = trace.expired
        if not self._has_lost(trace) and self._is_proven_whole(trace):
            self._fail("L13", f"nothing of {shard_id} was lost, but a client says so")

    def whole(self, shard_id: str, stream: str) -> None:
        """Check that no record was lost if a client logs that none was (L13).

        An earlier warning was about all records that had expired by then.
        """
        trace = self.sim.checker.shards[self.sim.arn(stream), shard_id]
        if self._has_lost(trace, self._warned.get(trace, 0)):
            self._fail("L13", f"records of {shard_id} were lost without a warning")

    def _has_lost(self, trace: ShardTrace, first: int = 0) -> bool:
        """Return whether records after the row's position have expired undone.

        The owner cannot know of others. For example, after a seek to the beginning, the
        oldest records may expire before the shard is read. Records before the index
        ``first`` do not count either.
        """
        if trace.row is None:
            return False
        first = max(first, trace.first_of(trace.row))
        return trace.done.find(0, first, trace.expired) >= 0

    def _is_proven_whole(self, trace: ShardTrace) -> bool:
        timestamp, _, at = str((trace.row or {}).get("tip", "")).partition(" ")
        read, (number, _, part) = row_position(trace.row), at.partition(":")
        if not timestamp or read is None:
            return False
        if read < record_position(number, int(part) if part else None):
            return False
        proven_at = datetime.fromisoformat(timestamp).timestamp()
        age = self.sim.kinesis.clock.wall() - proven_at
        # A client's estimate of Kinesis's clock may err.
        return age < self.sim.retention_seconds - SEEN_SLACK_SECONDS

    def _fail(self, predicate: str, message: str) -> None:
        self.sim.checker.fail(predicate, message)


def _range_of(process: Process) -> Range:
    """Return the part of the plan that a client knows."""
    session = None if process.group is None else process.group.session
    return (session and session.member.range) or ()


class LossLogHandler(logging.Handler):
    """Passes clients' log messages about lost records to the monitor of their app."""

    def __init__(self, monitors: Sequence[LivenessMonitor]) -> None:
        super().__init__(logging.INFO)
        self._monitors = monitors

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a logged loss to the client's monitor."""
        shard_id = getattr(record, "shard_id", None)
        stream = getattr(record, "stream", None)  # lines about incidents have none
        if shard_id is None or stream is None:
            return
        text = record.getMessage()
        for monitor in self._monitors:
            machine = monitor.sim.loop.current
            if any(process.machine is machine for process in monitor.sim.processes):
                if LOST in text:
                    monitor.lost(shard_id, stream)
                elif any(words in text for words in WHOLE):
                    monitor.whole(shard_id, stream)

    def __enter__(self) -> None:
        self._level: int = logger.level
        if any(monitor.sim.scenario.retention_seconds for monitor in self._monitors):
            logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def __exit__(self, *error: object) -> None:
        logger.removeHandler(self)
        logger.setLevel(self._level)
