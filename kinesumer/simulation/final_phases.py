"""The last phase of a run: one more fault for a group at rest, and its checks.

Each run ends with one of these, so that liveness (L1, L4, L5), cost (I13) and the
faults that nobody survives are checked behind every history of faults.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from kinesumer.errors import (
    FatalError,
    StateStoreMissingError,
    StateStoreRecreatedError,
    StreamRecreatedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kinesumer.simulation.client import Process
    from kinesumer.simulation.simulation import Simulation
    from kinesumer.simulation.trace import ShardTrace

    Ending = Callable[[Simulation], Awaitable[None]]

TAKEOVER_SECONDS = {"client": 11.5, "leader": 13.5}
CHILD_SECONDS = 2.0
FATAL_SECONDS = 90.0
FLOW_SECONDS = 0.25
COST_MARGIN = 1.05
SLOWEST_CLOCK = 0.95
LATENCY_CALM_SECONDS = 60.0
LATENCY_SECONDS = 60.0
MAX_LATENCY_SECONDS = 0.6
"""Longest time from arrival to user code, for each app that consumes the stream."""


async def nothing(sim: Simulation) -> None:
    """Leave the group alone."""
    await asyncio.sleep(1)


async def takeover(sim: Simulation) -> None:
    """Kill a client, and check that its shards are delivered again in time (L1)."""
    flowing = _flow(sim)
    await asyncio.sleep(1)
    lead = _leader(sim)
    if lead is None:
        sim.checker.fail("L2", "whoever leads, by its row, isn't alive")
        return
    others = [process for process in sim.living if process is not lead]
    dies = "leader" if not others or sim.random.random() < 0.5 else "client"
    victim = lead if dies == "leader" else sim.random.choice(others)
    survivors = [process for process in sim.living if process is not victim]
    asked = {sim.arn(name) for process in survivors for name in process.streams}
    lost = [trace for arn, trace in _held_by(sim, victim) if arn in asked]
    sim.checker.note("killed at rest", dies, victim.name)
    died = sim.loop.real
    victim.machine.kill()
    if all(process.leaving for process in survivors):
        sim.start_process()  # nobody is left: another one is deployed
    most = (
        TAKEOVER_SECONDS[dies] / SLOWEST_CLOCK
        + 2 * sim.scenario.min_read_interval_seconds
    )
    await asyncio.sleep(most + 1)
    for trace in lost:
        started = trace.ownerships[max(trace.ownerships)].started_at
        if started is None or not died < started <= died + most:
            text = f"{trace.shard_id} of the {dies} that died at {died:.3f} s"
            sim.checker.fail("L1", f"{text} is delivered at {started}, not in {most} s")
    flowing.cancel()
    await asyncio.sleep(20)


async def reshard(sim: Simulation) -> None:
    """Reshard, and check that children are delivered soon after their parents (L4)."""
    flowing = _flow(sim)
    await asyncio.sleep(1)
    children = list(_reshard(sim))
    await asyncio.sleep(20 + 2 * sim.scenario.min_read_interval_seconds)
    for arn, child in children:
        ends = [sim.checker.shards[arn, parent].ended_at for parent in child.parents]
        if None in ends or 1 not in child.ownerships:
            sim.checker.fail(
                "L4", f"{child.shard_id} waits for {child.parents}: {ends}"
            )
            continue
        ended = max(end for end in ends if end is not None)
        started = child.ownerships[1].started_at
        most = CHILD_SECONDS + sim.scenario.min_read_interval_seconds
        if started is None or started > ended + most:
            text = f"{child.shard_id} is delivered at {started}"
            sim.checker.fail("L4", f"{text}, its parents ended at {ended:.3f} s")
    flowing.cancel()


def _reshard(sim: Simulation) -> Iterator[tuple[str, ShardTrace]]:
    for name in sim.streams:
        if not any(name in process.streams for process in sim.living):
            continue
        opened = [made.shard for made in sim.kinesis.stream(name).open]
        low = sim.random.randrange(len(opened))
        made: list[str] = []
        if low + 1 < len(opened) and sim.random.random() < 0.5:
            made = [sim.merge(name, opened[low].shard_id, opened[low + 1].shard_id)]
        elif opened[low].first_hash + 2 < opened[low].last_hash:
            made = sim.split(name, opened[low].shard_id)
        for shard_id in made:
            yield sim.arn(name), sim.checker.shards[sim.arn(name), shard_id]


async def outage(sim: Simulation) -> None:
    """Disconnect the store from all, and check that no session is fenced (L5)."""
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
    """Check that two minutes at rest cost as many writes as the protocol says (I13)."""
    sim.producing = False  # so much that commits would come early
    flowing = _flow(sim, 2.0)
    await asyncio.sleep(30)
    before, minutes = sim.store.usage.write_units, 2
    await asyncio.sleep(60 * minutes)
    units = (sim.store.usage.write_units - before) / minutes
    asked = {name for process in sim.living for name in process.streams}
    shards = sum(len(sim.kinesis.stream(name).open) for name in asked)
    beats = 60 * len(sim.living) / sim.config.heartbeat_interval_seconds
    most = beats + shards * 60 / sim.config.commit_interval_seconds
    if units > COST_MARGIN * most / SLOWEST_CLOCK:
        sim.checker.fail("I13", f"{units} write units a minute, {most} are due")
    flowing.cancel()


async def latency(sim: Simulation) -> None:
    """Check that each app receives 99 % of the records of a minute soon (L14)."""
    flowing = _flow(sim, 1.0)
    await asyncio.sleep(LATENCY_CALM_SECONDS)
    for app in sim.apps:
        app.checker.delays = []
    await asyncio.sleep(LATENCY_SECONDS)
    most = (
        MAX_LATENCY_SECONDS * len(sim.apps) + 2 * sim.scenario.min_read_interval_seconds
    )
    for app in sim.apps:
        delays = sorted(app.checker.delays or ())
        app.checker.delays = None
        late = delays[int(0.99 * len(delays))] if delays else math.inf
        if late > most:
            text = f"the 99th percentile of {app.scenario.app} is {late:.2f} s"
            sim.checker.fail(
                "L14", f"{text} with {len(sim.apps)} apps, not {most:.2f} s"
            )
    flowing.cancel()


def _flow(sim: Simulation, seconds: float = FLOW_SECONDS) -> asyncio.Task[None]:
    async def put() -> None:
        while True:
            sim.put_everywhere()
            await asyncio.sleep(seconds)

    return asyncio.get_running_loop().create_task(put())


def _leader(sim: Simulation) -> Process | None:
    (row,) = sim.store.rows(f"leader#{sim.scenario.app}")
    found = (p for p in sim.living if p.client_id == row["client_id"])
    return next(found, None)


def _held_by(sim: Simulation, process: Process) -> list[tuple[str, ShardTrace]]:
    return [
        (arn, trace)
        for (arn, _), trace in sim.checker.shards.items()
        if trace.row is not None and trace.row.get("owner_id") == process.client_id
    ]


# --- what nobody survives ---


async def table_deleted(sim: Simulation) -> None:
    """Delete the state store's table."""
    errors = (StateStoreMissingError, StateStoreRecreatedError)
    await _check_all_end(sim, sim.store.delete_table, *errors)


