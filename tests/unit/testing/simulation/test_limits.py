"""Test the limits of simulated links, tables, streams and threads, and liveness."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable

import pytest

from kinesumer.coordination import pauses
from kinesumer.core.claims import ClaimDecision
from kinesumer.errors import SourceUnavailableError, StoreUnavailableError
from kinesumer.model.rows import Key
from kinesumer.model.streams import Start
from kinesumer.ports import AllOf, Write
from kinesumer.testing.memory import MemoryKinesis, MemoryStore
from kinesumer.testing.simulation import final_phases
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.final_phases import latency, pair
from kinesumer.testing.simulation.invariants.liveness import LivenessMonitor
from kinesumer.testing.simulation.machine import SharedLink
from kinesumer.testing.simulation.network import (
    LinkedSource,
    LinkedStore,
    NetworkConditions,
)
from kinesumer.testing.simulation.simulation import Operator, Simulation
from tests.support.checked_trace import Trace
from tests.support.simulated import on_virtual_loop, settled_group
from tests.support.world import SHARD

# --- the worlds ---------------------------------------------------------------------


@on_virtual_loop
async def test_answers_share_a_link(loop: VirtualLoop) -> None:
    arrivals: list[tuple[str, float]] = []
    link = SharedLink(loop, 100.0)
    link.carry(100, lambda: arrivals.append(("first", loop.real)))
    await asyncio.sleep(0.5)
    link.carry(100, lambda: arrivals.append(("second", loop.real)))
    dropped = link.carry(1000, lambda: arrivals.append(("dropped", loop.real)))
    await asyncio.sleep(0.3)
    link.drop(dropped)
    assert link.bytes_in_flight == 200
    await asyncio.sleep(1.4)
    assert link.bytes_in_flight == 0
    assert [name for name, _ in arrivals] == ["first", "second"]
    assert [at for _, at in arrivals] == pytest.approx([1.6, 2.1])


@on_virtual_loop
async def test_a_link_that_gets_slower_delays_what_is_under_way(
    loop: VirtualLoop,
) -> None:
    arrivals: list[float] = []
    link = SharedLink(loop, 100.0)
    link.carry(100, lambda: arrivals.append(loop.real))
    await asyncio.sleep(0.5)
    link.set_rate(10.0)
    await asyncio.sleep(4.9)
    assert not arrivals
    link.set_rate(0.0)
    await asyncio.sleep(0.1)
    assert arrivals == pytest.approx([5.4])


@on_virtual_loop
async def test_a_page_that_takes_too_long_is_thrown_away(loop: VirtualLoop) -> None:
    kinesis = MemoryKinesis(loop.services)
    kinesis.create_stream("s")
    kinesis.put("s", b"x" * 75_000, "key")
    link = SharedLink(loop, 3000.0)
    network = NetworkConditions()
    source = LinkedSource(loop.services, random.Random(0), network, kinesis, "s", link)
    iterator = await source.get_iterator(SHARD, Start.TRIM_HORIZON)
    with pytest.raises(SourceUnavailableError, match="while the answer arrived"):
        await source.get_records(iterator, 10)
    assert loop.real == pytest.approx(30.0, abs=0.1)
    assert link.bytes_in_flight == 0
    link.set_rate(4000.0)
    page = await source.get_records(iterator, 10)
    assert len(page.records) == 1


@on_virtual_loop
async def test_an_answer_to_a_blocked_thread_is_late(loop: VirtualLoop) -> None:
    machine = loop.machine("a")
    thread = machine.thread("store")
    table, no_checker = MemoryStore(loop.services), Trace().checker
    link = (machine, random.Random(0), NetworkConditions())
    blocked = LinkedStore(*link, table, no_checker)
    free = LinkedStore(*link, table, no_checker, thread)
    asked = [loop.spawn(machine, store.verify()) for store in (blocked, free)]
    loop.at_real(0.001, machine.block, 6.0)
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(done[0], StoreUnavailableError)
    assert done[1] == "table-1"


@on_virtual_loop
async def test_nothing_else_of_a_thread_runs_while_a_task_blocks_it(
    loop: VirtualLoop,
) -> None:
    machine = loop.machine("a")
    thread = machine.thread("heart")
    seen: dict[str, list[float]] = defaultdict(list)

    async def block() -> None:
        for _ in range(3):
            await machine.busy(2.0)
            seen["blocking"].append(loop.real)

    async def tick(name: str) -> None:
        for _ in range(2):
            await asyncio.sleep(1.5)
            seen[name].append(loop.real)

    await asyncio.wait(
        [
            loop.spawn(machine, block()),
            loop.spawn(machine, tick("task")),
            loop.spawn(thread, tick("heart")),
        ]
    )
    assert seen == {"blocking": [2, 4, 6], "heart": [1.5, 3], "task": [7.5, 9]}


# --- the predicates -----------------------------------------------------------------


@settled_group()
async def test_a_group_without_trouble_breaks_no_promise(
    sim: Simulation, monitor: LivenessMonitor
) -> None:
    sim.put_everywhere()
    await asyncio.sleep(monitor.backlog_seconds())
    monitor.check_backlog()
    await monitor.check_at_rest()
    await asyncio.sleep(100)


@settled_group(r"L7 .* isn't done in time")
async def test_l7_a_backlog_that_nobody_reads(
    sim: Simulation, monitor: LivenessMonitor
) -> None:
    for process in sim.processes:
        process.user_code.hang()
    sim.put_everywhere()
    await asyncio.sleep(monitor.backlog_seconds())
    monitor.check_backlog()


def buffered(sim: Simulation, size: int) -> None:
    """Let a client count with some more bytes in its buffer."""
    assert sim.processes[0].group is not None
    sim.processes[0].group.buffer.used += size


def degraded(sim: Simulation) -> None:
    assert sim.processes[0].group is not None
    sim.processes[0].group.set_state("degraded")


def dead(sim: Simulation) -> None:
    """Declare a client dead while it beats."""
    key = Key("member#app", sim.processes[0].client_id)
    sim.store.write_now(Write(key, AllOf(), {"dead": True}))


def repeated(sim: Simulation) -> None:
    sim.checker.redelivered += 1


UPSETS: dict[str, Callable[[Simulation], object]] = {
    "L8 .* holds": lambda sim: buffered(sim, 81 * 2**20),
    "L8 .* is sent 23592960 bytes": lambda sim: sim.processes[0].line.carry(
        30 * 2**20, lambda: None
    ),
    "L10 .* without cause": degraded,
    "L11 .* without cause": dead,
    "L12": repeated,
}


@pytest.mark.parametrize(("violates", "upset"), UPSETS.items(), ids=UPSETS)
def test_a_client_that_is_upset_without_a_fault_violates(
    violates: str, upset: Callable[[Simulation], object]
) -> None:
    @settled_group(violates)
    async def play(sim: Simulation, monitor: LivenessMonitor) -> None:
        upset(sim)
        await asyncio.sleep(5)
        monitor.check_repeats()

    play()


@settled_group(r"L8 .* never releases 1 bytes")
async def test_l8_memory_that_is_never_given_back(
    sim: Simulation, monitor: LivenessMonitor
) -> None:
    buffered(sim, 1)
    await monitor.check_at_rest()


@pytest.fixture
def no_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = ClaimDecision([], set(), [], [])
    monkeypatch.setattr("kinesumer.core.claims.decide_claims", lambda *_: nothing)


@pytest.mark.usefixtures("no_claims")
@settled_group(r"L9 .* has had no owner")
async def test_l9_a_shard_that_nobody_claims(
    sim: Simulation, _: LivenessMonitor
) -> None:
    await asyncio.sleep(60)


@settled_group(members=1, shards=(3,), config={"max_shards": 1})
async def test_l9_a_paused_shard_keeps_its_place_in_its_client(
    sim: Simulation, _: LivenessMonitor
) -> None:
    owned = next(iter(sim.processes[0].owned_shards()))
    where = "stream-0", owned.key.shard_id
    Operator(sim, "pause", lambda o: pauses.pause(o.context, *where, "test"))
    await asyncio.sleep(200)
    assert not list(sim.processes[0].owned_shards())


@settled_group("L14", members=1, shards=(2,), apps=2)
async def test_l14_apps_that_are_slow_together(
    sim: Simulation, _: LivenessMonitor
) -> None:
    sim.kinesis.reads_per_second = 1
    await latency(sim)


@settled_group("L16")
async def test_l16_two_events_that_delay_records_for_long(
    sim: Simulation, _: LivenessMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(sim: Simulation) -> None:
        for process in sim.living:
            process.kinesis_network.set(lost=1.0)

    monkeypatch.setattr(final_phases, "DISTURBANCES", {"join": cut_off})
    await pair(sim)


@settled_group()
async def test_a_client_that_is_blocked_while_it_leaves_may_be_declared_dead(
    sim: Simulation, monitor: LivenessMonitor
) -> None:
    process = sim.processes[0]
    process.leaving = True
    process.heartbeat_thread.kill()
    process.machine.block(60)
    await asyncio.sleep(20)
    [row] = [r for r in sim.store.rows("member#app") if r["sk"] == process.client_id]
    assert row["dead"]
