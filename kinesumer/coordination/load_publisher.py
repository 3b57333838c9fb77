"""Tell the leader the load of a client's shards, as text in the client's row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.core.load import LoadAverages
from kinesumer.core.load_reports import report_loads
from kinesumer.wire import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.rows import MemberRow
    from kinesumer.ports import Clock


class LoadPublisher:
    """Averages the load of the owned shards between heartbeats.

    The heartbeat's thread calls it. The client's event loop counts meanwhile.
    """

    def __init__(
        self, clock: Clock, owned_shards: Callable[[], Iterable[OwnedShard]]
    ) -> None:
        self._clock = clock
        self._owned_shards = owned_shards
        self._averages: LoadAverages[OwnedShard] = LoadAverages()

    def __call__(self, member: MemberRow) -> str:
        """Return the text for the next heartbeat of a member."""
        # A shard that is given up is no longer read, so its last load stays valid.
        meters = {o: o.load for o in self._owned_shards() if not o.revoked}
        averages = self._averages.update(meters, self._clock.now())
        known = {
            (o.key, o.row.first_hash): load
            for o, load in averages.items()
            if o.key.stream_arn in member.streams
        }
        reports = report_loads(known, loads.max_entries(member, len(known)))
        return loads.load_text(reports, member.streams)
