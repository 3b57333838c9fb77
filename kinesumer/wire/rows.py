"""The state store's table, and the keys and attributes of its rows.

``docs/how-it-works.md`` describes the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from kinesumer.config import MAX_LEASE_SECONDS
from kinesumer.errors import CorruptRowError
from kinesumer.model.incidents import MAX_ERROR_LETTERS
from kinesumer.model.positions import Tip
from kinesumer.model.rows import (
    CLIENT,
    DEFAULT_COMMIT_MS,
    AppRow,
    GroupRow,
    Key,
    LeaderRow,
    LivenessRow,
    MemberRow,
    Row,
    ShardRow,
    StreamRow,
    Value,
)
from kinesumer.model.streams import HASH_KEYS, FanOutUse, Range, ShardKey, Start
from kinesumer.wire.fields import (
    SHARD_ID,
    corrupt,
    count,
    get,
    read_deaths,
    read_fan_out,
    read_hash_key,
    read_position,
    read_range,
    read_seconds,
    read_start,
    read_tip,
)

T = TypeVar("T")

GROUP_SK = "group"
LEADER_SK = "leader"
STREAM_PREFIX = "stream#"
# The partition of the rows of all apps.
APPS = "apps"

# The greatest number of clients that is valid in a row. It is limited, since the
# heartbeat interval grows with it: with so many, to more than an hour.
MAX_CLIENTS = 1_000_000
# The lease that is assumed for a member whose row has no valid one. It is longer than
# most leases.
UNKNOWN_LEASE_MS = 60_000

# An app whose shards are leases of a KCL fleet has a group row of this version, which
# names the fleet's lease table. Clients that know no such apps refuse the version.
FLEET_VERSION, KCL_TABLE = 2, "kcl_table"
CUT_OVER = "kcl_cut_over"  # names that table after the app has left it

INDEX = "index-client-key-last-update"


def _keys(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]


# The arguments of CreateTable, except for the name, as in schema/state-store.json.
# Kinesumer for Go uses the same definition.
DEFINITION: dict[str, Any] = {
    "AttributeDefinitions": [
        {"AttributeName": attribute, "AttributeType": "S"}
        for attribute in ("pk", "sk", "last_update")
    ],
    "KeySchema": _keys("pk", "sk"),
    "LocalSecondaryIndexes": [
        {
            "IndexName": INDEX,
            "KeySchema": _keys("pk", "last_update"),
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
    "BillingMode": "PAY_PER_REQUEST",
}


def member_key(app: str, client_id: str) -> Key:
    """Return the key of a client's row."""
    return Key(f"member#{app}", client_id)


def leader_key(app: str) -> Key:
    """Return the key of the app's leader row."""
    return Key(f"leader#{app}", LEADER_SK)


def group_key(app: str) -> Key:
    """Return the key of the app's identity row."""
    return Key(f"group#{app}", GROUP_SK)


def app_key(app: str) -> Key:
    """Return the key of an app's row."""
    return Key(APPS, app)


def stream_key(app: str, arn: str) -> Key:
    """Return the key of a stream's row."""
    return Key(f"group#{app}", STREAM_PREFIX + arn)


def go_partition(app: str, stream: str) -> str:
    """Return the partition in which Kinesumer for Go stores a stream's positions."""
    return f"check_point#{app}#{stream}"


def shard_partition(app: str, arn: str) -> str:
    """Return the partition that holds a stream's shard rows."""
    return f"shard#{app}#{arn}"


def shard_key(app: str, shard: ShardKey, first_hash: int) -> Key:
    """Return the key of a shard's row. Keys sort by the starting hash key."""
    pk = shard_partition(app, shard.stream_arn)
    return Key(pk, f"{hash_text(first_hash)}/{shard.shard_id}")


def shard_id_of(sort_key: object) -> str:
    """Return the id in the sort key of a shard's row."""
    return str(sort_key).partition("/")[2]


def is_of_app(app: str, key: Key) -> bool:
    """Return whether a row belongs to an app, rather than to another or to none."""
    if key.pk == APPS:
        return key.sk == app
    return key.pk.split("#", 2)[1:2] == [app]


def hash_text(hash_key: int) -> str:
    """Return a hash key as 32 hex digits, so that texts sort like numbers."""
    return f"{hash_key:032x}"


