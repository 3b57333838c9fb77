"""A fault of user code: records that kill each process that gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.testing.simulation.invariants.deadly import RecordKey

if TYPE_CHECKING:
    from kinesumer.testing.simulation.faults import FaultInjector, Inject


def poison(self: FaultInjector, _seconds: float) -> None:
    """Put a record that kills each process that gets it."""
    sim = self.sim
    name = self.random.choice(sim.streams)
    shard_id, number, parts = sim.put(name)
    part = self.random.choice(parts)
    for app in sim.apps:
        app.deadly.add(RecordKey(sim.arn(name), shard_id, number, part))


POISON_KINDS: dict[str, Inject] = {"poison": poison}
