"""The state store's rows as values, and back: section 3 of the protocol."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from kinesumer.errors import CorruptRowError
from kinesumer.model import (
    HASH_KEYS,
    WHOLE_RECORD,
    YEAR_10000,
    Interval,
    Position,
    Range,
    ShardKey,
    Start,
)
from kinesumer.ports import Key, Row, Value

GROUP_SK = "group"
LEADER_SK = "leader"
STREAM_PREFIX = "stream#"
CLIENT, QUERY = "client", "query"
"""Kinds of members: plain clients share a group; a Spark query has it for itself."""
QUERY_ID = "spark-query"
"""The client id of all queries: a group has one at a time."""

MOST = 10**18
"""Nothing is ever counted so far; DynamoDB's numbers have room for more."""
MOST_CLIENTS = 1_000_000
"""The heartbeat's interval grows with their number."""
LONGEST_LEASE_MS = 86_400_000
UNKNOWN_LEASE_MS = 60_000
"""How long a member is watched whose row doesn't tell: longer than most leases."""

T = TypeVar("T", str, int, bool, frozenset[str])


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
    keeps: frozenset[str] = frozenset()
    """Streams whose shard rows this client keeps in step, since the leader can't."""
    clients: int = 1
    """How many clients the plan was made for: the heartbeat interval grows with it."""
    leader_epoch: int = 0
    plan_version: int = 0
    last_update: str = ""
    kind: str = CLIENT

    @property
    def plan(self) -> tuple[int, int]:
        """The plan that the range is from: later ones are greater."""
        return self.leader_epoch, self.plan_version

    @property
    def mark(self) -> bool:
        """What the attribute ``dead`` is."""
        return self.dead


class Pulse(NamedTuple):
    """A member's row as far as it tells who lives: none is too broken for that.

    What writes compare is as it stands in the row, None where it is missing.
    """

    client_id: str
    session: Value | None
    beat: Value | None
    incarnation: Value | None
    mark: Value | None
    """The attribute ``dead``. Beats need it to be false or missing."""
    lease_ms: int
    state: str
    last_update: str

    @property
    def dead(self) -> bool:
        """Tell whether the row is marked: no beat will be accepted any more."""
        return self.mark is not None and self.mark is not False


class LeaderRow(NamedTuple):
    """Who leads, and how far its plan went."""

    session: str
    client_id: str
    leader_epoch: int
    plan_version: int = 0


class StreamRow(NamedTuple):
    """A stream as the group knows it."""

    arn: str
    created_at: float
    start: Start
    baseline: bool = False
    """All shards that existed at the start have rows: claims are allowed."""


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


def member_key(app: str, client_id: str) -> Key:
    """Return the key of a client's row."""
    return Key(f"member#{app}", client_id)


def leader_key(app: str) -> Key:
    """Return the key of the app's leader row."""
    return Key(f"leader#{app}", LEADER_SK)


def group_key(app: str) -> Key:
    """Return the key of the app's identity row."""
    return Key(f"group#{app}", GROUP_SK)


def stream_key(app: str, arn: str) -> Key:
    """Return the key of a stream's row."""
    return Key(f"group#{app}", STREAM_PREFIX + arn)


def shard_partition(app: str, arn: str) -> str:
    """Return the partition that holds a stream's shard rows."""
    return f"shard#{app}#{arn}"


def shard_key(app: str, shard: ShardKey, first_hash: int) -> Key:
    """Return the key of a shard's row: sorted by starting hash key."""
    pk = shard_partition(app, shard.stream_arn)
    return Key(pk, f"{hash_text(first_hash)}/{shard.shard_id}")


def hash_text(hash_key: int) -> str:
    """Return a hash key as 32 hex digits, which sort like the number."""
    return f"{hash_key:032x}"


