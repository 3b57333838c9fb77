"""Rows against the listing of their stream: hash keys, parents, ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.admin import snapshot
from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.sampling import Presence, oldest_sequence_number, peek
from kinesumer.admin.shard_reads import PacedReader, for_each_stream
from kinesumer.coordination.shard_sync import check_identity
from kinesumer.core.lineage import is_complete, repairs
from kinesumer.errors import (
    SourceUnavailableError,
    StreamMissingError,
    StreamRecreatedError,
)
from kinesumer.model.positions import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.sampling import Peek
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.errors import KinesumerError
    from kinesumer.model.rows import ShardRow, StreamRow
    from kinesumer.model.streams import Shard, StreamInfo
    from kinesumer.ports import StateStore, StreamSource


class Contradiction(NamedTuple):
    """What contradicts what, and how bad that is."""

    shard_id: str
    severity: Severity
    text: str


def contradictions(
    rows: Sequence[ShardRow], listing: Sequence[Shard]
) -> Iterator[Contradiction]:
    """Tell where rows don't agree with a listing, or with each other."""
    listed = {shard.shard_id: shard for shard in listing}
    by_id = {row.key.shard_id: row for row in rows}
    for row in rows:
        shard = listed.get(row.key.shard_id)
        if shard is not None:
            yield from _against(row, shard)
        yield from _too_early(row, by_id)
    if rows and is_complete(listing):
        for missing in repairs(rows[0].key.stream_arn, rows, listing).create:
            if missing.ready:  # children of what is still read get theirs in time
                yield Contradiction(
                    missing.key.shard_id,
                    Severity.WARNING,
                    "has no row: a leader makes it at its next listing (30 s)",
                )


def _against(row: ShardRow, shard: Shard) -> Iterator[Contradiction]:
    shard_id = shard.shard_id
    if (row.first_hash, row.last_hash) != (shard.first_hash, shard.last_hash):
        text = "its row has other hash keys than the shard: positions may be of another"
        yield Contradiction(shard_id, Severity.CRITICAL, text)
    lacking = sorted(set(shard.parents) - row.parents)
    if lacking:
        text = f"its row doesn't name its parent {lacking[0]}: it may begin before that"
        yield Contradiction(shard_id, Severity.CRITICAL, text)
    if row.ended and not shard.closed:
        text = (
            "its row says that it is read to its end, but it is open: nobody reads it"
        )
        yield Contradiction(shard_id, Severity.CRITICAL, text)


def _too_early(row: ShardRow, rows: Mapping[str, ShardRow]) -> Iterator[Contradiction]:
    begun = row.ready or row.ended or row.position is not None
    for parent in sorted(row.parents):
        before = rows.get(parent)
        if begun and before is not None and not before.ended:
            text = f"has begun, though its parent {parent} isn't read to its end"
            yield Contradiction(row.key.shard_id, Severity.CRITICAL, text)


async def check_position(
    asking: PacedReader,
    source: StreamSource,
    row: ShardRow,
    listing: Sequence[Shard],
    info: StreamInfo,
) -> Verdict:
    """Return what is to be said of a row's position, also if it can't be asked."""
    if row.ended:
        return ENDED
    if row.position is None:
        listed = any(shard.shard_id == row.key.shard_id for shard in listing)
        return NOT_STARTED if listed else GONE
    number = row.position.sequence_number
    try:
        seen = await peek(asking, source, row.key, number)
        first = None
        if seen.found is Presence.THERE and seen.first != number:
            first = await oldest_sequence_number(asking, source, row.key)
    except SourceUnavailableError as error:
        return Verdict(UNCHECKED, Severity.WARNING, str(error))
    verdict = decide_verdict(row.position, seen, first)
    kept_since = info.now + 1 - info.retention_hours * 3600
    is_whole = verdict == EXPIRED and row.read_until > kept_since
    return QUIET if is_whole else verdict


class Verdict(NamedTuple):
    """A name for what was found, how bad it is, and the same in words."""

    name: str
    severity: Severity
    text: str = ""


UNCHECKED = "unchecked"


ENDED = Verdict("ended", Severity.NOTE)


NOT_STARTED = Verdict("not started", Severity.NOTE)


THERE = Verdict("there", Severity.NOTE)


QUIET = Verdict(
    "quiet",
    Severity.NOTE,
    "its record has expired, and no record after it has",
)


EXPIRED = Verdict(
    "expired",
    Severity.WARNING,
    "retention has passed its record: unless the shard was quiet then, records after "
    "it are lost; clients go on with the oldest that is left",
)


UNKNOWN = Verdict(
    "unknown",
    Severity.WARNING,
    "no record has this number, though older ones are there: it wasn't stored by "
    "reading; clients go on with the next one",
)


BEYOND = Verdict(
    "beyond the tip",
    Severity.CRITICAL,
    "it lies after all records of the shard: what arrives up to it won't be read; seek "
    "to where reading shall go on",
)


