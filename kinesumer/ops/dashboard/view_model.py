"""Build the page's model from the report of a group, without I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kinesumer.ops.dashboard.model import Band, State, Totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.ops.group.report import GroupReport, ShardReport, StreamReport

HUES, PATTERNS = 8, 4  # the page's palette; the first pattern is plain


def build_state(
    report: GroupReport,
    rates: Mapping[str, float] = MappingProxyType({}),
    stream_slots: Mapping[str, int] = MappingProxyType({}),
    **fields: Any,
) -> State:
    """Return the page's model. ``fields`` are other fields of ``State``."""
    bands = {
        stream.stream_arn: _band(
            stream,
            stream_slots.get(stream.stream_arn, 0),
            rates.get(stream.stream_arn, _reported_rate(stream)),
        )
        for stream in report.streams
    }
    return State(report=report, totals=_totals(report, bands), bands=bands, **fields)


def _totals(report: GroupReport, bands: Mapping[str, Band]) -> Totals:
    shards = [
        shard
        for stream in report.streams
        for shard in stream.shards
        if shard.state not in ("ended", "waiting")
    ]
    rates = [band.records_per_second for band in bands.values()]
    known_rates = [rate for rate in rates if rate is not None]
    lags = [one.millis_behind_latest for one in report.streams]
    known_lags = [lag for lag in lags if lag is not None]
    failures = [one.failures for one in report.streams if one.failures is not None]
    calls = sum(one.calls for one in failures)
    failed = sum(one.failed_calls for one in failures)
    return Totals(
        clients=len(report.members),
        shards=len(shards),
        owned=sum(shard.state in ("owned", "moving") for shard in shards),
        neglected=sum(shard.is_unconsumed for shard in shards),
        paused=sum(shard.paused is not None for shard in shards),
        millis_behind_latest=max(known_lags, default=None),
        caught_up=_all_caught_up(report),
        records_per_second=sum(known_rates) if known_rates else None,
        failing_share=failed / max(1, calls) if failures else None,
        failed_records=sum(one.dead_letters + one.skipped_records for one in failures)
        if failures
        else None,
    )


def _all_caught_up(report: GroupReport) -> bool | None:
    found = {
        shard.caught_up
        for stream in report.streams
        for shard in stream.shards
        if shard.state != "ended"
    }
    return False if False in found else True if found == {True} else None


def _band(stream: StreamReport, slot: int, rate: float | None) -> Band:
    lane = assign_lanes(stream.shards)
    lanes = 1 + max(lane.values(), default=0)
    return Band(slot=slot, lanes=lanes, lane=lane, records_per_second=rate)


def _reported_rate(stream: StreamReport) -> float | None:
    """Return the records per second that clients report; None if they report none."""
    loads = [shard.load for shard in stream.shards if shard.load is not None]
    return sum(load.records_per_second for load in loads) if loads else None


def assign_lanes(shards: Sequence[ShardReport]) -> dict[str, int]:
    """Return the lane of each visible shard, by its id and in hash-key order.

    Shards that are read are in lane 0. A waiting child is one lane below the lowest of
    its parents, which remain visible until no child waits for them. If shards overlap
    nevertheless, as after a repair of rows, some are moved to lower lanes.
    """
    waiting = [shard for shard in shards if shard.state == "waiting"]
    awaited = {parent for shard in waiting for parent in shard.parents}
    depths = _depths(shards)
    visible = [s for s in shards if s.state != "ended" or s.shard_id in awaited]
    order = sorted(visible, key=lambda shard: (shard.first_hash, shard.shard_id))
    lanes: dict[str, int] = {}
    filled: dict[int, str] = {}  # the last hash key, whose texts have one length
    for shard in sorted(order, key=lambda shard: depths[shard.shard_id]):
        lane = depths[shard.shard_id]
        while filled.get(lane, "") >= shard.first_hash:
            lane += 1
        lanes[shard.shard_id], filled[lane] = lane, shard.last_hash
    return {shard.shard_id: lanes[shard.shard_id] for shard in order}


def _depths(shards: Sequence[ShardReport]) -> dict[str, int]:
    """Return how many generations of unfinished ancestors each shard has.

    Only a manual edit can make rows name each other as parents. Then the depth counts
    only parents outside such a cycle.
    """
    depths = {shard.shard_id: 0 for shard in shards}
    below: dict[str, list[str]] = defaultdict(list)
    left: dict[str, int] = {}
    for shard in shards:
        if shard.state == "waiting":
            left[shard.shard_id] = len(depths.keys() & shard.parents)
            for parent in shard.parents:
                below[parent].append(shard.shard_id)
    free = [key for key in depths if not left.get(key)]
    while free:
        key = free.pop()
        for child in below[key]:
            depths[child] = max(depths[child], depths[key] + 1)
            left[child] -= 1
            if not left[child]:
                free.append(child)
    return depths


def assign_slots(known: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Return the colour slot of each client or stream; known ones keep theirs.

    The name determines the preferred hue. So a client usually has the same colour
    after a restart of the server. If that colour is taken, the client gets the next
    free slot; slots without a pattern come first. If no slot is free, it gets the least
    used one.
    """
    ordered = sorted(set(names))
    slots = {name: known[name] for name in ordered if name in known}
    used = Counter(slots.values())
    for name in ordered:
        if name not in slots:
            # Unlike hash(), blake2b gives the same result in each process.
            first = blake2b(name.encode(), digest_size=1).digest()[0]
            order = [
                pattern * HUES + (first + step) % HUES
                for pattern in range(PATTERNS)
                for step in range(HUES)
            ]
            slots[name] = min(order, key=lambda slot: used[slot])
            used[slots[name]] += 1
    return slots
