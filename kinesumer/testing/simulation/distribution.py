"""An administrator's change of the strategy by which a stream distributes records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.testing.simulation.faults import FaultInjector, Inject


def auto(self: FaultInjector, _seconds: float) -> None:
    """Switch a stream from its partition keys to AUTO, or back.

    With AUTO, producers leave out half of the keys.
    """
    name = self.random.choice(self.sim.streams)
    stream = self.sim.kinesis.stream(name)
    stream.routes_by_key = not stream.routes_by_key
    strategy = "USER_PARTITION_KEY" if stream.routes_by_key else "AUTO"
    self.sim.checker.note("strategy", name, strategy)


DISTRIBUTION_KINDS: dict[str, Inject] = {"auto": auto}
