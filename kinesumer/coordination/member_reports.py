"""Report in a client's row whether it can read its streams, its failures and its load.

The heartbeat's thread writes the texts. The client's event loop counts meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.streams import OpenStream
from kinesumer.consuming.watchdog import REQUEST_SECONDS
from kinesumer.core.failures import FailureWindows, MinuteCounts
from kinesumer.core.load import LoadAverages, report_loads
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    KinesumerError,
    PoisonRecordError,
    ShardMissingError,
    TrimmedPositionError,
)
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.reports import StreamFailures
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import stream_name
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import timeout
from kinesumer.wire.reports import (
    LEAST_ENTRIES,
    failures_text,
    incidents_text,
    load_text,
    max_entries,
)

# The interval of checks. A sixth of the default of ``unreachable_after_seconds``, so
# that the state changes hardly later than configured.
PROBE_SECONDS = 5.0
# Errors that prove that Kinesis was reached.
REACHED_ERRORS = (
    ExpiredIteratorError,
    InvalidPositionError,
    ShardMissingError,
    TrimmedPositionError,
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
        incidents = self._context.incidents
        for owned in shards:
            # The rows tell of poison records.
            if not isinstance(owned.stopped_by, PoisonRecordError | None):
                # The text of an error of user code may contain a record's data.
                name = type(owned.stopped_by).__name__
                incidents.note(IncidentKind.STOPPED_SHARD, *owned.key, error=name)
            if owned.held_by is not None:
                name = type(owned.held_by).__name__
                incidents.note(IncidentKind.HELD_SHARD, *owned.key, error=name)

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


class Reachability:
    """Sets a client's state to "degraded" while reads of a stream fail.

    The leader then moves the client's shards to others. After that the client no longer
    reads the failing stream, so it probes the stream to see when reads work again.
    """

    def __init__(
        self,
        context: ClientContext,
        streams_by_use: Callable[[], tuple[list[OpenStream], list[OpenStream]]],
        set_state: Callable[[str], None],
    ) -> None:
        """``streams_by_use`` returns those of owned shards, and the others."""
        self._context = context
        self._streams_by_use, self._set_state = streams_by_use, set_state
        self._is_degraded = False
        # The ARNs of the streams that were unreachable at the last check.
        self._noted: set[str] = set()

    async def run(self) -> None:
        """Check every few seconds until cancelled."""
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            await self._check()

    async def _check(self) -> None:
        _, idle = self._streams_by_use()
        waiting = [stream for stream in idle if stream.failing is not None]
        if self._is_degraded:
            await asyncio.gather(*(self._probe(stream) for stream in waiting))
        for stream in waiting:
            if not self._is_unreachable(stream):
                # No reader of this client repeats these reads, so no success can end
                # the failure.
                stream.failing = None
        reading, _ = self._streams_by_use()
        streams = (*reading, *waiting)
        unreachable = [stream for stream in streams if self._is_unreachable(stream)]
        self._note({stream.arn for stream in unreachable})
        if bool(unreachable) != self._is_degraded:
            self._change([stream.label for stream in unreachable])

    def _note(self, arns: set[str]) -> None:
        incidents, kind = self._context.incidents, IncidentKind.UNREACHABLE
        for arn in self._noted - arns:
            incidents.resolve(kind, stream_arn=arn)
        for arn in arns - self._noted:
            incidents.note(kind, stream_arn=arn)
        self._noted = arns

    def _is_unreachable(self, stream: OpenStream) -> bool:
        if stream.failing is None:
            return False
        since, until, *_ = stream.failing
        return until - since > self._context.config.unreachable_after_seconds

    def _change(self, unreachable: list[str]) -> None:
        self._is_degraded = bool(unreachable)
        if unreachable:
            logger.error(
                "can't read %s: the shards move to other clients",
                ", ".join(unreachable),
                extra={"client_id": self._context.client_id, "objects": unreachable},
            )
        else:
            logger.warning(
                "all streams can be read again",
                extra={"client_id": self._context.client_id},
            )
        self._set_state("degraded" if unreachable else "up")

    async def _probe(self, stream: OpenStream) -> None:
        """Repeat the failed read, to find out whether it works again."""
        assert stream.failing is not None
        *_, shard_id, after = stream.failing
        source = stream.source
        try:
            async with source.connection(), timeout(REQUEST_SECONDS):
                iterator = await source.get_iterator(shard_id, after)
                await source.get_records(iterator, limit=1)  # without reserved memory
        except REACHED_ERRORS:
            pass
        except TimeoutError:
            return
        except KinesumerError as error:
            self._context.failure_log.record_failure(stream.label, error)
            return
        stream.failing = None
