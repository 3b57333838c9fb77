"""Rows without shards, shards without rows, and shards that nobody owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.admin.snapshot import state
from kinesumer.core.lineage import is_complete, repairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.admin.doctor.observation import AppObservation
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey

CHECK = "orphan shards"
PATIENCE_SECONDS = 30.0
NOBODYS = ("unowned", "orphaned")


def orphan_shards(seen: AppObservation) -> Iterator[Finding]:
    """Tell of every kind of orphan, by stream."""
    for stream in seen.second.streams:
        listed = seen.streams.get(stream.arn)
        if listed is not None and is_complete(listed.listing):
            yield from _gone(stream.arn, seen)
            if stream.baseline:
                yield from _unknown(stream.arn, seen)
        yield from _unowned(stream.arn, seen)


def _gone(arn: str, seen: AppObservation) -> Iterator[Finding]:
    listed = {shard.shard_id for shard in seen.streams[arn].listing}
    rows = [
        row
        for row in seen.second.shards[arn]
        if not row.ended and row.key.shard_id not in listed
    ]
    if rows:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            arn,
            f"Kinesis no longer knows {abbreviate(r.key.shard_id for r in rows)}: "
            "retention took what wasn't read of them",
            "a client that owns them ends them, and their children go on; raise the "
            "stream's retention if this can happen again",
        )


def _unknown(arn: str, seen: AppObservation) -> Iterator[Finding]:
    """Tell of shards that are to be read and have no row.

    Children whose parents are still read get theirs in time.
    """
    before, after = (
        {row.key.shard_id for row in repairs(arn, rows, listing).create if row.ready}
        for rows, listing in (
            (seen.first.shards.get(arn, []), seen.streams[arn].listing),
            (seen.second.shards[arn], seen.streams[arn].listing),
        )
    )
    missing = sorted(before & after)
    # A row that can't be read isn't missing, and is told of by itself.
    if missing and not seen.second.corrupt:
        alive = seen.asked_for(arn)
        yield Finding(
            CHECK,
            Severity.WARNING if alive else Severity.NOTE,
            arn,
            f"{abbreviate(missing)} have no row yet"
            + ("" if alive else ", and nobody who lives asks for the stream"),
            "the leader lists every 30 s and makes the rows: look again in a minute, "
            "then at the leader's log"
            if alive
            else "the first client that starts makes it",
        )


def _unowned(arn: str, seen: AppObservation) -> Iterator[Finding]:
    first, second = _nobodys(arn, seen.first), _nobodys(arn, seen.second)
    lasting = [row for key, row in second.items() if key in first]
    if not lasting or not seen.second.alive:
        return
    names = abbreviate(row.key.shard_id for row in lasting)
    if not seen.asked_for(arn):
        yield Finding(
            CHECK,
            Severity.WARNING,
            arn,
            f"nobody who lives asks for this stream: {names} have no owner",
            "name the stream in consume() again; if it is no longer wanted, this may "
            "stay",
        )
        return
    if not any(arn in m.streams for m in seen.takers):
        yield Finding(
            CHECK,
            Severity.WARNING,
            arn,
            f"{names} have no owner: all clients that ask for it are drained, degraded "
            "or leaving",
            "kinesumer drain CLIENT --undo, or start another client",
        )
        return
    planned = {seen.second.planned.get(row.key) for row in lasting} - {None}
    yield Finding(
        CHECK,
        Severity.CRITICAL if seen.seconds >= PATIENCE_SECONDS else Severity.WARNING,
        arn,
        f"{names} have had no living owner for {seen.seconds:.0f} s; planned for "
        f"{abbreviate(sorted(str(p) for p in planned)) or 'nobody'}",
        "after a death others take over within a lease (8 s): look again; if it lasts, "
        "look at the log of who it is planned for, else at the leader's",
    )


def _nobodys(arn: str, found: Snapshot) -> dict[ShardKey, ShardRow]:
    return {
        row.key: row
        for row in found.shards.get(arn, [])
        if state(row, found) in NOBODYS and found.pause(row) is None
    }
