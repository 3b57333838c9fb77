"""Faults of subscriptions and of registered consumers.

They do nothing in runs without fan-out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.testing.simulation.faults import KINDS
from kinesumer.testing.simulation.service_faults import RARE_KINDS, SERVICE_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesumer.testing.simulation.client import Process
    from kinesumer.testing.simulation.fan_out import LinkedEventStream
    from kinesumer.testing.simulation.faults import FaultInjector, Inject


def _readers(self: FaultInjector) -> Iterator[Process]:
    """Yield one process or all processes, and note that reads may fail there."""
    living = self.sim.living
    if living and self.random.random() < 0.7:
        living = [self.random.choice(living)]
    for process in living:
        process.kinesis_network.last_disturbed_at = self.sim.loop.real
        yield process


def _stream_fault(
    act: Callable[[LinkedEventStream, float], None], share: float = 0.7
) -> Inject:
    """Return a fault of a share of the open event streams."""

    def inject(self: FaultInjector, seconds: float) -> None:
        for process in _readers(self):
            for stream in list(process.subscriptions.open):
                if self.random.random() < share:
                    act(stream, seconds)

    return inject


def push_refuse(self: FaultInjector, seconds: float) -> None:
    """End the subscriptions of processes, and refuse new ones for a time."""
    for process in _readers(self):
        process.subscriptions.refused_until = self.sim.loop.real + seconds
        for stream in list(process.subscriptions.open):
            stream.end_early()


def deregister(self: FaultInjector, _seconds: float) -> None:
    """Deregister the app's consumer of a stream. A client registers it again."""
    if not self.sim.scenario.fan_out:
        return
    # A client without fallback ends, and its supervisor starts it again.
    self.sim.was_deregistered = True
    for process in self.sim.living:
        process.kinesis_network.last_disturbed_at = self.sim.loop.real
    name = self.random.choice(self.sim.streams)
    self.sim.kinesis.deregister(name, self.sim.scenario.app)


SUBSCRIPTION_KINDS: dict[str, Inject] = {
    "push_cut": _stream_fault(lambda stream, _: stream.fail("cut")),
    "push_corrupt": _stream_fault(lambda stream, _: stream.fail("corrupt")),
    "push_end": _stream_fault(lambda stream, _: stream.end_early()),
    "push_exception": _stream_fault(lambda stream, _: stream.throw()),
    "push_stall": _stream_fault(lambda stream, seconds: stream.stall(seconds)),
    "push_refuse": push_refuse,
    "deregister": deregister,
}
EVERY_KIND = {
    **KINDS,
    **SERVICE_KINDS,
    **SUBSCRIPTION_KINDS,
    **RARE_KINDS,
}
