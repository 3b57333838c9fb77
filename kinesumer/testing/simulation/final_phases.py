"""The final phases of runs, which disturb a group at rest once more, and check it.

So L1, L4, L5, L14, L16, I13 and the fatal faults follow many histories of faults.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from kinesumer.config import Config
from kinesumer.errors import (
    FatalError,
    StateStoreMissingError,
    StateStoreRecreatedError,
    StreamRecreatedError,
)
from kinesumer.testing.bounds import HAND_OVER_SECONDS, STEADY_SECONDS, crash_bound
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.faults import KINDS, FaultInjector
from kinesumer.testing.simulation.invariants.base import ShardTrace
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation

Ending = Callable[[Simulation], Awaitable[None]]

FATAL_SECONDS = 90.0
# Faults that no process ends by. They delay what it learns of a fatal fault.
BESIDE_FATAL = (
    *("stall", "suspend", "block", "jump", "drift"),
    *("store_cut", "kinesis_cut", "both_cut", "store_mute", "kinesis_mute"),
    *("timeouts", "unanswered", "late", "twice", "slow_net", "stale", "no_keys"),
)
COST_MARGIN = 1.05
# The maximum seconds from a record's arrival to user code. With several apps on the
# stream, the limit is multiplied by their number.
MAX_LATENCY_SECONDS = 0.6
# After this time, simulated user code has acknowledged all records. It tries every half
# second.
MAX_ACK_ROUNDS_SECONDS = 5.0
# The rate of the slowest clock, on which an interval takes longer.
SLOWEST_CLOCK = 1 - Scenario.drift


async def nothing(sim: Simulation) -> None:
    """Leave the group alone."""
    await asyncio.sleep(1)


async def takeover(sim: Simulation) -> None:
    """Kill a client, and check that others deliver its shards in time (L1)."""
    flowing = flow(sim)
    await asyncio.sleep(1)
    lead = sim.leader
    if lead is None:
        sim.checker.fail("L2", "the leader by the leader's row isn't alive")
        return
    others = [process for process in sim.living if process is not lead]
    dies = "leader" if not others or sim.random.random() < 0.5 else "client"
    victim = lead if dies == "leader" else sim.random.choice(others)
    survivors = [process for process in sim.living if process is not victim]
    consumed = {sim.arn(name) for process in survivors for name in process.streams}
    lost = [
        trace
        for (arn, _), trace in sim.checker.shards.items()
        if trace.row and trace.row.get("owner_id") == victim.name and arn in consumed
    ]
    sim.checker.note("killed at rest", dies, victim.name)
    died = sim.loop.real
    victim.machine.kill()
    if not any(process.stays for process in survivors):
        sim.start_process()  # deploy another client, since none is left
    bound = crash_bound(Config(), led=dies == "leader")
    limit = (bound + _replace_seconds(sim)) / SLOWEST_CLOCK + _release_seconds(sim)
    limit += 2 * sim.scenario.min_read_interval_seconds
    await asyncio.sleep(limit + 1)
    for trace in lost:
        started = trace.ownerships[max(trace.ownerships)].started_at
        if started is None or not died < started <= died + limit:
            text = f"{trace.shard_id} of the {dies} that died at {died:.3f} s is"
            sim.checker.fail("L1", f"{text} delivered at {started}, not in {limit} s")
    flowing.cancel()
    await asyncio.sleep(20)


def _replace_seconds(sim: Simulation) -> float:
    """Return the longest wait until a subscription replaces one of a dead client.

    It may replace one that began some seconds ago. Clients try whenever AWS permits it.
    """
    limits = Limits()
    tries = limits.subscription_replace_seconds + 1 / limits.subscribe_calls_per_second
    return tries if sim.scenario.fan_out else 0.0


def _release_seconds(sim: Simulation) -> float:
    """Return the longest wait until a new owner has room for a dead client's shard.

    With ``max_shards``, the new owner may have to hand over another shard first. With
    manual commits, that waits for user code, which may acknowledge records late.
    """
    if sim.config.max_shards is None:
        return 0.0
    is_manual = sim.scenario.commit == "manual"
    return HAND_OVER_SECONDS + (MAX_ACK_ROUNDS_SECONDS if is_manual else 0.0)


def _plan_seconds(sim: Simulation) -> float:
    """Return how long a child may wait for a new plan, which ``max_shards`` requires.

    The leader reads the shard rows at each listing interval. Then two heartbeats of the
    leader follow, and one of the new owner.
    """
    if sim.config.max_shards is None:
        return 0.0
    beats = 3 * sim.config.heartbeat_interval_seconds
    return sim.config.listing_interval_seconds / SLOWEST_CLOCK + beats


async def reshard(sim: Simulation) -> None:
    """Reshard, and check that children are delivered soon after their parents (L4)."""
    flowing = flow(sim)
    await asyncio.sleep(1)
    children = list(_reshard(sim))
    read = sim.scenario.min_read_interval_seconds
    limit = STEADY_SECONDS + read + _plan_seconds(sim)
    await asyncio.sleep(18 + limit + read)
    for arn, child in children:
        ends = [sim.checker.shards[arn, parent].ended_at for parent in child.parents]
        if None in ends or 1 not in child.ownerships:
            text = f"{child.shard_id} waits for {child.parents}: {ends}"
            sim.checker.fail("L4", text)
            continue
        ended = max(end for end in ends if end is not None)
        started = child.ownerships[1].started_at
        if started is None or started > ended + limit:
            text = f"{child.shard_id} is delivered at {started}"
            sim.checker.fail("L4", f"{text}, its parents ended at {ended:.3f} s")
    flowing.cancel()


async def pair(sim: Simulation) -> None:
    """Disturb the group twice within a lease; check that all records come (L16)."""
    flowing = flow(sim)
    await asyncio.sleep(1)
    began, lease = sim.loop.services.wall(), sim.config.lease_duration_seconds
    kinds = sim.random.choices(list(DISTURBANCES), k=2)
    streams = _streams_with_consumers(sim, more_than=len(kinds))
    limit = 2 * sim.scenario.min_read_interval_seconds + _replace_seconds(sim)
    limit += _pair_seconds(kinds, lease) / SLOWEST_CLOCK + _plan_seconds(sim)
    for kind in kinds:
        if sum(process.stays for process in sim.living) < 2:
            sim.start_process()  # so that a client is left
        DISTURBANCES[kind](sim)
        await check_arrivals(sim, streams, began, lease * sim.random.random(), limit)
    await check_arrivals(sim, streams, began, limit + lease, limit)
    flowing.cancel()
    await asyncio.sleep(20)


def _pair_seconds(kinds: list[str], lease_seconds: float) -> float:
    """Return how long a record may wait if two disturbances coincide.

    What the second one moves was perhaps about to move after the first one's lease.
    """
    deaths = sum(kind in ("crash", "stop") for kind in kinds)
    takeover = crash_bound(Config(), led=True) if deaths else 0.0
    return takeover + (lease_seconds if deaths == 2 else 0.0) + STEADY_SECONDS


def _streams_with_consumers(sim: Simulation, more_than: int) -> set[str]:
    """Return the ARNs of streams that clients consume even if some of them end."""
    counts = {name: sum(name in p.streams for p in sim.living) for name in sim.streams}
    # If all clients have a stream, so has one that is deployed because none is left.
    enough = more_than + 1
    if not sim.scenario.mixed:
        enough = min(enough, len(sim.living))
    return {sim.arn(name) for name, count in counts.items() if count >= enough}


async def check_arrivals(
    sim: Simulation, streams: set[str], began: float, seconds: float, limit: float
) -> None:
    """Check for some seconds that no record since ``began`` waits for ``limit``."""
    until = sim.loop.real + seconds
    while sim.loop.real < until:
        await asyncio.sleep(min(1.0, until - sim.loop.real))
        now = sim.loop.services.wall()
        for (arn, _), trace in sim.checker.shards.items():
            if arn not in streams:
                continue
            due = bisect_left(trace.arrivals, now - limit)
            for index in range(bisect_left(trace.arrivals, began), due):
                if not trace.delivered[index]:
                    waited = now - trace.arrivals[index]
                    text = f"a record of {trace.shard_id} waits for {waited:.1f} s"
                    sim.checker.fail("L16", f"{text}, not {limit:.1f} s")


def _any_client(sim: Simulation) -> Process:
    """Return a client; half of the time the leader."""
    if (lead := sim.leader) and sim.random.random() < 0.5:
        return lead
    return sim.random.choice(sim.living)


# What may happen to a group. Two of these within one lease must not add their delays.
DISTURBANCES: dict[str, Callable[[Simulation], object]] = {
    "crash": lambda sim: _any_client(sim).kill(),
    "stop": lambda sim: _any_client(sim).freeze(16 * sim.random.random()),
    "leave": lambda sim: _any_client(sim).leave(),
    "join": lambda sim: sim.start_process(),
    "reshard": lambda sim: list(_reshard(sim)),
}


def _reshard(sim: Simulation) -> Iterator[tuple[str, ShardTrace]]:
    for name in sim.streams:
        if not sim.is_consumed(name):
            continue
        opened = [shard.shard for shard in sim.kinesis.stream(name).open]
        low = sim.random.randrange(len(opened))
        children: list[str] = []
        if name in sim.tables and sim.random.random() < 0.5:
            children = [sim.roll_over(name, opened[low].shard_id)]
        elif (
            low + 1 < len(opened)
            and name not in sim.tables
            and sim.random.random() < 0.5
        ):
            high = opened[low + 1].shard_id
            children = [sim.merge(name, opened[low].shard_id, high)]
        elif opened[low].first_hash + 2 < opened[low].last_hash:
            children = sim.split(name, opened[low].shard_id)
        for shard_id in children:
            yield sim.arn(name), sim.checker.shards[sim.arn(name), shard_id]


async def outage(sim: Simulation) -> None:
    """Disconnect all processes from the store, and check that no session ends (L5)."""
    dead, takeovers = len(sim.checker.dead), sim.checker.takeovers
    seconds = 5 + 115 * sim.random.random() ** 2
    sim.checker.note("outage at rest", "store", f"{seconds:.1f} s")
    for process in sim.living:
        process.store.network.set(lost=1.0)
    await asyncio.sleep(seconds)
    for process in sim.living:
        process.store.network.clear()
    await asyncio.sleep(15)
    if (len(sim.checker.dead), sim.checker.takeovers) != (dead, takeovers):
        sim.checker.fail("L5", f"an outage of {seconds:.1f} s ended sessions")


async def cost(sim: Simulation) -> None:
    """Check that a group at rest needs no more writes than the protocol says (I13)."""
    sim.producing = False  # the usual rate of records would cause early commits
    flowing = flow(sim, 2.0)
    await asyncio.sleep(30)
    before, minutes = sim.store.usage.write_units, 2
    await asyncio.sleep(60 * minutes)
    units = (sim.store.usage.write_units - before) / minutes
    names = {name for process in sim.living for name in process.streams}
    shards = sum(len(sim.kinesis.stream(name).open) for name in names)
    beats = 60 * len(sim.living) / sim.config.heartbeat_interval_seconds
    due = beats + shards * 60 / sim.config.commit_interval_seconds
    if units > COST_MARGIN * due / SLOWEST_CLOCK:
        sim.checker.fail("I13", f"{units} write units a minute, {due} are due")
    flowing.cancel()


async def latency(sim: Simulation) -> None:
    """Check for each app that 99 % of the records reach user code soon (L14)."""
    flowing = flow(sim, 1.0)
    await asyncio.sleep(60)  # a minute of calm, and then one of measurement
    for app in sim.apps:
        app.checker.delays = []
    await asyncio.sleep(60)
    pause = 2 * sim.scenario.min_read_interval_seconds
    limit = MAX_LATENCY_SECONDS * len(sim.apps) + pause
    for app in sim.apps:
        delays = sorted(app.checker.delays or ())
        app.checker.delays = None
        late = delays[int(0.99 * len(delays))] if delays else math.inf
        if late > limit:
            text = f"the 99th percentile of {app.scenario.app} is {late:.2f} s"
            text = f"{text} with {len(sim.apps)} apps, not {limit:.2f} s"
            sim.checker.fail("L14", text)
    flowing.cancel()


def flow(sim: Simulation, seconds: float = 0.25) -> asyncio.Task[None]:
    """Put a record into each open shard at an interval, until cancelled."""

    async def put() -> None:
        while True:
            sim.put_everywhere()
            await asyncio.sleep(seconds)

    return asyncio.get_running_loop().create_task(put())


# --- faults that no client survives ---


async def table_deleted(sim: Simulation) -> None:
    """Delete the state store's table, and check that all clients end."""
    errors = StateStoreMissingError, StateStoreRecreatedError
    await _check_all_end(sim, sim.store.delete_table, *errors)


