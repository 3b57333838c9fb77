"""Replay simulated runs with drawn faults in each model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kinesumer.testing.simulation.faults import KINDS
from kinesumer.testing.simulation.run import Outcome, draw_run, parse_rates, play
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Simulation
from tests.system.model.checker import replay
from tests.system.model.member_traces import LeaseRecorder, PlanRecorder
from tests.system.model.traces import ShardRecorder

SCENARIO = Scenario("traced", shards=(3,), drift=0.0)
# The model's clocks run equally fast, its records don't expire, and its seeks reach all
# shards.
LEFT_OUT = {"drift", "expire", "seek"}
FAULTS = ",".join(sorted(KINDS.keys() - LEFT_OUT))
MINUTES = 5.0


class Traces(NamedTuple):
    """What happened in a run, for each model."""

    shards: ShardRecorder
    plans: PlanRecorder
    leases: LeaseRecorder

    @classmethod
    def of(cls, sim: Simulation) -> Traces:
        """Record a simulation from its start."""
        return cls(ShardRecorder(sim), PlanRecorder(sim), LeaseRecorder(sim))


def violations(seed: int) -> Iterator[str]:
    """Yield each model of which a drawn run is none, with the violated assertion."""
    run = draw_run(SCENARIO, seed, MINUTES, parse_rates(FAULTS))
    sim = Simulation(SCENARIO, seed)
    traces = Traces.of(sim)
    play(sim, Outcome(run))
    traces.shards.finish()
    for recorder in traces:
        if violation := replay(recorder.replacing()):
            yield f"{recorder.model}: {violation}"
