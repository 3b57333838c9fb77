"""Make tests of coroutines that run in a simulated group, in virtual time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from functools import wraps
from random import Random
from typing import Any

import pytest

from kinesumer.testing.simulation.convergence import raise_violation
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.invariants.base import ViolationError
from kinesumer.testing.simulation.invariants.liveness import (
    LivenessMonitor,
    LossLogHandler,
)
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation

Play = Callable[..., Coroutine[Any, Any, None]]
Test = Callable[..., None]


def in_virtual_time(play: Play) -> Test:
    """Run a test in a loop in virtual time, which it gets."""

    def run(**values: Any) -> None:
        loop = VirtualLoop(Random(0))
        loop.run(play(loop, **values))

    return _as_test(run, play, given=1)


def simulated(seed: int = 1, **scenario: Any) -> Callable[[Play], Test]:
    """Run a test in a group without clock errors and random faults.

    The test gets the simulation. Those of its parameters that are fields of a scenario
    change the scenario, and ``seed`` the seed.
    """

    def decorate(play: Play) -> Test:
        def run(**values: Any) -> None:
            fields = {name: values[name] for name in values if hasattr(Scenario, name)}
            changed = Scenario(**{"drift": 0.0, **scenario, **fields})
            sim = Simulation(changed, values.get("seed", seed))
            sim.run(lambda sim: play(sim, **values))
            assert not sim.loop.failures

        return _as_test(run, play, given=1)

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

        return _as_test(run, play, given=2)

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


def _as_test(run: Test, play: Play, *, given: int) -> Test:
    """Return a test with the parameters of a coroutine function but the first ones."""
    test = wraps(play)(run)
    signature = inspect.signature(play)
    left = list(signature.parameters.values())[given:]
    vars(test)["__signature__"] = signature.replace(parameters=left)
    del vars(test)["__wrapped__"]
    return test
