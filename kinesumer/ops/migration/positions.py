"""Positions in files (docs/positions.md), and imports of files and of KCL's leases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec

from kinesumer.errors import ConfigurationError, CorruptRowError, KinesumerError
from kinesumer.model.positions import WHOLE_RECORD, Position
from kinesumer.model.records import Seconds
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import Start, stream_name
from kinesumer.ops.migration.import_plan import (
    ImportPlan,
    Open,
    ResumePoint,
    StreamPlan,
    plan_stream,
    position_fields,
)
from kinesumer.ops.migration.kcl import (
    read_fleet,
    require_no_workers,
)
from kinesumer.ports import LeaseTable, StreamSource
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows
from kinesumer.wire.fields import SHARD_ID, read_start
from kinesumer.wire.kcl_leases import AT_TIMESTAMP, SENTINELS, SHARD_END, Lease

# This is enough for the positions of 200,000 shards.
MAX_FILE_BYTES = 1 << 26

Number = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,129}\Z")]
Part = Annotated[int, msgspec.Meta(ge=0, le=WHOLE_RECORD)]


class ShardPosition(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The position of one shard; without a sequence number, its start.

    ``sub_sequence_number`` is the index in a KPL aggregate, or null for the whole
    aggregate.
    """

    shard_id: Annotated[str, msgspec.Meta(pattern=rf"\A{SHARD_ID.pattern}\Z")]
    ended: bool = False
    sequence_number: Number | None = None
    sub_sequence_number: Part | None = None
    start: str = "TRIM_HORIZON"

    def resume_point(self) -> ResumePoint:
        """Return where reading resumes. Raise ConfigurationError if it is invalid."""
        if self.sequence_number is None and self.sub_sequence_number is not None:
            raise ConfigurationError(
                f"{self.shard_id}: sub_sequence_number without sequence_number: "
                "give both"
            )
        try:
            start = read_start({"start": self.start})
        except CorruptRowError:
            raise ConfigurationError(
                f"{self.shard_id}: start {self.start!r:.100} is neither TRIM_HORIZON, "
                "LATEST nor AT_TIMESTAMP with seconds since 1970"
            ) from None
        position = None
        if self.sequence_number is not None:
            position = Position(self.sequence_number, self.sub_sequence_number)
        return ResumePoint(position, start, self.ended)


class StreamPositions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The positions of one stream's shards."""

    stream_arn: str
    stream_created_at: Seconds  # distinguishes the stream from a recreated one
    shards: list[ShardPosition]

    def resume_points(self) -> dict[str, ResumePoint]:
        """Return the resume points by shard id. Raise ConfigurationError."""
        points = {shard.shard_id: shard.resume_point() for shard in self.shards}
        if len(points) < len(self.shards):
            raise ConfigurationError(
                f"{self.stream_arn}: a shard is named twice; remove one"
            )
        return points


class Positions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All positions of an app at one time."""

    kind: Literal["kinesumer-positions"]
    version: Literal[1]
    app: str
    exported_at: str
    streams: list[StreamPositions]


def positions_of_group(
    app: str,
    exported_at: str,
    streams: Iterable[StreamRow],
    shards: Mapping[str, Sequence[ShardRow]],
) -> Positions:
    """Return the positions that a group has stored.

    Raise ConfigurationError if a shard has two rows, since such a file couldn't be
    imported.
    """
    positions = [
        StreamPositions(
            stream_arn=stream.arn,
            stream_created_at=stream.created_at,
            shards=[
                ShardPosition(shard_id=row.key.shard_id, **position_fields(row))
                for row in shards[stream.arn]
            ],
        )
        for stream in streams
    ]
    for stream in positions:
        stream.resume_points()
    return Positions(
        kind="kinesumer-positions",
        version=1,
        app=app,
        exported_at=exported_at,
        streams=positions,
    )


def select_streams(names: Sequence[str], positions: Positions) -> Positions:
    """Return the positions of the named streams, or of all if none is named.

    Raise KinesumerError if the positions lack a stream.
    """
    if not names:
        return positions
    arns = [stream.stream_arn for stream in positions.streams]
    for name in names:
        if name not in arns and name not in map(stream_name, arns):
            raise KinesumerError(
                f"the positions do not name stream {name}, only {', '.join(arns)}; "
                "name one of these"
            )
    positions.streams = [
        stream
        for stream in positions.streams
        if {stream.stream_arn, stream_name(stream.stream_arn)} & {*names}
    ]
    return positions


def encode(positions: Positions) -> bytes:
    """Return the file's content, in ASCII, since commands also print it."""
    builtins = msgspec.to_builtins(positions)
    return json.dumps(builtins, indent=2).encode("ascii") + b"\n"


def decode(content: bytes) -> Positions:
    """Parse a file. Raise ConfigurationError if it isn't a file of positions."""
    if len(content) > MAX_FILE_BYTES:
        raise _not_positions(f"over {MAX_FILE_BYTES:,} bytes")
    try:
        positions = msgspec.json.decode(content, type=Positions)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_positions(str(error)) from None
    arns = [stream.stream_arn for stream in positions.streams]
    if len(set(arns)) < len(arns):
        raise _not_positions("it names a stream twice")
    return positions


