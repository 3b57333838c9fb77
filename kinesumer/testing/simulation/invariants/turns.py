"""Check that the shards of a client take turns, and that turns are bounded (L15)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kinesumer.core.turns import TURN_SECONDS
from kinesumer.runtime.clock import MAX_YIELD_SECONDS
from kinesumer.testing.simulation.invariants.base import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.records import Record, Source
    from kinesumer.testing.simulation.invariants.base import Checker
    from kinesumer.testing.simulation.invariants.calls import Calls
    from kinesumer.testing.simulation.machine import Machine


# A client pauses for less than this between two turns. If it pauses for longer, it
# waits for its lease, and handlers notice at different times that it is valid again.
MOST_PAUSE_SECONDS = MAX_YIELD_SECONDS + TURN_SECONDS


class Turns:
    """Checks each client's turns, from its first record on.

    A shard waits if user code hasn't got all of its records that were read, and has
    none of them at present. Since it waits, each other shard gets records for the time
    of one turn at most.
    """

    def __init__(self, checker: Checker, calls: Calls) -> None:
        self.most_seconds = TURN_SECONDS
        self._checker, self._calls = checker, calls
        self._clients: dict[Machine, _Client] = {}

    def begin(
        self, machine: Machine, owned_shards: Callable[[], Iterable[OwnedShard]]
    ) -> None:
        """Forget a client's former turns, since it begins to consume."""
        self._clients[machine] = _Client(owned_shards)

    def delivered(self, machine: Machine, record: Record) -> None:
        """Check a record that user code gets."""
        client, source, now = self._clients.get(machine), record.source, machine.now()
        if client is None or source is None:
            return
        if self._calls.quiet_seconds(machine) > MOST_PAUSE_SECONDS:
            client.since.clear()
        waiting = [
            each
            for each in client.waiting()
            if not (each is source or self._calls.is_busy(machine, each.fence))
        ]
        for other in client.since.keys() - waiting:
            del client.since[other]
        for other in waiting:
            began = client.since.setdefault(other, {}).setdefault(source, now)
            if now - began > self.most_seconds + TOLERANCE:
                self._fail(machine, source, other, now - began)
        client.received[source] += 1
        client.failing.discard(source)

    def failed(self, machine: Machine, record: Record) -> None:
        """Record that user code failed, so that the shard waits for another try."""
        if machine in self._clients and record.source is not None:
            self._clients[machine].failing.add(record.source)

    def _fail(
        self, machine: Machine, source: Source, other: Source, seconds: float
    ) -> None:
        one, waiting = (f"{it.shard_id} of {it.stream}" for it in (source, other))
        text = f"{one} gets records for {seconds:.3f} s while {waiting} waits"
        self._checker.fail("L15", f"{machine.name}: {text}")


class _Client:
    def __init__(self, owned_shards: Callable[[], Iterable[OwnedShard]]) -> None:
        self._owned_shards = owned_shards
        self.received: Counter[Source] = Counter()
        self.failing: set[Source] = set()
        # For each shard that waits, when each other shard had its first record since.
        self.since: dict[Source, dict[Source, float]] = {}

    def waiting(self) -> list[Source]:
        """Return the shards that have records which user code hasn't got.

        Leave out those that wait for something else than their turn.
        """
        return [
            owned.source
            for owned in self._owned_shards()
            if not (owned.revoked or owned.row.deaths.counted)
            and owned.queued_records > self.received[owned.source]
            and owned.source not in self.failing
        ]
