"""The page's model out of what was seen: pure, so that any fleet can be drawn."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.lag import Lags
from kinesumer.admin.status import report, stall_limit_seconds
from kinesumer.dashboard.layout import build_bands
from kinesumer.dashboard.model import Band, Event, History, Member, State, Totals
from kinesumer.model.rows import CLIENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.admin.observation import Observation
    from kinesumer.model.rows import MemberRow


class DashboardInfo(NamedTuple):
    """What was asked for, and the server's side of it."""

    app: str
    table: str
    region: str = ""
    control: bool = False


class ViewInput(NamedTuple):
    """Everything that the page is drawn from."""

    sighting: Observation
    at: float
    """Seconds since 1970."""
    every_seconds: float
    lags: Lags = Lags({}, {})
    rates: Mapping[str, float] = {}
    slots: Mapping[str, int] = {}
    events: Sequence[Event] = ()
    history: History = History(times=[], millis_behind=[], records_per_second=[])
    trouble: str | None = None


def build_state(about: DashboardInfo, seen: ViewInput) -> State:
    """Return the page's model."""
    found = seen.sighting.found
    streams = build_bands(found, seen.lags, seen.rates)
    ages = {m.session: seen.sighting.age(m.session) for m in found.alive}
    told = report(about.app, about.table, found, seen.lags, ages)
    behind = _behind(seen)
    return State(
        app=about.app,
        table=about.table,
        region=about.region,
        at=seen.at,
        every_seconds=seen.every_seconds,
        control=about.control,
        leader=found.leader_id,
        paused=found.group is not None and found.group.paused,
        pause_reason=found.group.pause_reason if found.group else "",
        problems=told["problems"],
        trouble=seen.trouble,
        totals=_totals(streams, seen),
        members=[_member(member, seen, behind) for member in found.alive],
        streams=streams,
        events=list(seen.events),
        history=seen.history,
    )


def _behind(seen: ViewInput) -> dict[str, int]:
    """Return each session's largest lag."""
    behind: dict[str, int] = defaultdict(int)
    for page in seen.sighting.found.shards.values():
        for row in page:
            if row.owner and row.key in seen.lags.millis:
                millis = seen.lags.millis[row.key]
                behind[row.owner] = max(behind[row.owner], millis)
    return behind


def _totals(streams: Sequence[Band], seen: ViewInput) -> Totals:
    shards = [
        shard
        for band in streams
        for shard in band.shards
        if shard.state not in ("ended", "waiting")
    ]
    neglected = [s for s in shards if s.state not in ("owned", "moving")]
    behind = [b.millis_behind for b in streams if b.millis_behind is not None]
    return Totals(
        clients=len(seen.sighting.found.alive),
        shards=len(shards),
        owned=len(shards) - len(neglected),
        neglected=sum(shard.paused is None for shard in neglected),
        paused=sum(shard.paused is not None for shard in shards),
        millis_behind=max(behind, default=None),
        records_per_second=sum(seen.rates.values()) if seen.rates else None,
    )


def _member(member: MemberRow, seen: ViewInput, behind: Mapping[str, int]) -> Member:
    found = seen.sighting.found
    return Member(
        client_id=member.client_id,
        slot=seen.slots.get(member.client_id, 0),
        index=member.index,
        leader=member.client_id == found.leader_id,
        states=_states(member, seen.sighting) or ["up"],
        heartbeat_age_seconds=round(seen.sighting.age(member.session), 1),
        heartbeat_late_seconds=stall_limit_seconds(member),
        weight=member.weight,
        label=member.label,
        shards=found.owned[member.session],
        millis_behind=behind.get(member.session),
        query=member.kind != CLIENT,
    )


def _states(member: MemberRow, sighting: Observation) -> list[str]:
    states = []
    if member.session in sighting.silent:
        states.append("silent")
    if member.state != "up":
        states.append(member.state)
    if member.drained:
        states.append("drained")
    if member.range is None and member.kind == CLIENT:
        states.append("joining")
    return states