def timestamp_text(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC."""
    timestamp = datetime.fromtimestamp(seconds, UTC)
    return timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timestamp_seconds(value: Value | None) -> float:
    """Parse RFC 3339 text as seconds since 1970. Return -inf if it is invalid."""
    try:  # Kinesumer for Go writes times with local UTC offsets and nanoseconds.
        return datetime.fromisoformat(str(value)).timestamp()
    except (ValueError, OverflowError):
        return -math.inf


def start_text(start: Start) -> str:
    """Return the stored text of a start, with its type and any timestamp."""
    if start.timestamp is None:
        return start.type
    return f"{start.type} {start.timestamp!r}"


def tip_text(tip: Tip) -> str:
    """Return the stored text of a tip: its time, rounded down, and its position."""
    return f"{timestamp_text(tip.at)} {tip.position.text}"


def range_text(range_: Range, streams: frozenset[str]) -> str:
    """Return the stored text of a range, with parts ``stream:first-last``.

    ``stream`` is an index into the sorted streams that the member requests. A missing
    last hash key means the end of the hash space.
    """
    index_of = {arn: index for index, arn in enumerate(sorted(streams))}
    return ",".join(
        f"{index_of[arn]}:{first:x}-" + ("" if last == HASH_KEYS - 1 else f"{last:x}")
        for arn, first, last in range_
    )


def fan_out_text(uses: Mapping[str, FanOutUse], streams: frozenset[str]) -> str:
    """Return the stored text of fan-out, with lines ``stream:consumer problem``.

    ``stream`` is an index into the sorted streams, as in ``range_text()``. A line
    without a problem says that the stream is read by fan-out.
    """
    lines = []
    for index, arn in enumerate(sorted(streams)):
        if arn in uses:
            consumer, problem = uses[arn]
            # Cut the problem, since each started KB of a row costs a write unit.
            words = " ".join(problem.split())[:MAX_ERROR_LETTERS]
            lines.append(f"{index}:{consumer} {words}".rstrip())
    return "\n".join(lines)


def parse_rows(
    read: Callable[[Row], T], rows: Iterable[Row]
) -> tuple[list[T], list[tuple[str, CorruptRowError]]]:
    """Return the values of the valid rows, and ``sk`` and error of each corrupt row."""
    values, errors = [], []
    for row in rows:
        try:
            values.append(read(row))
        except CorruptRowError as error:
            errors.append((str(row.get("sk", "")), error))
    return values, errors


def read_member(row: Row) -> MemberRow:
    """Parse a member's row. Raise CorruptRowError if it is invalid."""
    streams = get(row, "streams", frozenset[str], frozenset())
    return MemberRow(
        client_id=get(row, "sk", str),
        session=get(row, "session", str),
        incarnation=count(row, "incarnation"),
        beat=count(row, "beat"),
        lease_ms=count(row, "lease_ms", first=1, last=1000 * MAX_LEASE_SECONDS),
        weight=count(row, "weight", 1, first=1),
        state=get(row, "state", str, "up"),
        dead=get(row, "dead", bool, False),
        streams=streams,
        index=count(row, "index") if "index" in row else None,
        range=read_range(row, streams),
        syncs=get(row, "keeps", frozenset[str], frozenset()),
        clients=count(row, "clients", 1, first=1, last=MAX_CLIENTS),
        leader_epoch=count(row, "leader_epoch", 0),
        plan_version=count(row, "plan_version", 0),
        last_update=get(row, "last_update", str, ""),
        kind=get(row, "kind", str, CLIENT),
        label=get(row, "label", str, ""),
        max_shards=count(row, "max_shards", first=1) if "max_shards" in row else None,
        commit_ms=count(row, "commit_ms", DEFAULT_COMMIT_MS),
        notice=count(row, "notice", 0),
        drained=get(row, "drained", bool, False),
        fan_out=read_fan_out(row, streams),
        load=str(row.get("load", "")),
        incidents=str(row.get("incidents", "")),
        failures=str(row.get("failures", "")),
    )


def read_liveness(row: Row) -> LivenessRow:
    """Return the liveness fields of any member's row, even of a corrupt one."""
    lease = row.get("lease_ms")
    if type(lease) is not int or not 0 < lease <= 1000 * MAX_LEASE_SECONDS:
        lease = UNKNOWN_LEASE_MS
    return LivenessRow(
        client_id=str(row.get("sk", "")),
        session=row.get("session"),
        beat=row.get("beat"),
        incarnation=row.get("incarnation"),
        dead_value=row.get("dead"),
        lease_ms=lease,
        state=str(row.get("state", "up")),
        last_update=str(row.get("last_update", "")),
    )


def read_leader(row: Row) -> LeaderRow:
    """Parse the leader's row. Raise CorruptRowError if it is invalid."""
    return LeaderRow(
        session=get(row, "session", str),
        client_id=get(row, "client_id", str),
        leader_epoch=count(row, "leader_epoch"),
        plan_version=count(row, "plan_version", 0),
        assignor=get(row, "assignor", str, ""),
        rebalance_ms=count(row, "rebalance_ms", 0),
        planned_at=count(row, "planned_at", 0) / 1000,
    )


def read_group(row: Row) -> GroupRow:
    """Parse the group's row. Raise CorruptRowError if it is invalid."""
    if KCL_TABLE in row:
        table = get(row, KCL_TABLE, str)
        raise CorruptRowError(
            f"state store row pk={row.get('pk')!r}: the app's positions are in lease "
            f"table {table} of a KCL fleet; give kcl_table={table!r}, or --kcl-table"
        )
    # A later version may store rows that this one would misread.
    count(row, "version", 1, first=1, last=1)
    return GroupRow(
        group_id=get(row, "group_id", str),
        paused=get(row, "paused", bool, False),
        pause_reason=get(row, "pause_reason", str, ""),
        resetting=get(row, "resetting", bool, False),
    )


def plain_group(row: Row) -> Row:
    """Return a group's row as of an app that never was in a KCL fleet."""
    hidden = (KCL_TABLE, CUT_OVER)
    plain = {name: value for name, value in row.items() if name not in hidden}
    return plain | {"version": 1} if len(plain) < len(row) else plain


def read_app(row: Row) -> AppRow:
    """Parse an app's row. Raise CorruptRowError if it is invalid."""
    return AppRow(
        app=get(row, "sk", str),
        streams=get(row, "streams", frozenset[str]),
        updated_at=count(row, "updated_at") / 1000,
    )


def read_stream(row: Row) -> StreamRow:
    """Parse a stream's row. Raise CorruptRowError if it is invalid."""
    return StreamRow(
        arn=get(row, "sk", str).removeprefix(STREAM_PREFIX),
        created_at=read_seconds(
            row, "stream_created_at", get(row, "stream_created_at", str)
        ),
        start=read_start(row),
        baseline=get(row, "baseline", bool, False),
        paused=get(row, "paused", bool, False),
        pause_reason=get(row, "pause_reason", str, ""),
    )


def read_shard(row: Row) -> ShardRow:
    """Parse a shard's row. Raise CorruptRowError if it is invalid."""
    arn = get(row, "pk", str).split("#", 2)[-1]
    first_text, slash, shard_id = get(row, "sk", str).partition("/")
    if not (slash and SHARD_ID.fullmatch(shard_id)):
        raise corrupt(row, "sk")
    first = read_hash_key(row, "sk", first_text)
    last = read_hash_key(row, "last_hash", get(row, "last_hash", str))
    if last < first:
        raise corrupt(row, "last_hash")
    return ShardRow(
        key=ShardKey(arn, shard_id),
        first_hash=first,
        last_hash=last,
        start=read_start(row),
        parents=get(row, "parents", frozenset[str], frozenset()),
        epoch=count(row, "epoch", 0),
        owner=get(row, "owner", str, ""),
        owner_id=get(row, "owner_id", str, ""),
        claim=get(row, "claim", str, ""),
        position=read_position(row),
        ended=get(row, "ended", bool, False),
        ready=get(row, "ready", bool, False),
        paused=get(row, "paused", bool, False),
        pause_reason=get(row, "pause_reason", str, ""),
        tip=read_tip(row),
        deaths=read_deaths(row),
        is_foreign=get(row, "foreign", bool, False),
    )
