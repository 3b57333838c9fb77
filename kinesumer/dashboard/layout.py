"""Place each shard in its stream's band, children below their unfinished parents."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from kinesumer.dashboard.model import Band, Part, Shard
from kinesumer.model.streams import HASH_KEYS, stream_name
from kinesumer.wire.rows import hash_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.admin.lag import Lags
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.model.rows import MemberRow, ShardRow, StreamRow
    from kinesumer.model.streams import ShardKey


def build_bands(
    snapshot: Snapshot, lags: Lags, rates: Mapping[str, float]
) -> list[Band]:
    """Return the band of every stream, in the order of the stream rows."""
    return [_band(stream, snapshot, lags, rates) for stream in snapshot.streams]


def _band(
    stream: StreamRow, snapshot: Snapshot, lags: Lags, rates: Mapping[str, float]
) -> Band:
    rows = snapshot.shards[stream.arn]
    placed = assign_lanes(rows)
    behind = [lags.millis[row.key] for row in rows if row.key in lags.millis]
    return Band(
        stream_arn=stream.arn,
        name=stream_name(stream.arn),
        place=", ".join(stream.arn.split(":")[4:2:-1]),
        lanes=1 + max((lane for _, lane in placed), default=0),
        paused=stream.paused,
        pause_reason=stream.pause_reason,
        baseline=stream.baseline,
        shards=[_shard(row, lane, snapshot, lags) for row, lane in placed],
        parts=_parts(stream.arn, snapshot.alive),
        states=dict(sorted(Counter(snapshot.state(row) for row in rows).items())),
        millis_behind=max(behind, default=None),
        records_per_second=rates.get(stream.arn),
        lag_problem=lags.problems.get(stream.arn),
    )


def _shard(row: ShardRow, lane: int, snapshot: Snapshot, lags: Lags) -> Shard:
    pause = snapshot.pause(row)
    return Shard(
        shard_id=row.key.shard_id,
        x=share(row.first_hash),
        width=share(row.last_hash - row.first_hash + 1),
        lane=lane,
        state=snapshot.state(row),
        owner=row.owner_id or None,
        planned_owner=snapshot.planned.get(row.key),
        epoch=row.epoch,
        millis_behind=lags.millis.get(row.key),
        paused=pause.scope if pause else None,
        pause_reason=pause.reason if pause else "",
        parents=sorted(row.parents),
        first_hash=hash_text(row.first_hash),
        last_hash=hash_text(row.last_hash),
        position=row.position.sequence_number if row.position else None,
    )


def _parts(arn: str, members: Iterable[MemberRow]) -> list[Part]:
    parts = [
        Part(
            client_id=member.client_id,
            x=share(interval.first),
            width=share(interval.last - interval.first + 1),
        )
        for member in members
        for interval in member.range or ()
        if interval.stream_arn == arn
    ]
    return sorted(parts, key=lambda part: part.x)


def share(hash_keys: int) -> float:
    """Return a number of hash keys as a share of all, 0 to 1."""
    return round(hash_keys / HASH_KEYS, 9)


def assign_lanes(rows: Sequence[ShardRow]) -> list[tuple[ShardRow, int]]:
    """Return the visible shards and their lanes, in hash-key order.

    Shards that are read are in lane 0. A waiting child is one lane below the lowest of
    its parents, which remain visible until no child waits for them. Shards that still
    overlap, as after a repair, are placed in lower lanes.
    """
    awaited = {
        (row.key.stream_arn, parent)
        for row in rows
        if not row.ready and not row.ended
        for parent in row.parents
    }
    depths = _depths(rows)
    visible = [row for row in rows if not row.ended or row.key in awaited]
    order = sorted(visible, key=lambda row: (row.first_hash, row.key.shard_id))
    places: dict[ShardKey, int] = {}
    filled: dict[int, int] = {}
    for row in sorted(order, key=lambda row: depths[row.key]):
        lane = depths[row.key]
        while filled.get(lane, -1) >= row.first_hash:
            lane += 1
        places[row.key], filled[lane] = lane, row.last_hash
    return [(row, places[row.key]) for row in order]


def _depths(rows: Sequence[ShardRow]) -> dict[ShardKey, int]:
    """Return the number of unfinished generations above each shard.

    Rows that name each other as parents, which only a manual edit can cause, count as
    far as their order is known.
    """
    depths = {row.key: 0 for row in rows}
    below: dict[ShardKey, list[ShardKey]] = defaultdict(list)
    left: dict[ShardKey, int] = {}
    for row in rows:
        if not (row.ready or row.ended):
            parents = {row.key._replace(shard_id=parent) for parent in row.parents}
            left[row.key] = len(parents & depths.keys())
            for parent in parents:
                below[parent].append(row.key)
    free = [key for key in depths if not left.get(key)]
    while free:
        key = free.pop()
        for child in below[key]:
            depths[child] = max(depths[child], depths[key] + 1)
            left[child] -= 1
            if not left[child]:
                free.append(child)
    return depths
