"""Define the page's model, which is sent as JSON; see docs/dashboard.md."""

from __future__ import annotations

import msgspec

from kinesumer.ops.group.report import GroupReport


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event between two polls."""

    kind: str
    text: str
    client_id: str | None = None
    stream: str | None = None
    at: float = 0.0  # the time of the poll that found the event, in seconds since 1970
    number: int = 0  # a number that is higher for each later event of this server


class DashboardInfo(msgspec.Struct, frozen=True):
    """The app that the dashboard shows, and the server's options."""

    app: str
    table: str
    region: str = ""
    control: bool = False  # whether the server accepts changes with the token
    records: bool = False  # whether it returns records to requests with the token
    letters: bool = False  # whether it returns dead letters to requests with the token


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """The values in one stream's band that the stream's report lacks."""

    slot: int  # the number of its colour in charts, fixed while the server runs
    lanes: int
    # The lane of each visible shard, by its id and in the order of hash keys: 0 at the
    # top, waiting children below their parents.
    lane: dict[str, int]
    records_per_second: float | None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that describe the whole fleet."""

    clients: int
    shards: int  # except ended shards and those that wait for their parents
    owned: int
    neglected: int  # shards that have no live owner and aren't paused
    paused: int
    millis_behind_latest: int | None
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

    info: DashboardInfo
    report: GroupReport
    at: float  # when the rows were read, in seconds since 1970
    # How old the rows and the lags were when this state was sent; None if never read.
    age_seconds: float | None = None
    lag_age_seconds: float | None = None
    every_seconds: float  # the time between two polls
    # Why the rows can't be read. The other fields then keep their last values.
    trouble: str | None = None
    totals: Totals
    # The number of each client's colour and pattern, fixed while the server runs.
    slots: dict[str, int] = {}
    bands: dict[str, Band]  # by stream ARN
    events: list[Event] = []
    history: History = History(times=[], millis_behind=[], records_per_second=[])
