"""Which shards may be read by now: a child after all its parents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model import Start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model import Shard


class Descent:
    """The shards of one stream, those that were begun, and those that have ended.

    From the latest record on, only shards that are open at the start and their
    descendants count. What is born later is read from its beginning.
    """

    def __init__(self, listing: Iterable[Shard], start: Start) -> None:
        self._starts = {
            shard: start
            for shard in listing
            if not (shard.closed and start == Start.LATEST)
        }
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    def ready(self) -> list[tuple[Shard, Start]]:
        """Return the shards that may be begun now, each once, and where to begin."""
        known = {shard.shard_id for shard in self._starts}
        found = [
            (shard, start)
            for shard, start in self._starts.items()
            if shard.shard_id not in self._begun
            and self._ended.issuperset(known.intersection(shard.parents))
        ]
        self._begun.update(shard.shard_id for shard, _ in found)
        return found

    def end(self, shard_id: str, children: Iterable[Shard]) -> None:
        """Note that a shard was read to its end, and which children it has."""
        self._ended.add(shard_id)
        known = {shard.shard_id for shard in self._starts}
        for child in children:
            if child.shard_id not in known:
                self._starts[child] = Start.TRIM_HORIZON
