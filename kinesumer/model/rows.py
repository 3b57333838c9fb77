"""What the engine needs from the world: a state store, a stream source, a clock."""

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
    """An attribute of another type, as DynamoDB's JSON has it: no row of ours has one.

    Readers refuse it by name; where it was left out, a default would take its place.
    """

    __slots__ = ()


class Key(NamedTuple):
    """A row's primary key."""

    pk: str
    sk: str


CLIENT, QUERY = "client", "query"
"""Kinds of members: plain clients share a group; a Spark query has it for itself."""


QUERY_ID = "spark-query"
"""The client id of all queries: a group has one at a time."""


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
    """ARNs of the streams that the client asks for."""
    index: int | None = None  # type: ignore[assignment] # not tuple.index()
    range: Range | None = None
    """None: no plan has reached this session, or it has changed its streams since."""
    syncs: frozenset[str] = frozenset()
    """Streams whose shard rows this client keeps in step, since the leader can't."""
    clients: int = 1
    """How many clients the plan was made for: the heartbeat interval grows with it."""
    leader_epoch: int = 0
    plan_version: int = 0
    last_update: str = ""
    kind: str = CLIENT
    label: str = ""
    """The zone or cluster that the client says it is in."""
    notice: int = 0
    """Counts what operators changed that this session has to look at."""
    drained: bool = False
    """An operator keeps this session free of shards."""

    @property
    def plan(self) -> tuple[int, int]:
        """The plan that the range is from: later ones are greater."""
        return self.leader_epoch, self.plan_version

    @property
    def dead_value(self) -> bool:
        """What the attribute ``dead`` is."""
        return self.dead


class LivenessRow(NamedTuple):
    """A member's row as far as it tells who lives: none is too broken for that.

    What writes compare is as it stands in the row, None where it is missing.
    """

    client_id: str
    session: Value | None
    beat: Value | None
    incarnation: Value | None
    dead_value: Value | None
    """The attribute ``dead``. Beats need it to be false or missing."""
    lease_ms: int
    state: str
    last_update: str

    @property
    def dead(self) -> bool:
        """Tell whether the row is marked: no beat will be accepted any more."""
        return self.dead_value is not None and self.dead_value is not False


class LeaderRow(NamedTuple):
    """Who leads, and how far its plan went."""

    session: str
    client_id: str
    leader_epoch: int
    plan_version: int = 0


class GroupRow(NamedTuple):
    """The app's part of the table: its identity, and whether all of it is paused."""

    group_id: str
    paused: bool = False
    pause_reason: str = ""
    resetting: bool = False
    """An operator deletes the app's rows: nobody may start, this row goes last."""


class StreamRow(NamedTuple):
    """A stream as the group knows it."""

    arn: str
    created_at: float
    start: Start
    baseline: bool = False
    """All shards that existed at the start have rows: claims are allowed."""
    paused: bool = False
    """Its shards are released, and claimed by nobody."""
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
    """True of the shard whatever the checkpoint is: a seek leaves it as it is."""
    paused: bool = False
    pause_reason: str = ""

    @property
    def read_until(self) -> float:
        """The time up to which all records that arrived are read; 0 if unknown."""
        if self.tip is None or self.position is None:
            return 0.0
        return self.tip.at if self.position >= self.tip.position else 0.0


class Liveness(Protocol):
    """A member's row, read whole or only as far as it tells of life."""

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
