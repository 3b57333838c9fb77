"""Verify stored rows and positions against what Kinesis lists and holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from kinesumer.aws.session import ClientFactory
from kinesumer.coordination.shard_sync import check_identity
from kinesumer.core.lineage import find, is_complete, repairs
from kinesumer.errors import (
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    StreamMissingError,
    StreamRecreatedError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import Shard, Start, StreamInfo
from kinesumer.ops.group.connect import Roles
from kinesumer.ops.group.observation import POLL_SECONDS
from kinesumer.ops.group.problems import Severity
from kinesumer.ops.group.shard_reads import PacedReader, ShardSampler, for_each_stream
from kinesumer.ops.group.snapshot import Snapshot, read_known_snapshot, read_snapshot
from kinesumer.ports import StateStore, StreamSource
from kinesumer.runtime.tasks import gather_or_cancel


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the report, with its severity: note, warning or critical."""

    severity: str


class Contradiction(_Part, frozen=True, kw_only=True):
    """A row that contradicts the listing or another row."""

    shard_id: str
    text: str


class ShardVerdict(_Part, frozen=True, kw_only=True):
    """A shard's position, and whether it exists."""

    shard_id: str
    sequence_number: str | None
    sub_sequence_number: int | None
    verdict: str
    text: str


class StreamVerdicts(_Part, frozen=True, kw_only=True):
    """The verdicts on a stream's positions, or why it couldn't be compared."""

    stream_arn: str
    problem: str | None = None
    shards: list[ShardVerdict] = []
    contradictions: list[Contradiction] = []


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``kinesumer verify``; see docs/doctor.md."""

    app: str
    table: str
    worst: str
    streams: list[StreamVerdicts]
    problems: list[str]


MISSING = "has no row: the leader creates it at its next listing (30 s)"


def contradictions(
    rows: Sequence[ShardRow], listing: Sequence[Shard]
) -> Iterator[Contradiction]:
    """Yield the contradictions between rows and a listing, or between rows."""
    listed = {shard.shard_id: shard for shard in listing}
    by_id = {row.key.shard_id: row for row in rows}
    for row in rows:
        shard = listed.get(row.key.shard_id)
        against = () if shard is None else _against(row, shard)
        for text in (*against, *_too_early(row, by_id)):
            yield _contradiction(row, Severity.CRITICAL, text)
    if rows and is_complete(listing):
        for missing in repairs(rows[0].key.stream_arn, rows, listing).create:
            # A child needs no row while clients still read its parents.
            if missing.ready:
                yield _contradiction(missing, Severity.WARNING, MISSING)


def _contradiction(row: ShardRow, severity: Severity, text: str) -> Contradiction:
    return Contradiction(shard_id=row.key.shard_id, severity=severity.label, text=text)


def _against(row: ShardRow, shard: Shard) -> Iterator[str]:
    if (row.first_hash, row.last_hash) != (shard.first_hash, shard.last_hash):
        yield "its row has other hash keys than the shard: it may be of another stream"
    if lacking := sorted(set(shard.parents) - row.parents):
        yield f"its row lacks its parent {lacking[0]}: it may begin before the parent"
    if row.ended and not shard.closed:
        yield (
            "its row says that it is read to its end, but it is open: it isn't read "
            "until the leader opens the row again, within six minutes"
        )


def _too_early(row: ShardRow, rows: Mapping[str, ShardRow]) -> Iterator[str]:
    begun = row.ready or row.ended or row.position is not None
    for parent in sorted(row.parents):
        before = rows.get(parent)
        if begun and before is not None and not before.ended:
            yield f"has begun, but its parent {parent} isn't read to its end"


class Verdict(NamedTuple):
    """The result for one position, its severity, and an explanation."""

    name: str
    severity: Severity
    text: str = ""


UNCHECKED = "unchecked"
ENDED = Verdict("ended", Severity.NOTE)
NOT_STARTED = Verdict("not started", Severity.NOTE)
THERE = Verdict("there", Severity.NOTE)
QUIET = Verdict(
    "quiet", Severity.NOTE, "its record has expired, and no record after it has"
)
EXPIRED = Verdict(
    "expired",
    Severity.WARNING,
    "its record is older than the retention: records after it are lost unless none "
    "arrived then; clients continue with the oldest record left",
)
UNKNOWN = Verdict(
    "unknown",
    Severity.WARNING,
    "the shard has older records but none with this number: a client didn't store it; "
    "clients continue with the next record",
)
AT_END = Verdict(
    "at the end",
    Severity.NOTE,
    "the shard is closed, and no record follows: its owner ends it, and its children "
    "are read",
)
BEYOND = Verdict(
    "beyond the tip",
    Severity.CRITICAL,
    "it lies after all records of the shard: clients skip the records up to it; seek "
    "to the position where reading should continue",
)
FOREIGN = Verdict(
    "refused",
    Severity.CRITICAL,
    "Kinesis reports that it was never in this shard: clients stop there; seek to the "
    "position where reading should continue",
)
GONE = Verdict(
    "gone",
    Severity.CRITICAL,
    "the whole shard became older than the retention before it was read to its end",
)
PARTS = Verdict(
    "beyond the aggregate",
    Severity.CRITICAL,
    "its sub-sequence number is larger than the number of records in its aggregate",
)


class Peek(NamedTuple):
    """The result of looking up one sequence number."""

    absent: Verdict | None = None  # why the shard has no such position any more
    # The number of user records if the record is a KPL aggregate; otherwise None.
    user_records: int | None = None
    # The first sequence number at or after the searched one; None if no record follows.
    first: str | None = None


async def peek(sampler: ShardSampler, number: str) -> Peek:
    """Look up the record with a sequence number. Raises KinesumerError."""
    try:
        point = await sampler.read_first(Position(number, 0))
    except ShardMissingError:
        return Peek(GONE)
    except TrimmedPositionError:
        return Peek(EXPIRED)
    except InvalidPositionError:
        return Peek(FOREIGN)
    records = point.page.records
    if not records:
        return Peek()
    first, count = records[0].sequence_number, None
    if first == number:
        opened = [one async for part in point.pages.opened(records[:1]) for one in part]
        is_plain = any(one.sub_sequence_number is None for one in opened)
        count = None if is_plain else len(opened)
    return Peek(None, count, first)


async def check_position(
    sampler: ShardSampler, row: ShardRow, listing: Sequence[Shard], info: StreamInfo
) -> Verdict:
    """Return the verdict on a row's position; ``UNCHECKED`` if it can't be read."""
    if row.ended:
        return ENDED
    if row.position is None:
        listed = any(shard.shard_id == row.key.shard_id for shard in listing)
        return NOT_STARTED if listed else GONE
    number, oldest = row.position.sequence_number, None
    try:
        found = await peek(sampler, number)
        is_there = found.absent is None
        shard = find(listing, row.key.shard_id)
        if is_there and found.first is None and shard is not None and shard.closed:
            return AT_END
        if is_there and found.first != number:
            # If older records are left, retention can't have removed this one.
            records = (await sampler.read_first(Start.TRIM_HORIZON)).page.records
            oldest = records[0].sequence_number if records else None
    except SourceUnavailableError as error:
        return Verdict(UNCHECKED, Severity.WARNING, str(error))
    verdict = decide_verdict(row.position, found, oldest)
    # ``info.now`` is in whole seconds: Kinesis's clock may be a second ahead of it.
    retained_since = info.now + 1 - info.retention_hours * 3600
    is_quiet = verdict == EXPIRED and row.read_until > retained_since
    return QUIET if is_quiet else verdict


def decide_verdict(position: Position, found: Peek, oldest: str | None) -> Verdict:
    """Return a position's verdict; ``oldest`` is the shard's oldest sequence number."""
    if found.absent is not None:
        return found.absent
    if found.first == position.sequence_number:
        part = position.sub_sequence_number
        outside = part is not None and (
            found.user_records is None or part >= found.user_records
        )
        return PARTS if outside else THERE
    if oldest is None:
        return QUIET
    older = Position(oldest) < Position(position.sequence_number)
    if found.first is None:
        return BEYOND if older else QUIET
    return UNKNOWN if older else EXPIRED


async def verify_app(
    app: str, table: str, roles: Roles, clients: ClientFactory, store: StateStore
) -> VerifyReport:
    """Check all positions of an app; return the report. Raises KinesumerError."""
    snapshot = await read_known_snapshot(store, app, table)
    rows = {stream.arn: stream for stream in snapshot.streams}
    reports: dict[str, StreamVerdicts] = {}
    reader, again = PacedReader(), partial(read_snapshot, store, app)

    async def verify_stream(arn: str, source: StreamSource) -> None:
        page = snapshot.shards[arn]
        reports[arn] = await _verify(reader, source, rows[arn], page, again)

    errors = await for_each_stream(clients, rows, verify_stream, roles)
    for arn, error in errors.items():
        is_gone = isinstance(error, StreamMissingError | StreamRecreatedError)
        label = (Severity.CRITICAL if is_gone else Severity.WARNING).label
        reports[arn] = StreamVerdicts(
            severity=label, stream_arn=arn, problem=str(error)
        )
    streams = [reports[arn] for arn in rows]
    labels = [
        part.severity
        for stream in streams
        for part in (stream, *stream.shards, *stream.contradictions)
    ]
    severities = [Severity[label.upper()] for label in labels]
    severities += [Severity.CRITICAL] if snapshot.corrupt else []
    return VerifyReport(
        app=app,
        table=table,
        worst=max(severities, default=Severity.NOTE).label,
        streams=streams,
        problems=list(snapshot.corrupt),
    )


async def _verify(
    reader: PacedReader,
    source: StreamSource,
    stream: StreamRow,
    rows: Sequence[ShardRow],
    read_again: Callable[[], Awaitable[Snapshot]],
) -> StreamVerdicts:
    info = await source.describe()
    check_identity(stream, info)
    listing = await source.list_shards()
    shards = await gather_or_cancel(
        _verdict(ShardSampler(reader, source, row.key, info.now), row, listing, info)
        for row in rows
    )
    problems = list(contradictions(rows, listing))
    if problems:
        # Rows may change between reads, so a contradiction must be found twice.
        await asyncio.sleep(POLL_SECONDS)
        later = (await read_again()).shards.get(stream.arn, [])
        lasting = set(contradictions(later, listing))
        problems = [problem for problem in problems if problem in lasting]
    return StreamVerdicts(
        severity=Severity.NOTE.label,
        stream_arn=stream.arn,
        shards=shards,
        contradictions=problems,
    )


async def _verdict(
    sampler: ShardSampler, row: ShardRow, listing: Sequence[Shard], info: StreamInfo
) -> ShardVerdict:
    verdict = await check_position(sampler, row, listing, info)
    position = row.position
    return ShardVerdict(
        severity=verdict.severity.label,
        shard_id=row.key.shard_id,
        sequence_number=position.sequence_number if position else None,
        sub_sequence_number=position.sub_sequence_number if position else None,
        verdict=verdict.name,
        text=verdict.text,
    )
