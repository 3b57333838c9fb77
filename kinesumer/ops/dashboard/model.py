"""Define the page's model, which is sent as JSON; see docs/dashboard.md."""

from __future__ import annotations

import msgspec

VERSION = 1


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event between two polls."""

    kind: str
    text: str
    client_id: str | None = None
    stream: str | None = None
    at: float = 0.0  # the time of the poll that found the event, in seconds since 1970
    number: int = 0  # a number that is higher for each later event of this server


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A client that isn't marked dead."""

    client_id: str
    slot: int  # the number of its colour and pattern, fixed while the server runs
    index: int | None
    leader: bool
    states: list[str]  # ``up``, or some of silent, degraded, leaving, drained, joining
    heartbeat_age_seconds: float | None
    heartbeat_late_seconds: float  # a heartbeat older than this is overdue
    weight: int
    label: str  # the zone or cluster that the client was configured with
    shards: int
    millis_behind: int | None  # the largest lag of a stored position of its shards
    caught_up: bool | None  # whether it reads records as they arrive
    query: bool  # whether the client is a Spark query, the only member of its group
    # As in ``status --json``: the load that the client reports, and its work relative
    # to its share. None if unknown.
    load: dict[str, float] | None
    load_share: float | None
    failures: str  # what its user code could not handle in the last minute, in words


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard that is or should be consumed, and its place in its stream's band."""

    shard_id: str
    x: float  # the shard's start in the hash space, 0 to 1
    width: float
    lane: int  # the row in the band: 0 at the top, waiting children below their parents
    # "owned", "moving", "unowned", "orphaned", "waiting" or "ended" (status --json).
    state: str
    owner: str | None
    planned_owner: str | None
    epoch: int
    millis_behind: int | None  # the lag of the stored position
    # Whether its owner reads records as they arrive. None if the lag is unknown.
    caught_up: bool | None
    # The scope of the pause: shard, stream or all. None if the shard isn't paused.
    paused: str | None
    pause_reason: str
    isolated: bool  # whether it is read one record at a time, because owners died
    poison: str | None  # the position of the record that killed its readers
    load: dict[str, float] | None  # what its owner reports; None if unknown
    hot: bool  # whether it alone has more work than a client's share
    parents: list[str]
    first_hash: str
    last_hash: str
    position: str | None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A contiguous range of hash keys that the plan assigns to a client."""

    client_id: str
    x: float
    width: float


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, whose hash space the page shows as a horizontal band."""

    stream_arn: str
    name: str
    slot: int  # the number of its colour in charts, fixed while the server runs
    place: str  # account and region, to distinguish streams with the same name
    lanes: int
    paused: bool
    pause_reason: str
    # Whether all shards of the first listing have rows. Clients claim no shard before.
    baseline: bool
    shards: list[Shard]
    parts: list[Part]
    states: dict[str, int]
    millis_behind: int | None
    caught_up: bool | None  # whether all of its shards are
    records_per_second: float | None
    lag_problem: str | None
    fan_out: str  # the stream consumers and who uses them; empty if all clients poll
    failures: str  # what user code could not handle in the last minute, in words


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The last plan, and why it is as it is, as in ``status --json``."""

    assignor: str | None
    age_seconds: float | None
    reasons: list[str]
    waits: bool


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that describe the whole fleet."""

    clients: int
    shards: int  # except ended shards and those that wait for their parents
    owned: int
    neglected: int  # shards that have no live owner and aren't paused
    paused: int
    millis_behind: int | None
    caught_up: bool | None  # whether all shards are
    records_per_second: float | None
    # The share of the handlers' calls that failed in the last minute, and the records
    # that became dead letters or were skipped; None if nothing failed.
    failing_share: float | None
    failed_records: int | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A stream's values over the last hour, one for each of the history's times."""

    stream_arn: str
    name: str
    slot: int  # as in the stream's band
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
    at: float  # when the rows were read, in seconds since 1970
    # How old the rows and the lags were when this state was sent; None if never read.
    age_seconds: float | None
    lag_age_seconds: float | None
    every_seconds: float  # the time between two polls
    control: bool  # whether the server accepts changes from requests with the token
    records: bool  # whether it returns records to requests with the token
    letters: bool  # whether it returns dead letters to requests with the token
    leader: str | None
    paused: bool  # whether all streams of the app are paused together
    pause_reason: str
    problems: list[str]
    # Why the rows can't be read. The other fields then keep their last values.
    trouble: str | None
    plan: Plan
    totals: Totals
    members: list[Member]
    streams: list[Band]
    events: list[Event]
    history: History
