"""Build the page's model from an observation, without I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model.rows import CLIENT
from kinesumer.model.streams import HASH_KEYS, stream_name, stream_place
from kinesumer.ops.dashboard.model import (
    Band,
    Event,
    History,
    Member,
    Part,
    Plan,
    Shard,
    State,
    Totals,
)
from kinesumer.ops.group.failures import (
    failures_of_group,
    failures_of_member,
    failures_of_stream,
)
from kinesumer.ops.group.fan_out import use_text, uses_of_stream
from kinesumer.ops.group.loads import load_report, sum_loads
from kinesumer.ops.group.observation import stall_limit_seconds
from kinesumer.ops.group.status import report
from kinesumer.wire.rows import hash_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.model.rows import MemberRow, ShardRow, StreamRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ops.group.failures import Failures
    from kinesumer.ops.group.observation import FleetView, Observation

HUES, PATTERNS = 8, 4  # the page's palette; the first pattern is plain


class DashboardInfo(NamedTuple):
    """The app that the dashboard shows, and the server's options."""

    app: str
    table: str
    region: str = ""
    control: bool = False
    records: bool = False
    letters: bool = False


class ViewInput(NamedTuple):
    """The data from which the page's model is built."""

    observation: Observation
    at: float  # when the rows were read, in seconds since 1970
    every_seconds: float
    rates: Mapping[str, float] = {}
    slots: Mapping[str, int] = {}  # by client id
    stream_slots: Mapping[str, int] = {}  # by stream ARN
    events: Sequence[Event] = ()
    history: History = History(times=[], millis_behind=[], records_per_second=[])
    trouble: str | None = None
    age_seconds: float | None = None
    lag_age_seconds: float | None = None


def build_state(info: DashboardInfo, view: ViewInput) -> State:
    """Return the page's model."""
    fleet = view.observation
    snapshot, group = fleet.snapshot, fleet.snapshot.group
    streams = [_band(stream, view) for stream in snapshot.streams]
    lags = _session_lags(fleet)
    return State(
        app=info.app,
        table=info.table,
        region=info.region,
        at=view.at,
        age_seconds=view.age_seconds,
        lag_age_seconds=view.lag_age_seconds,
        every_seconds=view.every_seconds,
        control=info.control,
        records=info.records,
        letters=info.letters,
        leader=snapshot.leader_id,
        paused=group is not None and group.paused,
        pause_reason=group.pause_reason if group else "",
        problems=report(info.app, info.table, fleet)["problems"],
        trouble=view.trouble,
        plan=Plan(**fleet.plan.report()),
        totals=_totals(streams, view),
        members=[_member(member, view, lags) for member in snapshot.alive],
        streams=streams,
        events=list(view.events),
        history=view.history,
    )


def _session_lags(fleet: FleetView) -> dict[str, int]:
    """Return the largest lag of each session's shards."""
    lags: dict[str, int] = defaultdict(int)
    for page in fleet.snapshot.shards.values():
        for row in page:
            if row.owner and row.key in fleet.lags.millis:
                lags[row.owner] = max(lags[row.owner], fleet.lags.millis[row.key])
    return lags


def _totals(streams: Sequence[Band], view: ViewInput) -> Totals:
    shards = [
        shard
        for band in streams
        for shard in band.shards
        if shard.state not in ("ended", "waiting")
    ]
    unowned = [s for s in shards if s.state not in ("owned", "moving")]
    rates = [b.records_per_second for b in streams if b.records_per_second is not None]
    lags = [b.millis_behind for b in streams if b.millis_behind is not None]
    failures = failures_of_group(view.observation.snapshot.alive)
    return Totals(
        clients=len(view.observation.snapshot.alive),
        shards=len(shards),
        owned=len(shards) - len(unowned),
        neglected=sum(shard.paused is None for shard in unowned),
        paused=sum(shard.paused is not None for shard in shards),
        millis_behind=max(lags, default=None),
        caught_up=view.observation.caught_up(
            row for page in view.observation.snapshot.shards.values() for row in page
        ),
        records_per_second=sum(rates) if rates else None,
        failing_share=failures.failing_share if failures else None,
        failed_records=failures.failed_records if failures else None,
    )


