"""Liveness checks: backlogs, unowned shards, memory, and false alarms.

Each predicate here is about one app's clients, while faults go on or soon after them.
A fault excuses a client: a lost request, or a process that is stopped.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from kinesumer.runtime.failure_log import logger
from kinesumer.simulation.convergence import undone
from kinesumer.simulation.limit_faults import MAX_BLOCKED_SECONDS
from kinesumer.simulation.trace import record_position, row_position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.rows import Row
    from kinesumer.ports import Write
    from kinesumer.simulation.client import Process
    from kinesumer.simulation.machine import Machine
    from kinesumer.simulation.schedule import Fault
    from kinesumer.simulation.simulation import Simulation
    from kinesumer.simulation.trace import ShardTrace

PAGE_BYTES = 16 * 1024 * 1024
"""Memory of one page while it is read: 10 MB of data and its encoded form."""
CHECK_INTERVAL_SECONDS = 5.0
DISTURBANCE_SECONDS = 30.0
"""A fault that ended earlier than this excuses nothing."""
DEGRADED_CAUSE_SECONDS = 120.0
"""A degraded client has failed to reach Kinesis within this time."""
UNOWNED_SECONDS = 45.0
"""A shard is owned again within this time, if clients can claim it."""
BACKLOG_SECONDS = 60.0
"""Records in the streams at the end of the faults are done within this time …"""
BACKLOG_TIMES = 3.0
"""… plus this many times what the links and the shards' 2 MB/s need."""
SHARD_BYTES_PER_SECOND = 2_000_000
HARMLESS_FAULTS = {"join", "leave"}
"""With these faults alone, no record is delivered twice."""
SAMPLES = 80
LOST = "lost to retention"
"""Text that clients log if records may be lost …"""
WHOLE = ("nothing came after it", "was read to its end")
"""… and texts if no record is lost."""
PROOF_SECONDS = 10.0
"""A tip proves nothing when retention is this close to it."""