async def table_recreated(sim: Simulation) -> None:
    """Replace the table by an empty one, and check that all clients end."""
    recreate = partial(sim.store.create_table, "table-2")
    await _check_all_end(sim, recreate, StateStoreRecreatedError)


async def table_restored(sim: Simulation) -> None:
    """Restore the table from an old backup, and check that all clients end."""
    restore = partial(sim.store.restore, sim.store.snapshot(), "table-2")
    await asyncio.sleep(20)
    await _check_all_end(sim, restore, StateStoreRecreatedError)


async def stream_recreated(sim: Simulation) -> None:
    """Delete a stream and create it again, and check that its consumers end."""
    name = sim.streams[0]

    def recreate() -> None:
        sim.kinesis.delete_stream(name)
        sim.kinesis.create_stream(name, sim.scenario.shards[0])

    await _check_all_end(sim, recreate, StreamRecreatedError, consumed=name)


async def _check_all_end(
    sim: Simulation,
    fault: Callable[[], Any],
    *errors: type[FatalError],
    consumed: str | None = None,
) -> None:
    """Cause a fault, and check that it ends the clients with an expected error.

    Up to two other faults begin within one lease before it.
    """
    ending = [p for p in sim.living if consumed is None or consumed in p.streams]
    sim.checker.is_disabled = True
    lease = sim.config.lease_duration_seconds
    for kind in sim.random.choices(BESIDE_FATAL, k=sim.random.randrange(3)):
        inject, draw = KINDS[kind], sim.random.getrandbits(32)
        sim.checker.note("fault", kind, "beside a fatal one")
        inject(FaultInjector(sim, draw), lease)
        await asyncio.sleep(lease / 2 * sim.random.random())
    fault()
    await asyncio.sleep(lease)
    for process in ending:
        process.end_faults()
    for _ in range(int(FATAL_SECONDS)):
        await asyncio.sleep(1)
        if not any(process.alive for process in ending):
            break
    sim.checker.is_disabled = False
    for process in ending:
        if process.alive or not isinstance(process.ended_with, errors):
            text = f"{process.name} ended with {process.ended_with!r}"
            sim.checker.fail("fatal", text)


AT_REST: dict[str, Ending] = {
    phase.__name__: phase for phase in (nothing, takeover, reshard, pair, outage, cost)
}
LATENCY: dict[str, Ending] = {latency.__name__: latency}
FATAL: dict[str, Ending] = {
    phase.__name__: phase
    for phase in (table_deleted, table_recreated, table_restored, stream_recreated)
}
