"""Rows against the listing of their stream: hash keys, parents, ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.lineage import is_complete, repairs
from kinesumer.operations.doctor.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kinesumer.model import Shard
    from kinesumer.wire.rows import ShardRow


class Problem(NamedTuple):
    """What contradicts what, and how bad that is."""

    shard_id: str
    severity: Severity
    text: str


def contradictions(
    rows: Sequence[ShardRow], listing: Sequence[Shard]
) -> Iterator[Problem]:
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
                yield Problem(
                    missing.key.shard_id,
                    Severity.WARNING,
                    "has no row: a leader makes it at its next listing (30 s)",
                )


def _against(row: ShardRow, shard: Shard) -> Iterator[Problem]:
    shard_id = shard.shard_id
    if (row.first_hash, row.last_hash) != (shard.first_hash, shard.last_hash):
        text = "its row has other hash keys than the shard: positions may be of another"
        yield Problem(shard_id, Severity.CRITICAL, text)
    lacking = sorted(set(shard.parents) - row.parents)
    if lacking:
        text = f"its row doesn't name its parent {lacking[0]}: it may begin before that"
        yield Problem(shard_id, Severity.CRITICAL, text)
    if row.ended and not shard.closed:
        text = (
            "its row says that it is read to its end, but it is open: nobody reads it"
        )
        yield Problem(shard_id, Severity.CRITICAL, text)


def _too_early(row: ShardRow, rows: Mapping[str, ShardRow]) -> Iterator[Problem]:
    begun = row.ready or row.ended or row.position is not None
    for parent in sorted(row.parents):
        before = rows.get(parent)
        if begun and before is not None and not before.ended:
            text = f"has begun, though its parent {parent} isn't read to its end"
            yield Problem(row.key.shard_id, Severity.CRITICAL, text)
