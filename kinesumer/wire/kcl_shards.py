"""Read a KCL lease as a shard's row, and write a shard's row into its lease.

A lease holds a shard's position, its end, its parents, its hash keys and the worker
that has it. The other attributes of a shard's row are additional attributes of the
lease: KCL's workers change single attributes, and leave unknown ones as they are.

Each write increases ``leaseCounter`` by one, as KCL's workers do, and only applies to
the lease as it was read. The app's own writes also store the new counter in an
attribute of their own. So if the two differ, a KCL worker has changed the lease since,
and the owner that the app has stored is void.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, Row, Value
from kinesumer.ports import AllOf, Compare, Write
from kinesumer.wire.kcl_leases import (
    CHECKPOINT_OWNER,
    COUNTER,
    ENTITY_TYPE,
    LEASE,
    OWNER,
    OWNERS,
    PENDING,
    SENTINELS,
    SHARD_END,
    Lease,
    StreamId,
    read_lease,
)
from kinesumer.wire.shard_writes import position_values
from kinesumer.wire.writes import as_read

OWN = "kinesumer_"  # begins the name of each attribute that KCL's workers don't know
APP, SEEN_COUNTER, POSITION = OWN + "app", OWN + "counter", OWN + "position"
# Marks a lease whose shard has a row in the app's own table, which alone is valid.
MOVED = OWN + "moved"
_HIDDEN = (APP, SEEN_COUNTER, POSITION, MOVED)
# Begins the owner of a shard that a KCL worker has. No session begins so.
FOREIGN = "kcl:"
# The sub-sequence number of a position after a whole record. KCL's workers skip all
# parts of an aggregate up to this number. A record that isn't aggregated has the number
# 0. No aggregate has so many parts, and the number fits into those of any language.
ALL_PARTS = 2**31 - 1
SWITCHES = "ownerSwitchesSinceCheckpoint"
HASH_KEYS = ("startingHashKey", "endingHashKey")
# The attributes of a shard's row that the lease itself tells, or other leases.
_TOLD = frozenset(
    {
        *("pk", "sk", "last_hash", "start", "parents", "ready", "ended", "foreign"),
        *("sequence_number", "sub_sequence_number"),
    }
)


class View(NamedTuple):
    """Facts about a shard that its lease alone doesn't show."""

    app: str
    start: str  # where the stream begins if nothing was read, as a row's text
    ready: bool  # whether all parents have ended
    # Whether the app may take the lease although a KCL worker has it, or had it.
    is_free: bool


def lease_key(stream: StreamId | None, shard_id: str) -> str:
    """Return the key of a shard's lease."""
    return shard_id if stream is None else f"{stream}:{shard_id}"


def holder_of(row: Row) -> str:
    """Return the worker that has a lease, or ""; a graceful hand-over has two."""
    return str(row.get(CHECKPOINT_OWNER) or row.get(OWNER) or "")


def is_held(row: Row, app: str) -> bool:
    """Return whether the app wrote last to a lease, and a client of the app has it."""
    return (
        OWNER in row
        and CHECKPOINT_OWNER not in row
        and row.get(APP) == app
        and row.get(OWN + "owner_id") == row[OWNER]
        and row.get(SEEN_COUNTER) == row.get(COUNTER)
    )


def parents_of(row: Row) -> frozenset[str]:
    """Return the ids of a shard's parents."""
    parents = row.get("parentShardId", frozenset())
    return parents if isinstance(parents, frozenset) else frozenset({str(parents)})


def hash_keys_of(row: Row) -> tuple[int, int] | None:
    """Return a shard's first and last hash key; None for a lease of an old KCL."""
    texts = [str(row.get(name, "")) for name in HASH_KEYS]
    if not all(text.isascii() and text.isdigit() and len(text) < 40 for text in texts):
        return None
    return int(texts[0]), int(texts[1])


def shard_values(row: Row, key: Key, last_hash: str, view: View) -> Row:
    """Return the row of a shard from its lease."""
    lease = read_lease(row)
    values: Row = {
        name.removeprefix(OWN): value
        for name, value in row.items()
        if name.startswith(OWN) and name not in _HIDDEN
    }
    values |= {"pk": key.pk, "sk": key.sk, "last_hash": last_hash}
    values |= {"ready": view.ready, "ended": lease.checkpoint == SHARD_END}
    unread = lease.checkpoint in ("LATEST", "AT_TIMESTAMP")
    values["start"] = view.start if unread else "TRIM_HORIZON"
    if parents := parents_of(row):
        values["parents"] = parents
    if (position := position_of(row, lease)) is not None:
        values |= position_values(position)
    values.setdefault("epoch", 0)
    if is_held(row, view.app):
        return values
    for name in ("owner", "owner_id", "claim"):
        values.pop(name, None)
    if view.is_free or values["ended"]:
        return values
    worker = holder_of(row)
    return values | {"owner": FOREIGN + worker, "owner_id": worker, "foreign": True}


def position_of(row: Row, lease: Lease) -> Position | None:
    """Return the position that a lease stores, or None."""
    if lease.checkpoint == SHARD_END:
        text = row.get(POSITION)
        return Position.of_text(text) if type(text) is str else None
    if lease.checkpoint in SENTINELS:
        return None
    sub = None if lease.sub == ALL_PARTS else lease.sub
    return Position(lease.checkpoint, sub)


def checkpoint_of(position: Position) -> tuple[str, int]:
    """Return the sequence number and the sub-sequence number of a lease."""
    number, sub = position
    return number, ALL_PARTS if sub is None else sub


