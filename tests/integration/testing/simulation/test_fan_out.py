"""Test that groups that read by fan-out keep their memory, shards and subscriptions."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from kinesumer.aws.http.event_stream import SILENCE_SECONDS
from kinesumer.testing.simulation.fan_out import LinkedEventStream
from kinesumer.testing.simulation.run import draw_run, execute_run, parse_rates
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation
from tests.support.simulated import simulated_group
from tests.support.simulated_group import (
    finish,
    held_by,
    settle,
    steady,
    traces,
)

FAN_OUT: dict[str, Any] = {"fan_out": 1.0, "shards": (6,)}
# User code stops for so long that the buffers are full, and events wait for memory.
WITHOUT_ROOM = Scenario(
    "without room",
    members=2,
    shards=(16,),
    records_per_second=40,
    record_bytes=100_000,
    link_bytes_per_second=20_000_000,
    fan_out=1.0,
    subscription_seconds=30,
    faults="push_cut:1,push_corrupt:1,slow:6:40,hang:3:40,join:0.5,leave:0.5",
    config={"buffer_bytes": 11_000_000},
)


def test_no_event_is_lost_or_exceeds_the_memory_while_buffers_are_full() -> None:
    rates = parse_rates(WITHOUT_ROOM.faults)
    outcome = execute_run(draw_run(WITHOUT_ROOM, 1, 1.0, rates))
    assert not outcome.violation
    assert outcome.faults["slow"] + outcome.faults["hang"] > 3


def shard_of(stream: LinkedEventStream) -> str:
    return stream._subscription.shard.shard.shard_id


def open_streams(sim: Simulation) -> list[LinkedEventStream]:
    """Return the event streams of all processes."""
    return [stream for process in sim.living for stream in process.subscriptions.open]


@simulated_group(**FAN_OUT)
async def test_a_subscription_that_stays_silent_is_replaced(sim: Simulation) -> None:
    await steady(sim)
    silent = open_streams(sim)
    assert len(silent) == 6
    for stream in silent:
        stream.stall(1e9)
    await finish(sim, seconds=SILENCE_SECONDS + 15)
    assert all(all(trace.delivered) for trace in traces(sim))
    assert not set(silent) & set(open_streams(sim))


@simulated_group(**FAN_OUT)
async def test_each_shard_is_subscribed_to_by_its_owner_only(sim: Simulation) -> None:
    await steady(sim)
    joined, left = sim.start_process(), sim.living[0]
    await asyncio.sleep(20)
    left.leave()
    await asyncio.sleep(20)
    assert held_by(sim, joined)
    for process in sim.living:
        subscribed = Counter(map(shard_of, process.subscriptions.open))
        owned = Counter(trace.shard_id for trace in held_by(sim, process))
        assert subscribed == owned
    await settle(sim)
