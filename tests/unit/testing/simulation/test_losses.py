"""Test that the simulator finds losses that no client warns of, and false warnings."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kinesumer.runtime.failure_log import logger
from kinesumer.testing.simulation.convergence import raise_violation
from kinesumer.testing.simulation.invariants.liveness import LivenessMonitor
from kinesumer.testing.simulation.simulation import Simulation
from kinesumer.wire.rows import timestamp_text
from tests.support.simulated import settled_group
from tests.support.world import SHARD


def note_tip(sim: Simulation, age: float, *, tip: str = "5", read: str = "5") -> None:
    """Let a shard's row state that ``tip`` was its last record ``age`` seconds ago."""
    at = timestamp_text(sim.kinesis.clock.wall() - age)
    trace = sim.checker.shards[sim.arn("stream-0"), SHARD]
    number, _, part = read.partition(":")
    trace.row = {"sequence_number": number, "tip": f"{at} {tip}"}
    if part:
        trace.row["sub_sequence_number"] = int(part)


async def log(sim: Simulation, level: int, message: str) -> None:
    """Let a client log something about a shard."""

    async def say() -> None:
        where = {"stream": "stream-0", "shard_id": SHARD}
        logger.log(level, message, extra=where)

    await sim.loop.spawn(sim.processes[0].machine, say())


async def lose(sim: Simulation) -> None:
    """Let new records expire before user code handles them."""
    for process in sim.processes:
        process.user_code.hang()
    sim.put_everywhere()
    await asyncio.sleep(1)
    sim.expire("stream-0", 0.0)


@settled_group("L13")
async def test_l13_a_loss_that_a_row_disproves(
    sim: Simulation, monitor: LivenessMonitor
) -> None:
    sim.expire("stream-0", 0.0)
    note_tip(sim, 60.0, tip="4:7")
    monitor.lost(SHARD, "stream-0")


@pytest.mark.parametrize(
    "row", [{"age": 86_395.0}, {"age": 60.0, "read": "4"}, {"age": 60.0, "read": "5:0"}]
)
@settled_group()
async def test_l13_a_loss_that_nothing_disproves_may_be_warned_of(
    sim: Simulation, monitor: LivenessMonitor, row: dict[str, Any]
) -> None:
    sim.expire("stream-0", 0.0)
    note_tip(sim, **row)
    monitor.lost(SHARD, "stream-0")


@pytest.mark.parametrize(
    "message",
    [
        "stream s: records may be lost to retention, if any came after a position",
        "stream s: it has passed a whole shard: records may be lost to retention",
    ],
)
@settled_group("L13")
async def test_l13_what_a_client_logs_is_judged(
    sim: Simulation, _: LivenessMonitor, message: str
) -> None:
    note_tip(sim, 60.0)
    await log(sim, logging.WARNING, message)


@pytest.mark.parametrize(
    "message",
    [
        "stream s: the position of shard x has expired, and nothing came after it",
        "stream s: shard x has expired, and was read to its end",
    ],
)
@settled_group(r"L13.*without a warning", retention_seconds=120.0)
async def test_l13_a_loss_in_silence(
    sim: Simulation, _: LivenessMonitor, message: str
) -> None:
    await lose(sim)
    await log(sim, logging.INFO, message)


@settled_group(retention_seconds=120.0)
async def test_l13_a_loss_before_the_position_is_not_known_to_the_owner(
    sim: Simulation, monitor: LivenessMonitor
) -> None:
    trace = sim.checker.shards[sim.arn("stream-0"), SHARD]
    trace.done[0] = 0  # as after a seek to the beginning
    sim.expire("stream-0", 0.0)
    monitor.whole(SHARD, "stream-0")


@settled_group(r"L13.*without a warning", retention_seconds=120.0)
async def test_l13_a_loss_may_be_logged_and_is_warned_of_once(
    sim: Simulation, monitor: LivenessMonitor
) -> None:
    await lose(sim)
    monitor.lost(SHARD, "stream-0")
    monitor.whole(SHARD, "stream-0")
    raise_violation(sim)
    await lose(sim)
    monitor.whole(SHARD, "stream-0")
