"""Build the page's model from an observation, without I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.lag import Lags
from kinesumer.admin.observation import stall_limit_seconds
from kinesumer.admin.status import report
from kinesumer.dashboard.layout import build_bands
from kinesumer.dashboard.model import Band, Event, History, Member, State, Totals
from kinesumer.model.rows import CLIENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.admin.observation import Observation
    from kinesumer.model.rows import MemberRow

HUES, PATTERNS = 8, 4
"""The page's palette; the first pattern is plain."""


class DashboardInfo(NamedTuple):
    """The app that the dashboard shows, and the server's options."""

    app: str
    table: str
    region: str = ""
    control: bool = False


class ViewInput(NamedTuple):
    """Everything that the page is built from."""

    observation: Observation
    at: float
    """Seconds since 1970."""
    every_seconds: float
    lags: Lags = Lags({}, {})
    rates: Mapping[str, float] = {}
    slots: Mapping[str, int] = {}
    events: Sequence[Event] = ()
    history: History = History(times=[], millis_behind=[], records_per_second=[])
    trouble: str | None = None


def build_state(info: DashboardInfo, view: ViewInput) -> State:
    """Return the page's model."""
    snapshot = view.observation.snapshot
    streams = build_bands(snapshot, view.lags, view.rates)
    ages = {m.session: view.observation.age(m.session) for m in snapshot.alive}
    status = report(info.app, info.table, snapshot, view.lags, ages)
    lags = _session_lags(view)
    return State(
        app=info.app,
        table=info.table,
        region=info.region,
        at=view.at,
        every_seconds=view.every_seconds,
        control=info.control,
        leader=snapshot.leader_id,
        paused=snapshot.group is not None and snapshot.group.paused,
        pause_reason=snapshot.group.pause_reason if snapshot.group else "",
        problems=status["problems"],
        trouble=view.trouble,
        totals=_totals(streams, view),
        members=[_member(member, view, lags) for member in snapshot.alive],
        streams=streams,
        events=list(view.events),
        history=view.history,
    )


def _session_lags(view: ViewInput) -> dict[str, int]:
    """Return the largest lag of each session's shards."""
    lags: dict[str, int] = defaultdict(int)
    for page in view.observation.snapshot.shards.values():
        for row in page:
            if row.owner and row.key in view.lags.millis:
                lags[row.owner] = max(lags[row.owner], view.lags.millis[row.key])
    return lags


def _totals(streams: Sequence[Band], view: ViewInput) -> Totals:
    shards = [
        shard
        for band in streams
        for shard in band.shards
        if shard.state not in ("ended", "waiting")
    ]
    unowned = [s for s in shards if s.state not in ("owned", "moving")]
    lags = [b.millis_behind for b in streams if b.millis_behind is not None]
    return Totals(
        clients=len(view.observation.snapshot.alive),
        shards=len(shards),
        owned=len(shards) - len(unowned),
        neglected=sum(shard.paused is None for shard in unowned),
        paused=sum(shard.paused is not None for shard in shards),
        millis_behind=max(lags, default=None),
        records_per_second=sum(view.rates.values()) if view.rates else None,
    )


def _member(member: MemberRow, view: ViewInput, lags: Mapping[str, int]) -> Member:
    observed = view.observation
    return Member(
        client_id=member.client_id,
        slot=view.slots.get(member.client_id, 0),
        index=member.index,
        leader=member.client_id == observed.snapshot.leader_id,
        states=observed.states(member),
        heartbeat_age_seconds=round(observed.age(member.session), 1),
        heartbeat_late_seconds=stall_limit_seconds(member),
        weight=member.weight,
        label=member.label,
        shards=observed.snapshot.owned[member.session],
        millis_behind=lags.get(member.session),
        query=member.kind != CLIENT,
    )


def assign_slots(known: Mapping[str, int], client_ids: Iterable[str]) -> dict[str, int]:
    """Return the colour slot of each client; known clients keep theirs.

    The client id determines the preferred hue, so that a client mostly has the same
    colour after a restart of the server. If that is taken, the client gets the next
    free slot, plain before patterned, or the least used one if none is free.
    """
    ids = sorted(set(client_ids))
    slots = {client_id: known[client_id] for client_id in ids if client_id in known}
    used = Counter(slots.values())
    for client_id in ids:
        if client_id not in slots:
            first = _preferred_hue(client_id)
            order = [
                pattern * HUES + (first + step) % HUES
                for pattern in range(PATTERNS)
                for step in range(HUES)
            ]
            slots[client_id] = min(order, key=lambda slot: used[slot])
            used[slots[client_id]] += 1
    return slots


def _preferred_hue(client_id: str) -> int:
    return blake2b(client_id.encode(), digest_size=1).digest()[0] % HUES
