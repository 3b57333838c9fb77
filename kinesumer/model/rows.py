"""The rows of the state store, as named tuples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kinesumer.model.positions import BEFORE_ALL, Position, Tip
from kinesumer.model.streams import FanOutUse, Range, ShardKey, Start

# The value of an attribute. DynamoDB's types are S, N, BOOL and SS. An empty set can't
# be stored.
Value = str | int | bool | frozenset[str]

# An item's values by attribute name, including the keys ``pk`` and ``sk``.
Row = dict[str, Value]


class UnsupportedValue(str):
    """An attribute whose type ``Value`` doesn't include, as text in DynamoDB's JSON.

    Reading such an attribute raises CorruptRowError. If the attribute were left out of
    the row, a default would silently replace it.
    """

    __slots__ = ()


class Key(NamedTuple):
    """A row's primary key."""

    pk: str
    sk: str


# Kinds of members. Many clients may share a group, but a Spark query needs a group of
# its own.
CLIENT, QUERY = "client", "query"

# The client id of every query. This suffices, since a group has at most one query at a
# time.
QUERY_ID = "spark-query"


# The meaning of a member row without an interval, such as one of an older version:
# the default of ``Config.commit_interval_seconds``.
DEFAULT_COMMIT_MS = 5_000


class MemberRow(NamedTuple):
    """One client's registration, heartbeat and part of the plan."""

    client_id: str
    session: str
    incarnation: int = 0
    beat: int = 0
    lease_ms: int = 8000  # the default of ``Config.lease_duration_seconds``
    weight: int = 1
    state: str = "up"
    dead: bool = False
    # ARNs of the streams that the client requests.
    streams: frozenset[str] = frozenset()
    index: int | None = None  # type: ignore[assignment] # not tuple.index()
    # None if the session has no plan yet, or has changed its streams since the plan.
    range: Range | None = None
    # Streams whose shard rows this client synchronizes, since the leader can't.
    syncs: frozenset[str] = frozenset()
    # Number of clients in the plan. The heartbeat interval grows with it.
    clients: int = 1
    leader_epoch: int = 0
    plan_version: int = 0
    last_update: str = ""
    kind: str = CLIENT
    label: str = ""  # the zone or cluster that the client says it is in
    # The greatest number of shards that the client owns; None without a limit.
    max_shards: int | None = None
    # The client stores the positions of its shards after each of these intervals.
    commit_ms: int = DEFAULT_COMMIT_MS
    # Counts operators' changes; after each one, the session reads its rows again.
    notice: int = 0
    # True if an operator has decided that this session gets no shards.
    drained: bool = False
    # By stream ARN: how the client uses fan-out. It polls the other streams.
    fan_out: Mapping[str, FanOutUse] = {}
    # The load of the client's shards, as ``wire.reports`` codes it.
    load: str = ""
    # The client's incidents, as ``wire.reports`` codes them.
    incidents: str = ""
    # What the client's user code could not handle, as ``wire.reports`` codes it.
    failures: str = ""

    @property
    def plan(self) -> tuple[int, int]:
        """The plan that the range belongs to. A later plan compares greater."""
        return self.leader_epoch, self.plan_version

    @property
    def dead_value(self) -> bool:
        """The value of the attribute ``dead``."""
        return self.dead


class LivenessRow(NamedTuple):
    """The liveness fields of a member's row. Parsing them never fails."""

    # Most fields hold the stored value, or None if it is missing, since conditions of
    # writes compare with the stored value.

    client_id: str
    session: Value | None
    beat: Value | None
    incarnation: Value | None
    # The attribute ``dead``. Heartbeats require that it is false or missing.
    dead_value: Value | None
    lease_ms: int
    state: str
    last_update: str

    @property
    def dead(self) -> bool:
        """Return whether the row is marked dead, so that heartbeats fail."""
        return self.dead_value is not None and self.dead_value is not False


# A row with the fields that tell whether a session is alive.
Liveness = MemberRow | LivenessRow


class LeaderRow(NamedTuple):
    """The leading session, and the version and the origin of the last plan."""

    session: str
    client_id: str
    leader_epoch: int
    plan_version: int = 0
    assignor: str = ""  # empty in a row of an older version
    # The time that plans have between them if they only follow the load.
    rebalance_ms: int = 0
    planned_at: float = 0.0  # by the leader's clock, in seconds since 1970


class GroupRow(NamedTuple):
    """The identity of an app's rows, and whether the whole app is paused."""

    group_id: str
    paused: bool = False
    pause_reason: str = ""
    # True while an operator deletes the app's rows. No client may start during this
    # time. This row is deleted last.
    resetting: bool = False


class AppRow(NamedTuple):
    """The streams that an app polls, by their ARNs, and when it last said so."""

    app: str
    streams: frozenset[str]
    updated_at: float  # by a client's wall clock


class StreamRow(NamedTuple):
    """A stream's identity, start and pause in the group."""

    arn: str
    created_at: float
    start: Start
    # Whether all initial shards have rows. If not, no shard may be claimed.
    baseline: bool = False
    # Whether the stream is paused. If so, clients release its shards and claim none.
    paused: bool = False
    pause_reason: str = ""


class Deaths(NamedTuple):
    """The deaths of a shard's owners whose records the shard hasn't passed since."""

    counted: int = 0
    # Kinesis's time of the claim after the last death. A record that arrived later
    # can't have caused a death.
    at: float = 0.0
    # What the present owner gave to user code: the first record that may have caused a
    # death, or, in isolation, the only record.
    tried: Position | None = None
    suspect: Position | None = None  # the record tried at the last death in isolation
    # The record that the deaths name. It is void once the position has passed it.
    poison: Position | None = None


NO_DEATHS = Deaths()
# From this number of deaths on, a shard is read in isolation.
ISOLATING_DEATHS = 3


class ShardRow(NamedTuple):
    """Owner, epoch and checkpoint of one shard."""

    key: ShardKey
    first_hash: int
    last_hash: int
    start: Start
    parents: frozenset[str] = frozenset()
    epoch: int = 0
    owner: str = ""
    owner_id: str = ""
    claim: str = ""
    position: Position | None = None
    ended: bool = False
    ready: bool = False
    tip: Tip | None = None  # independent of the checkpoint, so a seek keeps it
    deaths: Deaths = NO_DEATHS
    # Whether the owner is no client of the app. Only the state store knows when such an
    # owner is dead: the row then has no owner.
    is_foreign: bool = False
    paused: bool = False
    pause_reason: str = ""

    @property
    def is_isolated(self) -> bool:
        """Return whether the shard is read in isolation, one record at a time."""
        return self.deaths.counted >= ISOLATING_DEATHS and not self.ended

    @property
    def poison(self) -> Position | None:
        """The record that killed its readers, unless the position has passed it."""
        poison, position = self.deaths.poison, self.position
        if (
            poison is None
            or self.ended
            or (position is not None and position >= poison)
        ):
            return None
        return poison

    @property
    def read_until(self) -> float:
        """The time up to which every record that arrived was read; 0 if unknown."""
        if self.tip is None:
            return 0.0
        position = self.position or BEFORE_ALL
        return self.tip.at if position >= self.tip.position else 0.0
