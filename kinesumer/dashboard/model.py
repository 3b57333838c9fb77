"""The page's model, sent as JSON; docs/dashboard.md describes each field."""

from __future__ import annotations

import msgspec

VERSION = 1


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event between two polls."""

    kind: str
    text: str
    client_id: str | None = None
    stream: str | None = None
    at: float = 0.0
    """The time of the poll that found it, in seconds since 1970."""
    number: int = 0
    """A counter that increases while the server runs."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A client that isn't marked dead."""

    client_id: str
    slot: int
    """The number of its colour and pattern, fixed while the server runs."""
    index: int | None
    leader: bool
    states: list[str]
    """Of silent, degraded, leaving, drained, joining; or ``up`` alone."""
    heartbeat_age_seconds: float | None
    heartbeat_late_seconds: float
    """The age from which a heartbeat is overdue."""
    weight: int
    label: str
    """The zone or cluster that the client was configured with."""
    shards: int
    millis_behind: int | None
    query: bool
    """Whether it is a Spark query, which has the group for itself."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard that is or should be consumed, and its place in the band."""

    shard_id: str
    x: float
    """Its start in the hash space, 0 to 1."""
    width: float
    lane: int
    """0 is the band; waiting children are below their parents."""
    state: str
    """owned, moving, unowned, orphaned, waiting or ended, as in status --json."""
    owner: str | None
    planned_owner: str | None
    epoch: int
    millis_behind: int | None
    paused: str | None
    """The scope of the pause: shard, stream or all; null if it isn't paused."""
    pause_reason: str
    parents: list[str]
    first_hash: str
    last_hash: str
    position: str | None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A contiguous range that the plan assigns to a client."""

    client_id: str
    x: float
    width: float


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's hash space."""

    stream_arn: str
    name: str
    place: str
    """Account and region, to distinguish streams with the same name."""
    lanes: int
    paused: bool
    pause_reason: str
    baseline: bool
    """Whether all shards that existed at the start are known; claims begin then."""
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
    """The shards that neither have ended nor wait for their parents."""
    owned: int
    neglected: int
    """The shards without a living owner that aren't paused."""
    paused: int
    millis_behind: int | None
    records_per_second: float | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one stream over the last hour, one for each time."""

    stream_arn: str
    name: str
    values: list[float | None]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the last hour; times are in seconds since 1970."""

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
    """When the rows were read, in seconds since 1970."""
    every_seconds: float
    """The time between two polls."""
    control: bool
    """Whether the server accepts changes from requests with the token."""
    leader: str | None
    paused: bool
    """Whether all streams of the app are paused together."""
    pause_reason: str
    problems: list[str]
    trouble: str | None
    """Why the rows can't be read; the other fields are those of the last success."""
    totals: Totals
    members: list[Member]
    streams: list[Band]
    events: list[Event]
    history: History