class LivenessMonitor:
    """Watches the clients of one app. The first violation ends the run."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.is_on = sim.user is None
        """False with a user's own handler, which may take any time."""
        self._faults_are_harmless = False
        self._unowned_since: dict[tuple[str, str], float] = {}
        self._disturbed_at = 0.0
        self._due: dict[tuple[str, str], int] = {}
        self._watcher: asyncio.Task[None] | None = None

    def begin(self, faults: Sequence[Fault]) -> None:
        """Begin to watch, while these faults happen."""
        if self.is_on:
            self._faults_are_harmless = {
                fault.kind for fault in faults
            } <= HARMLESS_FAULTS
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
        used, most = group.buffer.used, self.sim.config.buffer_bytes + PAGE_BYTES
        coming = process.line.bytes_in_flight * 3 // 4
        if used > most:
            self._fail("L8", f"{process.name} holds {used} bytes, not {most}")
        if coming > used + PAGE_BYTES:
            self._fail(
                "L8", f"{process.name} is sent {coming} bytes, but counts with {used}"
            )

    async def check_at_rest(self) -> None:
        """Check what must hold when all records are done."""
        if self.is_on:
            await self._check_memory_released()

    async def _check_memory_released(self) -> None:
        """Check that no memory is held when all records are done (L8)."""
        held = {p.name: p.group.buffer for p in self.sim.living if p.group is not None}
        for _ in range(SAMPLES):
            held = {name: buffer for name, buffer in held.items() if buffer.used}
            await asyncio.sleep(0.1 + self.sim.random.random() / 3)
        for name, buffer in held.items():
            self._fail("L8", f"{name} never releases {buffer.used} bytes")

    # --- backlogs ---

    def backlog_seconds(self) -> float:
        """Return the seconds within which the records in the streams must be done."""
        if not self.is_on:
            return 0.0
        scenario = self.sim.scenario
        sizes = []
        for (arn, shard_id), trace in self.sim.checker.shards.items():
            self._due[arn, shard_id] = len(trace.log)
            sizes.append((len(trace.log) - trace.expired) * scenario.record_bytes)
        seconds = max(sizes) / SHARD_BYTES_PER_SECOND
        if link := scenario.link_bytes_per_second:
            clients = max(1, len(self.sim.living))
            waits = sum(undone(self.sim, name) for name in self.sim.streams)
            body = waits * scenario.record_bytes * 4 / 3
            seconds += body / clients / link
        return (
            BACKLOG_SECONDS
            + 2 * scenario.min_read_interval_seconds
            + BACKLOG_TIMES * seconds
        )

    def check_backlog(self) -> None:
        """Check that the records of ``backlog_seconds`` are done (L7)."""
        asked = {self.sim.arn(n) for p in self.sim.living for n in p.streams}
        for key, due in self._due.items():
            if key[0] not in asked:
                continue
            trace = self.sim.checker.shards[key]
            first = self._first_due(key[0], trace)
            left = None if first is None else trace.first_undone(first, due)
            if left is not None:
                text = f"record {left} of {due} in {trace.shard_id} isn't done in time"
                self._fail("L7", f"{text}: {trace.row}")

    # --- owners ---

    def _note_disturbances(self) -> None:
        """Record the last time at which clients could not claim shards."""
        sim, now = self.sim, self.sim.loop.real
        for process in sim.processes:
            frozen = process.heartbeat_thread.frozen_until
            met = max(
                process.store.network.last_disturbed_at,
                process.kinesis_network.last_disturbed_at,
            )
            self._disturbed_at = max(self._disturbed_at, min(frozen, now), met)
            # A call that blocks for longer than this excuses its client.
            if process.machine.frozen_until - now > MAX_BLOCKED_SECONDS:
                self._disturbed_at = now
        if self._is_ordered_otherwise() or not sim.living:
            self._disturbed_at = now

    def _is_ordered_otherwise(self) -> bool:
        """Return whether an operator is running, or has paused or drained something."""
        sim = self.sim
        if (
            any(operator.busy for operator in sim.operators)
            or sim.checker.pauses.is_any
        ):
            return True
        members = sim.store.rows(f"member#{sim.scenario.app}") if sim.operators else []
        return any(row.get("drained") for row in members)

    def _check_owners(self) -> None:
        """Check that a shard without an owner is claimed soon (L9)."""
        sim, now = self.sim, self.sim.loop.real
        unowned = {}
        for name in sim.streams:
            if not any(name in process.streams for process in sim.living):
                continue
            arn = sim.arn(name)
            for made in sim.kinesis.stream(name).open:
                key = arn, made.shard.shard_id
                row = sim.checker.shards[key].row
                if row is None or not row.get("ready") or row.get("paused"):
                    continue
                if not row.get("owner"):
                    unowned[key] = self._unowned_since.get(key, now)
        self._unowned_since = unowned
        limit_seconds = UNOWNED_SECONDS
        if units := sim.store.write_units_per_second:
            limit_seconds += 2 * sum(sim.scenario.shards) / units
        for (_, shard_id), since in unowned.items():
            if (
                now - max(since, self._disturbed_at + DISTURBANCE_SECONDS)
                > limit_seconds
            ):
                self._fail("L9", f"{shard_id} has had no owner since {since:.1f} s")

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
        """Check that a degraded client has failed to reach Kinesis (L10)."""
        if (
            process.kinesis_network.last_disturbed_at
            < self.sim.loop.real - DEGRADED_CAUSE_SECONDS
        ):
            self._fail("L10", f"{process.name} calls itself degraded without cause")

    def _check_death(
        self, process: Process, session: str, writer: Machine | None
    ) -> None:
        """Check that a client that others declare dead had a fault (L11)."""
        now, group = self.sim.loop.real, process.group
        if writer is process.machine or not process.alive:
            return
        if group is None or group.session is None:
            return
        if group.session.member.session != session:
            return  # it had to give that one up, and could not say so
        excuses = [p.store.network.last_disturbed_at for p in self.sim.processes]
        excuses.append(process.heartbeat_thread.frozen_until)
        if max(excuses) < now - DISTURBANCE_SECONDS:
            self._fail("L11", f"{process.name} is declared dead without cause")

    def check_repeats(self) -> None:
        """Check that no record is delivered twice with harmless faults (L12)."""
        again = self.sim.checker.redelivered
        if self.is_on and self._faults_are_harmless and again:
            self._fail(
                "L12", f"{again} records are delivered again with harmless faults"
            )

    def lost(self, shard_id: str, stream: str) -> None:
        """Check that a shard's row doesn't disprove a logged loss (L13).

        The row of an idle shard does: it says until when all records were read.
        """
        trace = self.sim.checker.shards[self.sim.arn(stream), shard_id]
        if not self._has_lost(stream, trace) and self._is_proven_whole(trace):
            self._fail("L13", f"nothing of {shard_id} was lost, but a client says so")

    def whole(self, shard_id: str, stream: str) -> None:
        """Check that no record was lost if a client logs so (L13)."""
        trace = self.sim.checker.shards[self.sim.arn(stream), shard_id]
        if self._has_lost(stream, trace):
            self._fail("L13", f"records of {shard_id} were lost without a warning")

    def _has_lost(self, stream: str, trace: ShardTrace) -> bool:
        first = self._first_due(self.sim.arn(stream), trace)
        return first is not None and trace.done.find(0, first, trace.expired) >= 0

    def _is_proven_whole(self, trace: ShardTrace) -> bool:
        moment, _, at = str((trace.row or {}).get("tip", "")).partition(" ")
        read, place = row_position(trace.row), at.partition(":")
        if not moment or read is None:
            return False
        if read < record_position(place[0], int(place[2]) if place[2] else None):
            return False
        age = self.sim.kinesis.clock.wall() - datetime.fromisoformat(moment).timestamp()
        return age < self.sim.retention_seconds - PROOF_SECONDS

    def _first_due(self, arn: str, trace: ShardTrace) -> int | None:
        if trace.seek_index is not None:
            return trace.seek_index
        for row in self.sim.store.rows(f"group#{self.sim.scenario.app}"):
            if row["sk"] == f"stream#{arn}":
                return trace.since(str(row["start"]))
        return None

    def _fail(self, predicate: str, message: str) -> None:
        self.sim.checker.fail(predicate, message)


class LossLogHandler(logging.Handler):
    """Passes the losses that clients log to their monitors."""

    def __init__(self, monitors: Sequence[LivenessMonitor]) -> None:
        super().__init__(logging.INFO)
        self._monitors = monitors
        self._level = logger.level

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a logged loss to the client's monitor."""
        shard_id = getattr(record, "shard_id", None)
        if shard_id is None:
            return
        text, stream = record.getMessage(), str(record.stream)  # type: ignore[attr-defined]
        for monitor in self._monitors:
            machine = monitor.sim.loop.current
            if any(process.machine is machine for process in monitor.sim.processes):
                if LOST in text:
                    monitor.lost(shard_id, stream)
                elif any(words in text for words in WHOLE):
                    monitor.whole(shard_id, stream)

    def __enter__(self) -> None:
        self._level = logger.level
        if any(monitor.sim.scenario.retention_seconds for monitor in self._monitors):
            logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def __exit__(self, *error: object) -> None:
        logger.removeHandler(self)
        logger.setLevel(self._level)
