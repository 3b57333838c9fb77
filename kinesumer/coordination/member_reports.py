"""Write the texts by which a client reports its state in its row.

The heartbeat's thread calls this module. The client's event loop counts meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.core.failures import FailureWindows, MinuteCounts
from kinesumer.core.load import LoadAverages, report_loads
from kinesumer.errors import PoisonRecordError
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.reports import StreamFailures
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import stream_name
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.wire.reports import (
    LEAST_ENTRIES,
    failures_text,
    incidents_text,
    load_text,
    max_entries,
)


class MemberReports:
    """The incidents, the failures and the load of a client, for its heartbeats."""

    def __init__(
        self, context: ClientContext, owned_shards: Callable[[], Iterable[OwnedShard]]
    ) -> None:
        self._context = context
        self._owned_shards = owned_shards
        self._averages: LoadAverages[OwnedShard] = LoadAverages()
        self._failures: FailureWindows[OwnedShard] = FailureWindows()
        self._skipped = MinuteCounts()

    def __call__(self, member: MemberRow, room: int) -> dict[str, str]:
        """Return the texts for a member's row by attribute, which fit into ``room``.

        ``room`` is the number of bytes that cost no further write unit. The first
        incident, the first stream with failures, and a load for plans by load are
        written in any case.
        """
        shards = list(self._owned_shards())
        self._note_stopped(shards)
        incidents = incidents_text(
            self._context.incidents.current(), member.streams, room
        )
        room -= len(incidents.encode())
        failures = failures_text(self._failing(shards), member.streams, room)
        room -= len(failures)
        load = self._load(shards, member, room)
        return {"incidents": incidents, "failures": failures, "load": load}

    def _note_stopped(self, shards: Sequence[OwnedShard]) -> None:
        for owned in shards:
            # The rows tell of poison records.
            if not isinstance(owned.stopped_by, PoisonRecordError | None):
                # The text of an error of user code may contain a record's data.
                name = type(owned.stopped_by).__name__
                kind, at = IncidentKind.STOPPED_SHARD, owned.key._asdict()
                self._context.incidents.note(kind, **at, error=name)
            if owned.held_by is not None:
                self._context.incidents.note(
                    IncidentKind.HELD_SHARD,
                    **owned.key._asdict(),
                    error=type(owned.held_by).__name__,
                )

    def _failing(self, shards: Sequence[OwnedShard]) -> list[StreamFailures]:
        readings = {o: o.outcomes.read(o.key, o.progress.done) for o in shards}
        now, wall = self._context.clock.now(), self._context.clock.wall()
        failing = self._failures.update(readings, now, wall)
        skipped = {arn: new.skipped for arn, new in self._failures.added.items()}
        for arn, count in self._skipped.add(skipped, now).items():
            logger.warning(
                "stream %s: %d records that can't be decoded were skipped within a "
                "minute",
                stream_name(arn),
                count,
                extra={"stream": stream_name(arn), "skipped": count},
            )
        return failing

    def _load(self, shards: Sequence[OwnedShard], member: MemberRow, room: int) -> str:
        # A shard that is given up is no longer read, so its last load stays valid.
        meters = {owned: owned.load for owned in shards if not owned.revoked}
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
