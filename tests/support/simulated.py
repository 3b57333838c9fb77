"""Make tests of coroutines that run in a simulated group, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from dataclasses import fields
from typing import Any

import pytest

from kinesumer.testing.simulation.convergence import raise_violation
from kinesumer.testing.simulation.invariants.base import ViolationError
from kinesumer.testing.simulation.invariants.liveness import (
    LivenessMonitor,
    LossLogHandler,
)
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation
from tests.support.world import as_test, in_virtual_time

Play = Callable[..., Coroutine[Any, Any, None]]
Test = Callable[..., None]
FIELDS = {field.name for field in fields(Scenario)}


def on_virtual_loop(play: Play) -> Test:
    """Run a test in a loop in virtual time, which it gets."""
    test: Test = in_virtual_time(play, lambda loop: loop)
    return test


def simulated_group(seed: int = 1, **scenario: Any) -> Callable[[Play], Test]:
    """Run a test in a group without clock errors and random faults.

    The test gets the simulation. Those of its parameters that are fields of a scenario
    change the scenario, and ``seed`` the seed.
    """

    def decorate(play: Play) -> Test:
        def run(**values: Any) -> None:
            of_test = {name: values[name] for name in FIELDS & values.keys()}
            changed = Scenario(**{"drift": 0.0, **scenario, **of_test})
            sim = Simulation(changed, values.get("seed", seed))
            sim.run(lambda sim: play(sim, **values))
            assert not sim.loop.failures

        return as_test(run, play)

    return decorate


def settled_group(violates: str = "", **scenario: Any) -> Callable[[Play], Test]:
    """Let a group come to rest before a test disturbs it.

    The test gets the simulation and its monitor. It has to end with a violation that
    matches ``violates``, or with none.
    """

    def decorate(play: Play) -> Test:
        def run(**values: Any) -> None:
            changed = {"members": 2, "shards": (4,), "faults": "none", **scenario}
            sim = Simulation(Scenario(**changed), seed=1)
            monitor = LivenessMonitor(sim)
            violation = pytest.raises(ViolationError, match=violates or None)
            with violation if violates else nullcontext(), LossLogHandler([monitor]):
                sim.run(lambda sim: _upset(sim, monitor, play(sim, monitor, **values)))

        return as_test(run, play, given=2)

    return decorate


async def _upset(
    sim: Simulation, monitor: LivenessMonitor, upset: Awaitable[None]
) -> None:
    monitor.begin(())
    await sim.start_all()
    for _ in range(50):
        sim.put("stream-0")
    await asyncio.sleep(30)
    await upset
    raise_violation(sim)
