"""Faults of the KMS keys with which streams are encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.testing.simulation.faults import FaultInjector, Inject


def key(self: FaultInjector, seconds: float) -> None:
    """Let KMS refuse the use of a stream's key. Other streams are not affected."""
    stream = self.sim.kinesis.stream(self.random.choice(self.sim.streams))
    stream.key_fails_until = self.sim.loop.real + seconds
    for shard in stream.shards.values():
        shard.changed()


KEY_KINDS: dict[str, Inject] = {"key": key}