FOREIGN = Verdict(
    "refused",
    Severity.CRITICAL,
    "Kinesis says that it was never in this shard: clients stop there; seek to where "
    "reading shall go on",
)


GONE = Verdict(
    "gone",
    Severity.CRITICAL,
    "retention has passed the whole shard before it was read to its end",
)


PARTS = Verdict(
    "beyond the aggregate",
    Severity.CRITICAL,
    "its sub-sequence number is more than the aggregate at it holds",
)


def decide_verdict(
    position: Position, seen: Peek, oldest_sequence_number: str | None
) -> Verdict:
    """Return what a look at a position means.

    ``oldest`` is the first sequence number that the shard has left.
    """
    if seen.found is Presence.GONE:
        return GONE
    if seen.found is Presence.FOREIGN:
        return FOREIGN
    if seen.found is Presence.EXPIRED:
        return EXPIRED
    if seen.first == position.sequence_number:
        part = position.sub_sequence_number
        outside = part is not None and (seen.parts is None or part >= seen.parts)
        return PARTS if outside else THERE
    if oldest_sequence_number is None:
        return QUIET
    older = Position(oldest_sequence_number) < Position(position.sequence_number)
    if seen.first is None:
        return BEYOND if older else QUIET
    return UNKNOWN if older else EXPIRED


VERSION = 1


AGAIN_SECONDS = 1.0
"""Rows aren't read in one moment: a contradiction has to last."""


class Verification:
    """What is compared, and what was found so far."""

    def __init__(self, app: str, table: str, roles: Roles) -> None:
        self._app, self._table, self._roles = app, table, roles
        self._asking = PacedReader()
        self._streams: dict[str, dict[str, Any]] = {}

    async def run(self, clients: ClientFactory, store: StateStore) -> dict[str, Any]:
        """Compare all positions, and return the report. Raises KinesumerError."""
        found = await snapshot.take_known(store, self._app, self._table)
        rows = {stream.arn: stream for stream in found.streams}

        async def of_stream(arn: str, source: KinesisSource) -> None:
            self._streams[arn] = await self._of_stream(rows[arn], found, source, store)

        faults = await for_each_stream(clients, rows, of_stream, self._roles)
        for arn, error in faults.items():
            self._streams[arn] = _stream(arn, str(error), _severity(error))
        streams = [self._streams[arn] for arn in rows]
        unreadable = [Severity.CRITICAL if found.corrupt else Severity.NOTE]
        return {
            "version": VERSION,
            "app": self._app,
            "table": self._table,
            "worst": _name(max([_worst(each) for each in streams] + unreadable)),
            "streams": streams,
            "problems": list(found.corrupt),
        }

    async def _of_stream(
        self,
        stream: StreamRow,
        found: Snapshot,
        source: KinesisSource,
        store: StateStore,
    ) -> dict[str, Any]:
        info = await source.describe()
        check_identity(stream, info)
        rows = found.shards[stream.arn]
        listing = await source.list_shards()
        verdicts = await asyncio.gather(
            *(check_position(self._asking, source, row, listing, info) for row in rows)
        )
        told = [_shard(r, verdict) for r, verdict in zip(rows, verdicts, strict=True)]
        problems = await self._lasting(stream.arn, rows, listing, store)
        return _stream(stream.arn, shards=told, problems=problems)

    async def _lasting(
        self,
        arn: str,
        rows: Sequence[ShardRow],
        listing: Sequence[Shard],
        store: StateStore,
    ) -> list[Contradiction]:
        problems = list(contradictions(rows, listing))
        if not problems:
            return []
        await asyncio.sleep(AGAIN_SECONDS)
        later = (await snapshot.take(store, self._app)).shards.get(arn, [])
        again = set(contradictions(later, listing))
        return [problem for problem in problems if problem in again]


def _severity(error: KinesumerError) -> Severity:
    void = isinstance(error, StreamMissingError | StreamRecreatedError)
    return Severity.CRITICAL if void else Severity.WARNING


def _stream(
    arn: str,
    problem: str | None = None,
    severity: Severity = Severity.NOTE,
    shards: Sequence[dict[str, Any]] = (),
    problems: Sequence[Contradiction] = (),
) -> dict[str, Any]:
    return {
        "stream_arn": arn,
        "problem": problem,
        "severity": _name(severity),
        "shards": list(shards),
        "contradictions": [
            found._asdict() | {"severity": _name(found.severity)} for found in problems
        ],
    }


def _shard(row: ShardRow, verdict: Verdict) -> dict[str, Any]:
    position = row.position
    return {
        "shard_id": row.key.shard_id,
        "sequence_number": position.sequence_number if position else None,
        "sub_sequence_number": position.sub_sequence_number if position else None,
        "verdict": verdict.name,
        "severity": _name(verdict.severity),
        "text": verdict.text,
    }


def _worst(stream: dict[str, Any]) -> Severity:
    found = [stream, *stream["shards"], *stream["contradictions"]]
    return max(Severity[each["severity"].upper()] for each in found)


def _name(severity: int) -> str:
    return Severity(severity).name.lower()
