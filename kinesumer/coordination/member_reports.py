"""Write the texts by which a client reports its state in its row.

The heartbeat's thread calls this module. The client's event loop counts meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.core.load import LoadAverages
from kinesumer.core.load_reports import report_loads
from kinesumer.wire.incidents import incidents_text
from kinesumer.wire.loads import LEAST_ENTRIES, load_text, max_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.rows import MemberRow
    from kinesumer.runtime.context import ClientContext


class MemberReports:
    """The incidents of a client, and the load of its shards, for its heartbeats."""

    def __init__(
        self, context: ClientContext, owned_shards: Callable[[], Iterable[OwnedShard]]
    ) -> None:
        self._context = context
        self._owned_shards = owned_shards
        self._averages: LoadAverages[OwnedShard] = LoadAverages()

    def __call__(self, member: MemberRow, room: int) -> dict[str, str]:
        """Return the texts for a member's row by attribute, which fit into ``room``.

        ``room`` is the number of bytes that cost no further write unit. Plans by load
        get a load in any case.
        """
        current = self._context.incidents.current()
        incidents = incidents_text(current, member.streams, room)
        load = self._load(member, room - len(incidents.encode()))
        return {"incidents": incidents, "load": load}

    def _load(self, member: MemberRow, room: int) -> str:
        # A shard that is given up is no longer read, so its last load stays valid.
        meters = {o: o.load for o in self._owned_shards() if not o.revoked}
        averages = self._averages.update(meters, self._context.clock.now())
        known = {
            (o.key, o.row.first_hash): load
            for o, load in averages.items()
            if o.key.stream_arn in member.streams
        }
        streams = len({key.stream_arn for key, _ in known})
        entries = max_entries(room, streams, len(known))
        if self._context.config.assignor == "load":
            entries = max(entries, LEAST_ENTRIES)
        elif entries < streams:  # each stream takes an entry
            return ""
        return load_text(report_loads(known, entries), member.streams)
