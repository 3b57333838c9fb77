"""Hand-overs that don't end: shards that move, or wait, in both looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.admin.snapshot import state
from kinesumer.admin.status import stall_limit_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesumer.admin.doctor.observation import AppObservation
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.model.rows import ShardRow

CHECK = "hand-overs"


def stuck_hand_overs(seen: AppObservation) -> Iterator[Finding]:
    """Tell of shards that didn't get from one client to another, or from parents."""
    for stream in seen.second.streams:
        before = {r.key: r for r in seen.first.shards.get(stream.arn, [])}
        pairs = [
            (before[row.key], row)
            for row in seen.second.shards[stream.arn]
            if row.key in before
        ]
        yield from _moving(stream.arn, pairs, seen)
        yield from _waiting(stream.arn, pairs, seen)


def _moving(
    arn: str, pairs: Iterable[tuple[ShardRow, ShardRow]], seen: AppObservation
) -> Iterator[Finding]:
    lasting: dict[tuple[str, str], list[str]] = {}
    for was, row in pairs:
        same = was.epoch == row.epoch and was.owner == row.owner
        if same and state(was, seen.first) == state(row, seen.second) == "moving":
            way = row.owner, seen.second.planned[row.key]
            lasting.setdefault(way, []).append(row.key.shard_id)
    for (owner, planned), shards in lasting.items():
        giver = next(m for m in seen.second.alive if m.session == owner)
        silent = seen.silent.get(owner, 0.0) > stall_limit_seconds(giver)
        yield Finding(
            CHECK,
            Severity.WARNING,
            arn,
            f"{abbreviate(shards)} have been on the way from {giver.client_id} to "
            f"{planned} for {seen.seconds:.0f} s",
            f"{giver.client_id} stands still: others take over when it is fenced"
            if silent
            else f"{giver.client_id} waits for its handler, for up to "
            "drain_timeout_seconds (30 s); look at its log if that is over",
        )


def _waiting(
    arn: str, pairs: Iterable[tuple[ShardRow, ShardRow]], seen: AppObservation
) -> Iterator[Finding]:
    first, second = _ended(arn, seen.first), _ended(arn, seen.second)
    lasting = [
        row.key.shard_id
        for was, row in pairs
        if state(was, seen.first) == state(row, seen.second) == "waiting"
        and _could_begin(was, first)
        and _could_begin(row, second)
    ]
    if lasting:
        yield Finding(
            CHECK,
            Severity.WARNING,
            arn,
            f"{abbreviate(lasting)} still wait for parents that are read to their end",
            "the leader lets them begin at its next listing (30 s), if a client died "
            "in between; if it lasts, look at the leader's log",
        )


def _ended(arn: str, found: Snapshot) -> dict[str, bool]:
    return {row.key.shard_id: row.ended for row in found.shards.get(arn, [])}


def _could_begin(row: ShardRow, ended: dict[str, bool]) -> bool:
    return all(ended.get(parent, True) for parent in row.parents)
