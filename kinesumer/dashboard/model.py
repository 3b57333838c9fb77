"""What the page is given, as JSON: docs/dashboard.md describes each field."""

from __future__ import annotations

import msgspec

VERSION = 1


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened between two looks."""

    kind: str
    text: str
    client_id: str | None = None
    stream: str | None = None
    at: float = 0.0
    """Seconds since 1970 of the look that showed it."""
    number: int = 0
    """Counts up while the server runs."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A client that isn't marked dead."""

    client_id: str
    slot: int
    """Its colour and pattern: kept for as long as the server runs."""
    index: int | None
    leader: bool
    states: list[str]
    """Of up, joining, leaving, degraded, drained, silent; ``up`` stands alone."""
    heartbeat_age_seconds: float | None
    heartbeat_late_seconds: float
    """From this age on a heart is late."""
    weight: int
    label: str
    """The zone or cluster that it says it is in."""
    shards: int
    millis_behind: int | None
    query: bool
    """A Spark query, which has the group for itself."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard that somebody consumes or is to consume, and its place in the band."""

    shard_id: str
    x: float
    """Where it begins in the hash space, 0 to 1."""
    width: float
    lane: int
    """0 is the band; children that wait for their parents lie beneath them."""
    state: str
    """owned, moving, unowned, orphaned, waiting or ended, as in status --json."""
    owner: str | None
    planned_owner: str | None
    epoch: int
    millis_behind: int | None
    paused: str | None
    """Who asked for the pause: shard, stream or all; null if it isn't paused."""
    pause_reason: str
    parents: list[str]
    first_hash: str
    last_hash: str
    position: str | None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A contiguous range that the plan gives to a client."""

    client_id: str
    x: float
    width: float


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's hash space."""

    stream_arn: str
    name: str
    place: str
    """Account and region, to tell streams of one name apart."""
    lanes: int
    paused: bool
    pause_reason: str
    baseline: bool
    """All shards that existed at the start are known: none is claimed before."""
    shards: list[Shard]
    parts: list[Part]
    states: dict[str, int]
    millis_behind: int | None
    records_per_second: float | None
    lag_problem: str | None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The whole fleet in figures."""

    clients: int
    shards: int
    """Those that could be read now: neither ended nor waiting for their parents."""
    owned: int
    neglected: int
    """Those that nobody reads though nobody paused them."""
    paused: int
    millis_behind: int | None
    records_per_second: float | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one stream over the last hour, a value for each time."""

    stream_arn: str
    name: str
    values: list[float | None]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The last hour: what was seen at which second since 1970."""

    times: list[int]
    millis_behind: list[Line]
    records_per_second: list[Line]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page shows."""

    version: int = VERSION
    app: str
    table: str
    region: str
    at: float
    """Seconds since 1970 when the rows were read."""
    every_seconds: float
    """How long until they are read again."""
    control: bool
    """Whether the server takes commands, from whoever has the token."""
    leader: str | None
    paused: bool
    """Whether all streams of the app are paused together."""
    pause_reason: str
    problems: list[str]
    trouble: str | None
    """Why the rows can't be read now: the rest is as it was at the last look."""
    totals: Totals
    members: list[Member]
    streams: list[Band]
    events: list[Event]
    history: History
