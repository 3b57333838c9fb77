"""Faults that make an open shard look as if it had ended, or the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model.positions import Position
from kinesumer.testing.simulation.faults import MAX_OPEN_SHARDS

if TYPE_CHECKING:
    from kinesumer.testing.simulation.faults import FaultInjector, Inject

NO_ITERATOR_SHARE = 0.3


def no_iterator(self: FaultInjector, seconds: float) -> None:
    """Let pages and events lack an iterator, a continuation and children."""
    for process in self.sim.living:
        network = process.networks["kinesis"]
        network.set(no_iterator=NO_ITERATOR_SHARE)
        self._later(seconds, network.clear, "no_iterator")


def seek_to_end(self: FaultInjector, _seconds: float) -> None:
    """Split a shard, and seek it to its ending number, as other consumers store it."""
    name = self.random.choice(self.sim.streams)
    stream = self.sim.kinesis.stream(name)
    parent = self.random.choice(stream.open)
    shard_id, first, last, *_ = parent.shard
    if len(stream.open) >= MAX_OPEN_SHARDS or last - first < 2:
        return
    self.sim.split(name, shard_id)
    to = Position(parent.shard.ending_sequence_number or "")
    self._start_operator(f"seek {to.text}", lambda o: o.seek(name, to, shard_id))


END_KINDS: dict[str, Inject] = {"no_iterator": no_iterator, "seek_to_end": seek_to_end}
