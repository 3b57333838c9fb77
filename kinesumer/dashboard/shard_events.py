"""What happened to a stream's shards between two looks; like events are one."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from kinesumer.dashboard.model import Event
from kinesumer.errors import shown
from kinesumer.model import stream_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesumer.dashboard.sightings import Sighting
    from kinesumer.wire.rows import ShardRow

Pairs = list[tuple["ShardRow", "ShardRow"]]
"""Rows of one shard, before and after."""


def shard_events(arn: str, before: Sighting, after: Sighting) -> Iterator[Event]:
    """Yield what happened in one stream, the cause before what follows from it."""
    known = {row.key: row for row in before.found.shards.get(arn, [])}
    rows = after.found.shards[arn]
    pairs = [(known[row.key], row) for row in rows if row.key in known]
    if any(s.arn == arn and s.baseline for s in before.found.streams):
        yield from _reshards(arn, [row for row in rows if row.key not in known])
    ended = [row for old, row in pairs if row.ended and not old.ended]
    if ended:
        yield _event(arn, "ended", f"{_named(ended)} read to the end")
    yield from chain(
        _of_operators(arn, pairs),
        _moved(arn, rows, before),
        _stuck(arn, rows, before, after),
    )


def _of_operators(arn: str, pairs: Pairs) -> Iterator[Event]:
    """Yield pauses of single shards, and what was sought to be read again."""
    paused = [row for old, row in pairs if row.paused and not old.paused]
    resumed = [row for old, row in pairs if old.paused and not row.paused]
    sought = [row for old, row in pairs if _went_back(old, row)]
    for kind, found in (("paused", paused), ("resumed", resumed)):
        if found:
            yield _event(arn, kind, f"{_named(found)} {kind}")
    if sought:
        yield _event(arn, "sought", f"{_named(sought)} sought")


def _went_back(old: ShardRow, new: ShardRow) -> bool:
    """Tell a seek: nothing else takes a position back."""
    if old.ended and not new.ended:
        return True
    if old.position is None or new.ended:
        return False
    return new.position is None or new.position < old.position


def _reshards(arn: str, fresh: Sequence[ShardRow]) -> Iterator[Event]:
    splits: dict[str, list[ShardRow]] = defaultdict(list)
    for row in fresh:
        if len(row.parents) > 1:
            parents = " and ".join(_short(parent) for parent in sorted(row.parents))
            text = f"{parents} merge into {_short(row.key.shard_id)}"
            yield _event(arn, "merged", text)
        for parent in row.parents if len(row.parents) == 1 else ():
            splits[parent].append(row)
    for parent, children in splits.items():
        names = " and ".join(_short(row.key.shard_id) for row in children)
        yield _event(arn, "split", f"{_short(parent)} splits into {names}")


def _moved(arn: str, rows: Sequence[ShardRow], before: Sighting) -> Iterator[Event]:
    moves: dict[tuple[str, str], list[ShardRow]] = defaultdict(list)
    for row in rows:
        old = before.owners.get(row.key, "")
        if row.owner_id and row.owner_id != old:
            moves[old, row.owner_id].append(row)
    for (old, new), moved in moves.items():
        text = f"{_named(moved)} moved from {shown(old)} to {shown(new)}"
        if not old:
            text = f"{shown(new)} took {_named(moved)}"
        yield _event(arn, "moved" if old else "taken", text, new)


def _stuck(
    arn: str, rows: Sequence[ShardRow], before: Sighting, after: Sighting
) -> Iterator[Event]:
    stuck: dict[str, list[ShardRow]] = defaultdict(list)
    for row in rows:
        if row.key in after.stuck and row.key not in before.stuck:
            stuck[row.owner_id].append(row)
    for owner, found in stuck.items():
        text = f"{_named(found)} stalled at {shown(owner)}: behind, and no progress"
        yield _event(arn, "stalled", f"{text} for a minute", owner)


def _event(arn: str, kind: str, text: str, client_id: str | None = None) -> Event:
    return Event(
        kind=kind, text=f"{stream_name(arn)}: {text}", client_id=client_id, stream=arn
    )


def _named(rows: Sequence[ShardRow]) -> str:
    if len(rows) == 1:
        return f"shard {_short(rows[0].key.shard_id)}"
    return f"{len(rows)} shards"


def _short(shard_id: str) -> str:
    """Return a shard's number: shardId-000000000012 is 12."""
    number = shard_id.rpartition("-")[2]
    return number.lstrip("0") or "0" if number.isdigit() else shard_id