def _not_positions(reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"the input is not a file of positions: {reason}; pass what kinesumer export "
        "wrote"
    )


async def plan_file_import(
    context: ClientContext, source: str, positions: Positions, open_: Open
) -> ImportPlan:
    """Return the plan to import a file of positions.

    Raise ConfigurationError if the file doesn't fit the streams, and KinesumerError if
    a stream was created again after the export.
    """
    plans = []
    for stream in positions.streams:
        opened = await open_(stream.stream_arn)
        info = await opened.describe()
        if info.arn != stream.stream_arn:
            raise ConfigurationError(
                f"{escape_unprintable(stream.stream_arn)} isn't the stream's ARN: use "
                f"{info.arn}"
            )
        if info.created_at != stream.stream_created_at:
            raise KinesumerError(
                f"stream {info.arn} was created again at "
                f"{rows.timestamp_text(info.created_at)}, and the positions are of the "
                f"one created at {rows.timestamp_text(stream.stream_created_at)}: "
                "remove its positions"
            )
        plans.append(await plan_stream(context, opened, stream.resume_points()))
    return ImportPlan(source, plans)


# --- from a KCL fleet -----------------------------------------------------------------


async def plan_kcl_import(
    context: ClientContext,
    open_: Open,
    table: LeaseTable,
    streams: Sequence[str] = (),
    *,
    region: str | None = None,
    start_at: float | None = None,
    watch_seconds: float = 0.0,
) -> ImportPlan:
    """Return the plan to import a lease table.

    ``streams`` are names, ARNs or identifiers in the leases. If it is empty, all
    streams are imported. ``start_at``, in seconds since 1970, is the start of shards
    whose lease has no position. Raise GroupBusyError if the table changes within
    ``watch_seconds``, ConfigurationError if it isn't a lease table, and KinesumerError
    if a stream can't be read.
    """
    before, leases = await read_fleet(table, streams, region, watch_seconds)
    plans = [
        await _plan_import(context, await open_(name), stream_leases, start_at)
        for name, stream_leases in leases.items()
    ]
    check = partial(require_no_workers, table, before)
    return ImportPlan(f"lease table {table.name}", plans, check)


async def _plan_import(
    context: ClientContext,
    source: StreamSource,
    leases: Sequence[Lease],
    start_at: float | None,
) -> StreamPlan:
    points = {x.shard_id: resume_point_of_lease(x, start_at) for x in leases}
    plan = await plan_stream(
        context, source, {id_: point or ResumePoint() for id_, point in points.items()}
    )
    plan.notes.extend(_import_notes(leases, plan.stream.created_at))
    plan.problems.extend(
        f"{shard_id}: its lease is AT_TIMESTAMP and KCL for Java stores no time: "
        "give the fleet's start with --start-at"
        for shard_id, point in points.items()
        if point is None
    )
    has_positions = plan.before is not None and plan.before.baseline
    if has_positions and not plan.is_done:
        plan.problems.append(
            f"app {context.app!r} has positions of its own in it: import under "
            "another app name, or delete these first with kinesumer reset"
        )
    return plan


def _import_notes(leases: Sequence[Lease], created_at: float) -> Iterator[str]:
    stream = leases[0].stream
    if stream is not None and stream.epoch != int(created_at):
        yield (
            f"leases call it {stream}, but it was created at {int(created_at)}: "
            "Kinesis knows the positions, so the fleet's users chose that number"
        )
    if pending := sum(bool(lease.pending) for lease in leases):
        yield (
            f"{pending} leases have a pending checkpoint: it was never made, so "
            "records after the checkpoint come again"
        )
    latest = [lease.shard_id for lease in leases if lease.checkpoint == "LATEST"]
    if latest:
        yield (
            f"{', '.join(latest)}: never checkpointed since LATEST, so it isn't known "
            "what was read; without --start-at reading begins now, and skips what "
            "arrived since the fleet stopped"
        )


def resume_point_of_lease(lease: Lease, start_at: float | None) -> ResumePoint | None:
    """Return the point at which reading of a lease's shard resumes.

    ``start_at``, in seconds since 1970, is the start of leases with LATEST, and of
    leases with AT_TIMESTAMP that don't contain the time. KCL for Java doesn't store
    this time; ports to Rust store it in milliseconds. Return None if neither the lease
    nor ``start_at`` has the time. Then only the fleet's configuration has it.
    """
    if lease.checkpoint == SHARD_END:
        return ResumePoint(ended=True)
    if lease.checkpoint == "TRIM_HORIZON":
        return ResumePoint()
    if lease.checkpoint not in SENTINELS:
        return ResumePoint(Position(lease.checkpoint, lease.sub))
    if lease.checkpoint == AT_TIMESTAMP and lease.sub:
        return ResumePoint(start=Start(type=AT_TIMESTAMP, timestamp=lease.sub / 1000))
    if start_at is not None:
        return ResumePoint(start=Start(type=AT_TIMESTAMP, timestamp=start_at))
    return ResumePoint(start=Start.LATEST) if lease.checkpoint == "LATEST" else None