def _member(member: MemberRow, view: ViewInput, lags: Mapping[str, int]) -> Member:
    fleet, lag = view.observation, lags.get(member.session)
    expected = fleet.expected_lag_millis(member.session)
    return Member(
        client_id=member.client_id,
        slot=view.slots.get(member.client_id, 0),
        index=member.index,
        leader=member.client_id == fleet.snapshot.leader_id,
        states=fleet.states(member),
        heartbeat_age_seconds=round(fleet.age(member), 1),
        heartbeat_late_seconds=stall_limit_seconds(member),
        weight=member.weight,
        label=member.label,
        shards=fleet.snapshot.owned[member.session],
        millis_behind=lag,
        caught_up=None if lag is None else lag <= expected,
        query=member.kind != CLIENT,
        load=load_report(fleet.loads.of_member(member)),
        load_share=fleet.loads.share(member),
        failures=_failures_text(failures_of_member(member)),
    )


def _band(stream: StreamRow, view: ViewInput) -> Band:
    arn, fleet = stream.arn, view.observation
    lanes = assign_lanes(fleet.snapshot.shards[arn])
    parts = [
        Part(
            client_id=member.client_id,
            x=_share(interval.first),
            width=_share(interval.last - interval.first + 1),
        )
        for member in fleet.snapshot.alive
        for interval in member.range or ()
        if interval.stream_arn == arn
    ]
    return Band(
        stream_arn=arn,
        name=stream_name(arn),
        slot=view.stream_slots.get(arn, 0),
        place=stream_place(arn),
        lanes=1 + max((lane for _, lane in lanes), default=0),
        paused=stream.paused,
        pause_reason=stream.pause_reason,
        baseline=stream.baseline,
        shards=[_shard(row, lane, fleet) for row, lane in lanes],
        parts=sorted(parts, key=lambda part: part.x),
        states=dict(fleet.shard_states(arn)),
        millis_behind=fleet.millis_behind(arn),
        caught_up=fleet.caught_up(fleet.snapshot.shards[arn]),
        records_per_second=_rate(arn, view),
        lag_problem=fleet.lags.problems.get(arn),
        fan_out=", ".join(
            use_text(use.report()) for use in uses_of_stream(fleet.snapshot.alive, arn)
        ),
        failures=_failures_text(failures_of_stream(fleet.snapshot.alive, arn)),
    )


def _rate(arn: str, view: ViewInput) -> float | None:
    """Return a stream's measured rate, or until there is one, what clients report."""
    if arn in view.rates:
        return view.rates[arn]
    reports = view.observation.loads.reports
    load = sum_loads(report.load for report in reports if report.stream_arn == arn)
    return None if load is None else load.records_per_second


def _failures_text(failures: Failures | None) -> str:
    return "" if failures is None else failures.counts


def _shard(row: ShardRow, lane: int, fleet: FleetView) -> Shard:
    pause = fleet.snapshot.pause(row)
    return Shard(
        shard_id=row.key.shard_id,
        x=_share(row.first_hash),
        width=_share(row.last_hash - row.first_hash + 1),
        lane=lane,
        state=fleet.snapshot.state(row),
        owner=row.owner_id or None,
        planned_owner=fleet.snapshot.planned.get(row.key),
        epoch=row.epoch,
        millis_behind=fleet.lags.millis.get(row.key),
        caught_up=fleet.caught_up([row]),
        paused=pause.scope if pause else None,
        pause_reason=pause.reason if pause else "",
        isolated=row.is_isolated,
        poison=row.poison.text if row.poison else None,
        load=load_report(fleet.loads.of_shards.get(row.key)),
        hot=row.key in fleet.loads.hot_shards,
        parents=sorted(row.parents),
        first_hash=hash_text(row.first_hash),
        last_hash=hash_text(row.last_hash),
        position=row.position.sequence_number if row.position else None,
    )


def _share(hash_keys: int) -> float:
    """Return a number of hash keys as a share of the hash space, 0 to 1."""
    # Rounding to nine digits is invisible at any zoom, and keeps the JSON small.
    return round(hash_keys / HASH_KEYS, 9)


def assign_lanes(rows: Sequence[ShardRow]) -> list[tuple[ShardRow, int]]:
    """Return the visible shards and their lanes, in hash-key order.

    Shards that are read are in lane 0. A waiting child is one lane below the lowest of
    its parents, which remain visible until no child waits for them. If shards overlap
    nevertheless, as after a repair of rows, some are moved to lower lanes.
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
    lanes: dict[ShardKey, int] = {}
    filled: dict[int, int] = {}
    for row in sorted(order, key=lambda row: depths[row.key]):
        lane = depths[row.key]
        while filled.get(lane, -1) >= row.first_hash:
            lane += 1
        lanes[row.key], filled[lane] = lane, row.last_hash
    return [(row, lanes[row.key]) for row in order]


def _depths(rows: Sequence[ShardRow]) -> dict[ShardKey, int]:
    """Return how many generations of unfinished ancestors each shard has.

    Only a manual edit can make rows name each other as parents. Then the depth counts
    only parents outside such a cycle.
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
