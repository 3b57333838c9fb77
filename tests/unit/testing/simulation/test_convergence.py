"""Test that each check of convergence fails on a group that isn't settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kinesumer.model.rows import Key
from kinesumer.ports import AllOf, Write
from kinesumer.testing.simulation.convergence import check_settled, count_waiting
from kinesumer.testing.simulation.invariants.base import ViolationError
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation

SCENARIO = Scenario(members=2, shards=(4,))
THIRD = "shardId-000000000002"


def settle(upset: Callable[[Simulation], object]) -> None:
    """Let a group come to rest, disturb it, and check that it is settled."""

    async def play(sim: Simulation) -> None:
        await sim.start_all()
        for _ in range(50):
            sim.put("stream-0")
        await asyncio.sleep(30)
        upset(sim)
        check_settled(sim)

    Simulation(SCENARIO, seed=1).run(play)


def ranges(sim: Simulation, client_id: object, range_: str) -> None:
    """Change the range in a member's row."""
    sim.store.on_write.clear()
    key = Key("member#app", str(client_id))
    sim.store.write_now(Write(key, AllOf(), {"range": range_}))


def belongs_to_nobody_in_the_plan(sim: Simulation) -> None:
    trace = sim.checker.shards[sim.arn("stream-0"), THIRD]
    assert trace.row is not None
    trace.row = trace.row | {"owner": "somebody"}


def range_in_two_pieces(sim: Simulation) -> None:
    row = sim.store.rows("member#app")[1]
    first = str(row["range"]).partition(":")[2].rstrip("-")
    middle = "c" + 31 * "0"
    ranges(sim, row["sk"], f"0:{first}-{int(middle, 16) - 1:x},0:{middle}-")


def share_that_is_too_large(sim: Simulation) -> None:
    ranges(sim, "client-0", "0:0-")
    ranges(sim, "client-1", "")


@pytest.mark.parametrize(
    ("violation", "upset"),
    [
        ("L2 .* alive are", lambda sim: sim.processes[0].machine.kill()),
        ("L2 .* belongs to somebody", belongs_to_nobody_in_the_plan),
        ("L2 .* hasn't ended", lambda sim: sim.split("stream-0", THIRD)),
        ("L3 .* is never done", lambda sim: sim.put("stream-0")),
        ("I12 .* begins at", lambda sim: ranges(sim, "client-1", f"0:9{31 * '0'}-")),
        ("I12 .* isn't contiguous", range_in_two_pieces),
        (r"I12 .* \[0, 4\] shards, even .* \[2, 2\]", share_that_is_too_large),
    ],
)
def test_a_group_that_is_not_settled_violates(
    violation: str, upset: Callable[[Simulation], object]
) -> None:
    with pytest.raises(ViolationError, match=violation):
        settle(upset)


def test_a_group_at_rest_is_settled() -> None:
    settle(lambda sim: None)


def test_a_process_that_will_be_killed_or_leaves_does_not_stay() -> None:
    async def play(sim: Simulation) -> None:
        await sim.start_all()
        await asyncio.sleep(10)
        killed, leaving, left = sim.processes
        killed.kill()
        leaving.leave()
        assert killed.alive
        assert [p.stays for p in sim.processes] == [False, False, True]
        killed.end_faults()
        assert killed.stays
        assert left.stays

    Simulation(Scenario(members=3, shards=(4,)), seed=1).run(play)


def test_all_records_of_a_stream_that_no_client_has_synced_are_waiting() -> None:
    async def play(sim: Simulation) -> int:
        starting = asyncio.create_task(sim.start_all())
        await asyncio.sleep(0)
        for _ in range(50):
            sim.put("stream-0")
        waiting = count_waiting(sim)
        await starting
        return waiting

    assert Simulation(SCENARIO, seed=1).run(play) == 50
