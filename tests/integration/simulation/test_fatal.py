"""What nobody can go on after: each client ends with the error that says why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import (
    ClientIdInUseError,
    FatalError,
    StateStoreMissingError,
    StateStoreRecreatedError,
    StreamMissingError,
    StreamRecreatedError,
)
from tests.integration.simulation.scenario import simulate, steady

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.simulation.simulation import Simulation


def all_clients_end(
    fault: Callable[[Simulation], None], *errors: type[FatalError], within: float
) -> None:
    """Run a group into a fault that nobody survives."""

    async def play(sim: Simulation) -> None:
        await steady(sim)
        sim.producing = False
        sim.expects_fatal = True
        await asyncio.sleep(1)
        sim.checker.is_disabled = True
        fault(sim)
        await asyncio.sleep(within)
        for process in sim.processes:
            assert not process.alive, f"{process.name} goes on"
            assert isinstance(process.ended_with, errors), process.ended_with

    simulate(play, shards=(4,))


def test_a_table_that_is_deleted_ends_every_client() -> None:
    all_clients_end(
        lambda sim: sim.store.delete_table(),
        StateStoreMissingError,
        StateStoreRecreatedError,
        within=30,
    )


def test_a_table_made_anew_ends_every_client() -> None:
    all_clients_end(
        lambda sim: sim.store.create_table("table-2"),
        StateStoreRecreatedError,
        within=60,
    )


def test_a_stream_that_is_deleted_ends_every_client() -> None:
    all_clients_end(
        lambda sim: sim.kinesis.delete_stream("stream-0"),
        StreamMissingError,
        within=60,
    )


def remake_stream(sim: Simulation) -> None:
    sim.kinesis.delete_stream("stream-0")
    sim.kinesis.create_stream("stream-0", 4)


def test_a_stream_made_anew_ends_every_client() -> None:
    all_clients_end(remake_stream, StreamRecreatedError, within=60)


def test_a_stream_made_anew_while_nobody_consumes_is_refused() -> None:
    async def play(sim: Simulation) -> None:
        await steady(sim)
        sim.producing = False
        for process in sim.processes:
            process.leave()
        await asyncio.sleep(20)
        sim.expects_fatal = True
        remake_stream(sim)
        process = sim.start_process()
        await asyncio.sleep(30)
        assert isinstance(process.ended_with, StreamRecreatedError)

    simulate(play, shards=(4,))


def test_a_table_restored_from_a_backup_ends_every_client() -> None:
    """A backup brings old checkpoints and epochs back, in a table with another id."""

    async def play(sim: Simulation) -> None:
        await steady(sim)
        backup = sim.store.snapshot()
        await asyncio.sleep(60)
        sim.producing = False
        sim.expects_fatal = sim.checker.is_disabled = True
        sim.store.restore(backup, "table-2")
        await asyncio.sleep(60)
        for process in sim.processes:
            assert isinstance(process.ended_with, StateStoreRecreatedError)

    simulate(play, shards=(4,))


def test_a_second_live_process_with_one_id_gets_an_error_and_the_first_goes_on() -> (
    None
):
    async def play(sim: Simulation) -> None:
        await steady(sim)
        first = sim.processes[0]
        second = sim.start_process(first.client_id)
        await asyncio.sleep(30)
        assert isinstance(second.refused, ClientIdInUseError)
        assert first.alive

    sim = simulate(play)
    assert not sim.checker.dead


def test_a_restarted_process_with_its_old_id_takes_its_old_place() -> None:
    async def play(sim: Simulation) -> None:
        await steady(sim)
        victim = sim.processes[1]
        victim.machine.kill()
        sim.start_process(victim.client_id)
        await asyncio.sleep(30)
        moved = {
            trace.shard_id
            for trace in sim.checker.shards.values()
            if len({t.machine.name for t in trace.ownerships.values()}) > 1
            and trace.ownerships[max(trace.ownerships)].claimed_at > 20
            and trace.ownerships[max(trace.ownerships)].machine.name != victim.client_id
        }
        assert not moved

    simulate(play, static_ids=True)


@pytest.mark.parametrize("step", range(0, 60, 4))
def test_a_process_killed_at_any_step_of_its_start_blocks_nobody(step: int) -> None:
    async def play(sim: Simulation) -> None:
        doomed = sim.start_process()
        doomed.machine.after_steps(step, doomed.machine.kill)
        await asyncio.sleep(0.3)
        await steady(sim, 40)
        assert len(sim.checker.shards) == 4
        assert all(t.ownerships for t in sim.checker.shards.values())

    simulate(play, members=1, shards=(4,))
