"""Check that each shard has a row and an owner, and that hand-overs end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.admin.observation import stall_limit_seconds
from kinesumer.core.lineage import is_complete, repairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesumer.admin.doctor.observation import AppObservation
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.model.rows import ShardRow

ORPHAN_SHARDS = "orphan shards"
HAND_OVERS = "hand-overs"
CRITICAL_SECONDS = 30.0
"""Shards without an owner for this time are critical."""


def orphan_shards(seen: AppObservation) -> Iterator[Finding]:
    """Yield rows without shards, shards without rows, and shards without owners."""
    for stream in seen.second.streams:
        observed = seen.streams.get(stream.arn)
        if observed is not None and is_complete(observed.listing):
            yield from _unlisted(stream.arn, seen)
            if stream.baseline:
                yield from _without_row(stream.arn, seen)
        yield from _unowned(stream.arn, seen)


def _unlisted(arn: str, seen: AppObservation) -> Iterator[Finding]:
    listed = {shard.shard_id for shard in seen.streams[arn].listing}
    ids = [
        row.key.shard_id
        for row in seen.second.shards[arn]
        if not row.ended and row.key.shard_id not in listed
    ]
    if ids:
        yield Finding(
            ORPHAN_SHARDS,
            Severity.CRITICAL,
            arn,
            f"Kinesis no longer lists {abbreviate(ids)}: their unread records are "
            "older than the retention",
            "nothing for now: the clients that own them end them, and read their "
            "children; raise the stream's retention if this can happen again",
        )


def _without_row(arn: str, seen: AppObservation) -> Iterator[Finding]:
    """Yield shards that should be read and have no row.

    Children whose parents are still read get their rows later.
    """
    listing = seen.streams[arn].listing
    before, after = (
        {row.key.shard_id for row in repairs(arn, rows, listing).create if row.ready}
        for rows in (seen.first.shards.get(arn, []), seen.second.shards[arn])
    )
    missing = sorted(before & after)
    # Rows that can't be parsed aren't missing; they are a finding of their own.
    if missing and not seen.second.corrupt:
        requested = seen.is_requested(arn)
        yield Finding(
            ORPHAN_SHARDS,
            Severity.WARNING if requested else Severity.NOTE,
            arn,
            f"{abbreviate(missing)} have no row yet"
            + ("" if requested else ", and no live client consumes the stream"),
            "the leader lists every 30 s and creates the rows: run the doctor again "
            "in a minute, then read the leader's log"
            if requested
            else "the first client that starts creates it",
        )


def _unowned(arn: str, seen: AppObservation) -> Iterator[Finding]:
    first, second = seen.first.unconsumed(arn), seen.second.unconsumed(arn)
    lasting = [key for key in second if key in first]
    if not lasting or not seen.second.alive:
        return
    names = abbreviate(key.shard_id for key in lasting)
    severity = Severity.WARNING
    if not seen.is_requested(arn):
        text = f"{names} have no owner: no live client consumes this stream"
        advice = (
            "name the stream in consume() again; nothing to do if it is no longer "
            "needed"
        )
    elif not any(arn in member.streams for member in seen.assignable):
        text = (
            f"{names} have no owner: all clients that consume the stream are drained, "
            "degraded or leaving"
        )
        advice = "kinesumer drain CLIENT --undo, or start another client"
    else:
        planned = {seen.second.planned.get(key) for key in lasting} - {None}
        names_planned = abbreviate(sorted(str(p) for p in planned)) or "no client"
        if seen.seconds >= CRITICAL_SECONDS:
            severity = Severity.CRITICAL
        text = (
            f"{names} have had no living owner for {seen.seconds:.0f} s; planned for "
            f"{names_planned}"
        )
        advice = (
            "after a crash others take over within a lease (8 s): run the doctor "
            "again; if it lasts, read the log of the planned client, else the leader's"
        )
    yield Finding(ORPHAN_SHARDS, severity, arn, text, advice)


def stuck_hand_overs(seen: AppObservation) -> Iterator[Finding]:
    """Yield shards that were moving, or waiting for parents, in both snapshots."""
    for stream in seen.second.streams:
        before = {r.key: r for r in seen.first.shards.get(stream.arn, [])}
        pairs = [
            (before[row.key], row)
            for row in seen.second.shards[stream.arn]
            if row.key in before
        ]
        yield from _moving(stream.arn, pairs, seen)
        yield from _waiting(stream.arn, pairs, seen)


def _state_in_both(seen: AppObservation, was: ShardRow, row: ShardRow) -> str | None:
    state = seen.second.state(row)
    return state if seen.first.state(was) == state else None


def _moving(
    arn: str, pairs: Iterable[tuple[ShardRow, ShardRow]], seen: AppObservation
) -> Iterator[Finding]:
    lasting: dict[tuple[str, str], list[str]] = {}
    for was, row in pairs:
        same = was.epoch == row.epoch and was.owner == row.owner
        if same and _state_in_both(seen, was, row) == "moving":
            move = row.owner, seen.second.planned[row.key]
            lasting.setdefault(move, []).append(row.key.shard_id)
    for (owner, planned), shards in lasting.items():
        giver = next(m for m in seen.second.alive if m.session == owner)
        stalled = seen.heartbeat_ages.get(owner, 0.0) > stall_limit_seconds(giver)
        yield Finding(
            HAND_OVERS,
            Severity.WARNING,
            arn,
            f"{abbreviate(shards)} have been on the way from {giver.client_id} to "
            f"{planned} for {seen.seconds:.0f} s",
            f"{giver.client_id} is stalled: others take over when it is fenced"
            if stalled
            else f"{giver.client_id} waits for its handler, for up to its drain "
            "timeout (30 s); read its log if it takes longer",
        )


def _waiting(
    arn: str, pairs: Iterable[tuple[ShardRow, ShardRow]], seen: AppObservation
) -> Iterator[Finding]:
    first, second = _ended(arn, seen.first), _ended(arn, seen.second)
    lasting = [
        row.key.shard_id
        for was, row in pairs
        if _state_in_both(seen, was, row) == "waiting"
        and _can_start(was, first)
        and _can_start(row, second)
    ]
    if lasting:
        yield Finding(
            HAND_OVERS,
            Severity.WARNING,
            arn,
            f"{abbreviate(lasting)} still wait for parents that are read to their end",
            "nothing at first: after a crash the leader starts them at its next "
            "listing (30 s); if it lasts, read the leader's log",
        )


def _ended(arn: str, snapshot: Snapshot) -> dict[str, bool]:
    return {row.key.shard_id: row.ended for row in snapshot.shards.get(arn, [])}


def _can_start(row: ShardRow, ended: dict[str, bool]) -> bool:
    return all(ended.get(parent, True) for parent in row.parents)