def timestamp_text(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timestamp_seconds(value: Value | None) -> float:
    """Return RFC 3339 text as seconds since 1970, and minus infinity for anything else.

    Kinesumer for Go writes local offsets and nanoseconds.
    """
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except (ValueError, OverflowError):
        return -math.inf


def start_text(start: Start) -> str:
    """Return a start as stored: its type, and the time it names."""
    if start.timestamp is None:
        return start.type
    return f"{start.type} {start.timestamp!r}"


def range_text(range_: Range, streams: frozenset[str]) -> str:
    """Return a range as ``stream:first-last`` parts, streams by place in the list.

    A missing last hash key is the end of the hash space. Streams are those that the
    member asks for, sorted; others can't be in its range.
    """
    place = {arn: index for index, arn in enumerate(sorted(streams))}
    return ",".join(
        f"{place[arn]}:{first:x}-" + ("" if last == HASH_KEYS - 1 else f"{last:x}")
        for arn, first, last in range_
    )


def _range(row: Row, streams: frozenset[str]) -> Range | None:
    if "range" not in row:
        return None
    text, names = _get(row, "range", str), sorted(streams)
    try:
        return tuple(_interval(part, names) for part in text.split(",") if part)
    except (ValueError, IndexError):
        raise _corrupt(row, "range") from None


def _interval(part: str, names: list[str]) -> Interval:
    place, _, ends = part.partition(":")
    first_text, _, last_text = ends.partition("-")
    first = int(first_text, 16)
    last = int(last_text, 16) if last_text else HASH_KEYS - 1
    if int(place) < 0 or not 0 <= first <= last < HASH_KEYS:
        raise ValueError
    return Interval(names[int(place)], first, last)


def read_member(row: Row) -> MemberRow:
    """Return a member row as a value. Raises CorruptRowError."""
    streams = _get(row, "streams", frozenset[str], frozenset())
    return MemberRow(
        client_id=_get(row, "sk", str),
        session=_get(row, "session", str),
        incarnation=_count(row, "incarnation"),
        beat=_count(row, "beat"),
        lease_ms=_count(row, "lease_ms", first=1, last=LONGEST_LEASE_MS),
        weight=_count(row, "weight", 1, first=1),
        state=_get(row, "state", str, "up"),
        dead=_get(row, "dead", bool, False),
        streams=streams,
        index=_count(row, "index") if "index" in row else None,
        range=_range(row, streams),
        keeps=_get(row, "keeps", frozenset[str], frozenset()),
        clients=_count(row, "clients", 1, first=1, last=MOST_CLIENTS),
        leader_epoch=_count(row, "leader_epoch", 0),
        plan_version=_count(row, "plan_version", 0),
        last_update=_get(row, "last_update", str, ""),
        kind=_get(row, "kind", str, CLIENT),
    )


def read_pulse(row: Row) -> Pulse:
    """Return what a member's row tells of its life, whatever else stands in it."""
    lease = row.get("lease_ms")
    if type(lease) is not int or not 0 < lease <= LONGEST_LEASE_MS:
        lease = UNKNOWN_LEASE_MS
    return Pulse(
        client_id=str(row.get("sk", "")),
        session=row.get("session"),
        beat=row.get("beat"),
        incarnation=row.get("incarnation"),
        mark=row.get("dead"),
        lease_ms=lease,
        state=str(row.get("state", "up")),
        last_update=str(row.get("last_update", "")),
    )


def read_leader(row: Row) -> LeaderRow:
    """Return the leader row as a value. Raises CorruptRowError."""
    return LeaderRow(
        session=_get(row, "session", str),
        client_id=_get(row, "client_id", str),
        leader_epoch=_count(row, "leader_epoch"),
        plan_version=_count(row, "plan_version", 0),
    )


def read_group(row: Row) -> str:
    """Return the group's id. Raises CorruptRowError, also for a later version's row."""
    _count(row, "version", 1, first=1, last=1)
    return _get(row, "group_id", str)


def read_stream(row: Row) -> StreamRow:
    """Return a stream row as a value. Raises CorruptRowError."""
    return StreamRow(
        arn=_get(row, "sk", str).removeprefix(STREAM_PREFIX),
        created_at=_seconds(
            row, "stream_created_at", _get(row, "stream_created_at", str)
        ),
        start=_start(row),
        baseline=_get(row, "baseline", bool, False),
    )


def read_shard(row: Row) -> ShardRow:
    """Return a shard row as a value. Raises CorruptRowError."""
    arn = _get(row, "pk", str).split("#", 2)[-1]
    first_text, slash, shard_id = _get(row, "sk", str).partition("/")
    if not (slash and _SHARD_ID.fullmatch(shard_id)):
        raise _corrupt(row, "sk")
    first = _hash_key(row, "sk", first_text)
    last = _hash_key(row, "last_hash", _get(row, "last_hash", str))
    if last < first:
        raise _corrupt(row, "last_hash")
    return ShardRow(
        key=ShardKey(arn, shard_id),
        first_hash=first,
        last_hash=last,
        start=_start(row),
        parents=_get(row, "parents", frozenset[str], frozenset()),
        epoch=_count(row, "epoch", 0),
        owner=_get(row, "owner", str, ""),
        owner_id=_get(row, "owner_id", str, ""),
        claim=_get(row, "claim", str, ""),
        position=_position(row),
        ended=_get(row, "ended", bool, False),
        ready=_get(row, "ready", bool, False),
    )


def _position(row: Row) -> Position | None:
    if "sequence_number" not in row:
        return None
    number = _get(row, "sequence_number", str)
    if not is_sequence_number(number):
        raise _corrupt(row, "sequence_number")
    if "sub_sequence_number" not in row:
        return Position(number)
    return Position(number, _count(row, "sub_sequence_number", last=WHOLE_RECORD))


def _start(row: Row) -> Start:
    type_, _, timestamp = _get(row, "start", str).partition(" ")
    moment = _seconds(row, "start", timestamp) if timestamp else None
    known = {"TRIM_HORIZON": False, "LATEST": False, "AT_TIMESTAMP": True}
    if known.get(type_) is not (moment is not None):
        raise _corrupt(row, "start")
    return Start(type=type_, timestamp=moment)


def is_sequence_number(text: str) -> bool:
    """Tell whether text can be a record's number: AWS allows up to 129 digits."""
    return text.isascii() and text.isdigit() and len(text) <= 129


def _hash_key(row: Row, name: str, text: str) -> int:
    # As we write it, and no other way: the text is the key of the row.
    if not _HASH_KEY.fullmatch(text):
        raise _corrupt(row, name)
    return int(text, 16)


_HASH_KEY = re.compile(r"[0-9a-f]{32}")
_SHARD_ID = re.compile(r"[a-zA-Z0-9_.-]{1,128}")


def _seconds(row: Row, name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < YEAR_10000:
        raise _corrupt(row, name)
    return seconds


def _count(
    row: Row, name: str, default: int | None = None, *, first: int = 0, last: int = MOST
) -> int:
    number = _get(row, name, int, default)
    if not first <= number <= last:
        raise _corrupt(row, name)
    return number


def _get(row: Row, name: str, type_: type[T], default: T | None = None) -> T:
    value: Value | None = row.get(name, default)
    plain = frozenset if type_ not in (str, int, bool) else type_
    if type(value) is not plain:
        raise _corrupt(row, name)
    return value  # type: ignore[return-value]


def _corrupt(row: Row, name: str) -> CorruptRowError:
    problem = f"{_short(row[name])} can't be read" if name in row else "is missing"
    return CorruptRowError(
        f"state store row pk={row.get('pk')!r} sk={row.get('sk')!r}: "
        f"attribute {name} {problem}; was it written by hand or by another version?"
    )


def _short(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
