"""Check that rows, plans and listed shards cover all hash keys."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity
from kinesumer.core.lineage import is_complete
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire.rows import hash_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesumer.admin.doctor.observation import AppObservation
    from kinesumer.admin.snapshot import Snapshot

    Part = tuple[int, int]

CHECK = "hash space"


def holes(parts: Iterable[Part]) -> list[Part]:
    """Return the ranges that no part covers, in order."""
    holes_, following = [], 0
    for first, last in sorted(parts):
        if first > following:
            holes_.append((following, first - 1))
        following = max(following, last + 1)
    if following < HASH_KEYS:
        holes_.append((following, HASH_KEYS - 1))
    return holes_


def uncovered_hash_keys(seen: AppObservation) -> Iterator[Finding]:
    """Yield hash keys without a row, without one planned owner, or not listed."""
    for stream in seen.second.streams:
        arn = stream.arn
        if stream.baseline:
            yield from _without_row(arn, seen)
        yield from _unplanned(arn, seen)
        observed = seen.streams.get(arn)
        if observed is not None and not is_complete(observed.listing):
            yield Finding(
                CHECK,
                Severity.WARNING,
                arn,
                "the open shards that Kinesis lists don't tile the hash space",
                "run the doctor again in a minute, since a split or merge may be in "
                "progress; if it lasts, check the stream in Kinesis",
            )


def _without_row(arn: str, seen: AppObservation) -> Iterator[Finding]:
    lasting = _lasting(_rows(arn, seen.first), _rows(arn, seen.second))
    if lasting:
        yield Finding(
            CHECK,
            Severity.CRITICAL,
            arn,
            f"{_describe(lasting)} belong to no unfinished row: their records aren't "
            "read",
            "nothing at first: the leader repairs it at its next listing (30 s); if it "
            "lasts, check whether rows were deleted or can't be parsed",
        )


def _rows(arn: str, snapshot: Snapshot) -> list[Part]:
    page = snapshot.shards.get(arn, [])
    return [(row.first_hash, row.last_hash) for row in page if not row.ended]


def _unplanned(arn: str, seen: AppObservation) -> Iterator[Finding]:
    first, second = _planned(arn, seen.first), _planned(arn, seen.second)
    if first is None or second is None:
        return
    lasting = _lasting(first, second)
    if lasting:
        yield Finding(
            CHECK,
            Severity.WARNING,
            arn,
            f"{_describe(lasting)} have been planned for no client for "
            f"{seen.seconds:.0f} s",
            "read the leader's log: plans don't reach all clients",
        )
    twice = _overlaps(second)
    if twice and _overlaps(first):
        yield Finding(
            CHECK,
            Severity.WARNING,
            arn,
            f"hash keys from {hash_text(twice[0])} on are planned for two clients",
            "read the leader's log; each shard still has one owner",
        )


def _overlaps(parts: list[Part]) -> list[int]:
    return [b for (_, a), (b, _) in pairwise(sorted(parts)) if b <= a]


def _planned(arn: str, snapshot: Snapshot) -> list[Part] | None:
    """Return the planned ranges of a stream; None while a client waits for a plan."""
    members = [m for m in snapshot.alive if arn in m.streams]
    assignable = [m for m in members if not m.drained and m.state == "up"]
    if not assignable or any(member.range is None for member in assignable):
        return None
    return [
        (interval.first, interval.last)
        for member in members
        for interval in member.range or ()
        if interval.stream_arn == arn
    ]


def _lasting(first: list[Part], second: list[Part]) -> list[Part]:
    """Return the parts of holes that exist in both snapshots."""
    before = holes(first)
    return [
        (max(a, c), min(b, d))
        for a, b in holes(second)
        for c, d in before
        if max(a, c) <= min(b, d)
    ]


def _describe(parts: list[Part]) -> str:
    share = sum(last - first + 1 for first, last in parts) / HASH_KEYS
    first, last = parts[0]
    return f"hash keys {hash_text(first)} to {hash_text(last)} ({share:.1%} in all)"