async def table_recreated(sim: Simulation) -> None:
    """Delete the table and create an empty one."""
    replace = sim.store.create_table
    await _check_all_end(sim, lambda: replace("table-2"), StateStoreRecreatedError)


async def table_restored(sim: Simulation) -> None:
    """Restore the table from a backup: old checkpoints and epochs come back."""
    backup = sim.store.snapshot()
    await asyncio.sleep(20)
    restore = sim.store.restore
    await _check_all_end(
        sim, lambda: restore(backup, "table-2"), StateStoreRecreatedError
    )


async def stream_recreated(sim: Simulation) -> None:
    """Delete a stream and create another with its name."""
    name = sim.streams[0]

    def recreate() -> None:
        sim.kinesis.delete_stream(name)
        sim.kinesis.create_stream(name, sim.scenario.shards[0])

    await _check_all_end(sim, recreate, StreamRecreatedError, asking=name)


async def _check_all_end(
    sim: Simulation,
    fault: Callable[[], Any],
    *errors: type[FatalError],
    asking: str | None = None,
) -> None:
    """Check that each client ends with the error that says why."""
    ending = [p for p in sim.living if asking is None or asking in p.streams]
    sim.checker.is_disabled = sim.expects_fatal = True
    fault()
    for _ in range(int(FATAL_SECONDS)):
        await asyncio.sleep(1)
        if not any(process.alive for process in ending):
            break
    sim.checker.is_disabled = False
    for process in ending:
        if process.alive or not isinstance(process.ended_with, errors):
            sim.checker.fail(
                "fatal", f"{process.name} ended with {process.ended_with!r}"
            )


AT_REST: dict[str, Ending] = {
    made.__name__: made for made in (nothing, takeover, reshard, outage, cost)
}
LATENCY: dict[str, Ending] = {latency.__name__: latency}
FATAL: dict[str, Ending] = {
    made.__name__: made
    for made in (table_deleted, table_recreated, table_restored, stream_recreated)
}
