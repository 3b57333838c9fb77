"""Rows of the state store as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kinesumer.model.positions import Position
from kinesumer.model.streams import Start

if TYPE_CHECKING:
    from kinesumer.model.positions import Position, Tip
    from kinesumer.model.streams import Range, ShardKey, Start


Value = str | int | bool | frozenset[str]
"""An attribute: DynamoDB's S, N, BOOL and SS. An empty set can't be stored."""


Row = dict[str, Value]
"""An item by attribute name, its keys ``pk`` and ``sk`` among them."""


class UnsupportedValue(str):
    """An attribute of a type that ``Value`` doesn't cover, as DynamoDB's JSON.

    Reading such an attribute raises CorruptRowError. If it were left out of the row, a
    default would replace it.
    """

    __slots__ = ()


class Key(NamedTuple):
    """A row's primary key."""

    pk: str
    sk: str


CLIENT, QUERY = "client", "query"
"""Kinds of members. Clients share a group. A Spark query needs a group of its own."""


QUERY_ID = "spark-query"
"""The client id of every query. A group has one query at a time."""


class MemberRow(NamedTuple):
    """One client's registration, heartbeat and part of the plan."""

    client_id: str
    session: str
    incarnation: int = 0
    beat: int = 0
    lease_ms: int = 8000
    weight: int = 1
    state: str = "up"
    dead: bool = False
    streams: frozenset[str] = frozenset()
    """ARNs of the streams that the client requests."""
    index: int | None = None  # type: ignore[assignment] # not tuple.index()
    range: Range | None = None
    """None: the session has no plan yet, or has changed its streams since."""
    syncs: frozenset[str] = frozenset()
    """Streams whose shard rows this client synchronizes, since the leader can't."""
    clients: int = 1
    """Number of clients in the plan. The heartbeat interval grows with it."""
    leader_epoch: int = 0
    plan_version: int = 0
    last_update: str = ""
    kind: str = CLIENT
    label: str = ""
    """The zone or cluster that the client says it is in."""
    notice: int = 0
    """Number of operators' changes that this session must apply."""
    drained: bool = False
    """Whether an operator drains this session: it gets no shards."""

    @property
    def plan(self) -> tuple[int, int]:
        """The plan that the range belongs to. A later plan compares greater."""
        return self.leader_epoch, self.plan_version

    @property
    def dead_value(self) -> bool:
        """The value of the attribute ``dead``."""
        return self.dead


class LivenessRow(NamedTuple):
    """The liveness fields of a member's row. Parsing them never fails.

    Writes compare the raw values, so they stand here as stored; None if missing.
    """

    client_id: str
    session: Value | None
    beat: Value | None
    incarnation: Value | None
    dead_value: Value | None
    """The attribute ``dead``. Heartbeats require that it is false or missing."""
    lease_ms: int
    state: str
    last_update: str

    @property
    def dead(self) -> bool:
        """Return whether the row is marked dead, so that heartbeats fail."""
        return self.dead_value is not None and self.dead_value is not False


class LeaderRow(NamedTuple):
    """The leading session and the version of its plan."""

    session: str
    client_id: str
    leader_epoch: int
    plan_version: int = 0


class GroupRow(NamedTuple):
    """The identity of an app's rows, and whether the whole app is paused."""

    group_id: str
    paused: bool = False
    pause_reason: str = ""
    resetting: bool = False
    """An operator is deleting the app's rows. No client may start meanwhile. This row
    is deleted last."""


class StreamRow(NamedTuple):
    """A stream's identity, start and pause in the group."""

    arn: str
    created_at: float
    start: Start
    baseline: bool = False
    """Whether all shards of the start have rows. Claims are allowed only then."""
    paused: bool = False
    """Whether the stream is paused: clients release its shards and claim none."""
    pause_reason: str = ""


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
    tip: Tip | None = None
    """It holds for any checkpoint, so a seek doesn't change it."""
    paused: bool = False
    pause_reason: str = ""

    @property
    def read_until(self) -> float:
        """The time up to which every record that arrived was read; 0 if unknown."""
        if self.tip is None or self.position is None:
            return 0.0
        return self.tip.at if self.position >= self.tip.position else 0.0


class Liveness(Protocol):
    """The liveness fields that MemberRow and LivenessRow have in common."""

    @property
    def client_id(self) -> str: ...
    @property
    def session(self) -> Value | None: ...
    @property
    def beat(self) -> Value | None: ...
    @property
    def lease_ms(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def dead(self) -> bool: ...