def unchanged(row: Row) -> AllOf:
    """Return the condition that nobody has taken, renewed or changed a lease since."""
    names = (COUNTER, OWNER, CHECKPOINT_OWNER)
    return AllOf(*(as_read(name, row.get(name)) for name in names))


def renewal(row: Row) -> Write:
    """Return the write that renews a lease which the app holds."""
    counter = read_lease(row).counter + 1
    values: dict[str, Value] = {COUNTER: counter, SEEN_COUNTER: counter}
    return Write(Key(str(row["leaseKey"]), ""), unchanged(row), values)


def hand_over(row: Row) -> Write:
    """Return the write that ends a graceful hand-over to another worker."""
    values: dict[str, Value] = {COUNTER: read_lease(row).counter + 1}
    return Write(
        Key(str(row["leaseKey"]), ""), unchanged(row), values, (CHECKPOINT_OWNER,)
    )


def move(row: Row, *, out: bool) -> Write:
    """Return the write that marks a lease as moved, without an owner, or takes it back.

    After a mark, no renewal and no checkpoint of a former owner applies any more.
    """
    values: dict[str, Value] = {COUNTER: read_lease(row).counter + 1}
    if out:
        values[MOVED] = True
    gone = OWNERS if out else (MOVED,)
    removed = tuple(name for name in gone if name in row)
    return Write(Key(str(row["leaseKey"]), ""), unchanged(row), values, removed)


def change(
    row: Row,
    app: str,
    before: Row,
    after: Row,
    children: Collection[str],
    heir: str | None = None,
) -> Write | None:
    """Return the write that changes a lease as its shard's row changes, or None.

    ``children`` are the shard's children that have leases. ``heir`` is the worker to
    which a lease is assigned when its owner gives it up.
    """
    values: dict[str, Value] = _own_values(before, after)
    gone = [OWN + name for name in before if name not in after and name not in _TOLD]
    lease, owner = read_lease(row), after.get("owner_id")
    if _claim(after) != _claim(before):
        if owner is None and heir is not None and not after["ended"]:
            values[OWNER] = heir
            gone.append(CHECKPOINT_OWNER)
        elif owner is None:
            gone += OWNERS
        else:
            values[OWNER] = owner
            gone.append(CHECKPOINT_OWNER)
            if lease.owner not in ("", owner):
                values[SWITCHES] = _switches(row) + 1
    values |= _progress(before, after)
    if "checkpoint" in values:
        gone += PENDING
    if values.get("checkpoint") == SHARD_END and children:
        values["childShardIds"] = frozenset(children)
    if not values and not gone:
        return None
    values[COUNTER] = lease.counter + 1
    if owner is not None:
        values |= {SEEN_COUNTER: lease.counter + 1, APP: app}
    removed = tuple(name for name in dict.fromkeys(gone) if name in row)
    return Write(Key(lease.key, ""), unchanged(row), values, removed)


def new_lease(
    after: Row, stream: StreamId | None, shard_id: str, *, has_types: bool
) -> Write:
    """Return the write that creates a lease with no owner, if there is none."""
    key = lease_key(stream, shard_id)
    row_key = Key(str(after["pk"]), str(after["sk"]))
    values: dict[str, Value] = {
        COUNTER: 0,
        SWITCHES: 0,
        "checkpoint": "TRIM_HORIZON",
        "checkpointSubSequenceNumber": 0,
        **hash_key_values(row_key, str(after["last_hash"])),
        **_progress({}, after),
    }
    if parents := after.get("parents"):
        values["parentShardId"] = parents
    if has_types:
        values[ENTITY_TYPE] = LEASE
    if stream is not None:
        values |= {"streamName": str(stream), "shardId": shard_id}
    return Write(Key(key, ""), Compare("leaseKey", "absent"), values)


def hash_key_values(key: Key, last_hash: str) -> dict[str, Value]:
    """Return the hash keys of a shard as a lease has them."""
    texts = key.sk.partition("/")[0], last_hash
    return {
        name: str(int(text, 16)) for name, text in zip(HASH_KEYS, texts, strict=True)
    }


def _own_values(before: Row, after: Row) -> dict[str, Value]:
    return {
        OWN + name: value
        for name, value in after.items()
        if name not in _TOLD and before.get(name) != value
    }


def _claim(row: Row) -> tuple[Value | None, ...]:
    return row.get("owner"), row.get("claim"), row.get("epoch")


def _progress(before: Row, after: Row) -> dict[str, Value]:
    """Return the attributes of a new position, or of the shard's end."""
    position = _position(after)
    if position == _position(before) and after["ended"] == before.get("ended", False):
        return {}
    checkpoint, sub = "TRIM_HORIZON", 0
    if after["ended"]:
        checkpoint = SHARD_END
    elif position is not None:
        checkpoint, sub = checkpoint_of(position)
    values: dict[str, Value] = {
        "checkpoint": checkpoint,
        "checkpointSubSequenceNumber": sub,
        SWITCHES: 0,
    }
    if after["ended"] and position is not None:
        values[POSITION] = position.text  # SHARD_END has replaced it
    return values


def _position(row: Mapping[str, Value]) -> Position | None:
    if "sequence_number" not in row:
        return None
    sub = row.get("sub_sequence_number")
    return Position(str(row["sequence_number"]), sub if type(sub) is int else None)


def _switches(row: Row) -> int:
    switches = row.get(SWITCHES, 0)
    return switches if type(switches) is int else 0
