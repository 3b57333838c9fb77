"""Converts leases of the Kinesis Client Library to resume points, and back.

The attributes are those of Java's DynamoDBLeaseSerializer (1.x to 3.x), which the
Python library and ports to Rust share. All records up to the checkpoint were processed,
including its part of an aggregate. A record that isn't aggregated has part 0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.errors import ConfigurationError
from kinesumer.migration.plan import ResumePoint
from kinesumer.model.positions import Position
from kinesumer.model.streams import YEAR_10000, Start
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire.fields import SHARD_ID, is_sequence_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Attribute = Mapping[str, Any]
    Item = Mapping[str, Attribute]

SHARD_END, AT_TIMESTAMP = "SHARD_END", "AT_TIMESTAMP"
SENTINELS = (SHARD_END, AT_TIMESTAMP, "TRIM_HORIZON", "LATEST")
LEASE = "LEASE"
PENDING = (
    "pendingCheckpoint",
    "pendingCheckpointSubSequenceNumber",
    "pendingCheckpointState",
)
OWNERS = ("leaseOwner", "checkpointOwner")
"""The owner's attributes. A worker immediately takes a lease without them."""

_STREAM = re.compile(r"([0-9]{12}):([\w.-]{1,128}):([0-9]+)", re.ASCII)


class StreamId(NamedTuple):
    """The stream's identifier in a lease table of several streams."""

    account: str
    name: str
    epoch: int
    """The stream's creation time in seconds, or another number of the fleet's users."""

    def __str__(self) -> str:
        return f"{self.account}:{self.name}:{self.epoch}"


class Lease(NamedTuple):
    """One lease of a KCL table."""

    key: str
    stream: StreamId | None
    """None: the table has one stream, which it doesn't name."""
    shard_id: str
    counter: int
    checkpoint: str
    """A sequence number, SHARD_END, TRIM_HORIZON, LATEST or AT_TIMESTAMP."""
    sub: int
    owner: str = ""
    pending: str = ""
    """A prepared checkpoint, which isn't progress yet."""
    throughput: float | None = None
    """KiB per second, as estimated by workers of KCL 3."""
    is_counted: bool = True
    """Whether its counter is a number, on which conditional writes depend."""


class Table(NamedTuple):
    """The content of a lease table."""

    leases: list[Lease]
    others: int
    """Number of other rows of KCL 3: workers' metrics, the leader's lock, …"""
    has_types: bool
    """Whether rows have a type, as leases of KCL 3 do."""


def read_table(items: Iterable[Item]) -> Table:
    """Return the leases of a table. Raise ConfigurationError if it has none."""
    leases, others, has_types = [], 0, False
    for item in items:
        kind = _text(item, "entityType")
        has_types = has_types or bool(kind)
        if kind in ("", LEASE):
            leases.append(read_lease(item))
        else:
            others += 1
    if not leases:
        raise ConfigurationError("the table has no leases: is it the right one?")
    return Table(sorted(leases), others, has_types)


def read_lease(item: Item) -> Lease:
    """Parse a lease. Raise ConfigurationError if the row isn't a lease."""
    key = _text(item, "leaseKey")
    text, _, shard_id = key.rpartition(":")
    stream = _stream(text)
    # Another spelling of the key would create a second lease of the same shard.
    if not SHARD_ID.fullmatch(shard_id) or (text and str(stream) != text):
        raise _wrong(key, "leaseKey")
    checkpoint = _text(item, "checkpoint")
    if checkpoint not in SENTINELS and not is_sequence_number(checkpoint):
        raise _wrong(key, "checkpoint")
    sub = _count(item, key, "checkpointSubSequenceNumber")
    if checkpoint == AT_TIMESTAMP and sub >= 1000 * YEAR_10000:
        raise _wrong(key, "checkpointSubSequenceNumber")
    return Lease(
        key=key,
        stream=stream,
        shard_id=shard_id,
        counter=_count(item, key, "leaseCounter"),
        checkpoint=checkpoint,
        sub=sub,
        owner=_text(item, "leaseOwner"),
        pending=_text(item, "pendingCheckpoint"),
        throughput=_throughput(item),
        is_counted="N" in item.get("leaseCounter", {}),
    )


def _stream(text: str) -> StreamId | None:
    found = _STREAM.fullmatch(text)
    return StreamId(found[1], found[2], int(found[3])) if found else None


def _wrong(key: str, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"row {escape_unprintable(key)!r}: {name} isn't that of a lease; "
        "is the table a KCL fleet's?"
    )


def _text(item: Item, name: str) -> str:
    value = item.get(name, {}).get("S", "")
    return value if isinstance(value, str) else ""


def _count(item: Item, key: str, name: str) -> int:
    """Return a whole number, or 0 if it is missing. Some ports write it as text."""
    attribute = item.get(name, {})
    text = attribute.get("N", attribute.get("S", "0"))
    if not re.fullmatch(r"[0-9]{1,18}", str(text), re.ASCII):
        raise _wrong(key, name)
    return int(text)


def _throughput(item: Item) -> float | None:
    try:
        return float(item["throughputKBps"]["N"])
    except (KeyError, ValueError, TypeError):
        return None


def resume_point_of_lease(lease: Lease, start_at: float | None) -> ResumePoint | None:
    """Return where a lease resumes, or None if only the fleet's configuration has it.

    ``start_at``, in seconds since 1970, is the start of leases with LATEST, or with
    AT_TIMESTAMP and no time. Java doesn't store the time. Rust stores milliseconds.
    """
    if lease.checkpoint == SHARD_END:
        return ResumePoint(ended=True)
    if lease.checkpoint == "TRIM_HORIZON":
        return ResumePoint()
    if lease.checkpoint not in SENTINELS:
        return ResumePoint(Position(lease.checkpoint, lease.sub))
    if lease.checkpoint == AT_TIMESTAMP and lease.sub:
        return ResumePoint(start=Start(type=AT_TIMESTAMP, timestamp=lease.sub / 1000))
    if start_at is not None:
        return ResumePoint(start=Start(type=AT_TIMESTAMP, timestamp=start_at))
    return ResumePoint(start=Start.LATEST) if lease.checkpoint == "LATEST" else None


class Checkpoint(NamedTuple):
    """The new checkpoint of a lease."""

    text: str
    sub: int = 0


def kcl_checkpoint(mark: ResumePoint, parts: int | None) -> Checkpoint:
    """Return the checkpoint of a resume point.

    ``parts`` is the number of records in the position's aggregate. A start at a time
    becomes TRIM_HORIZON, since a lease can't store the time.
    """
    if mark.ended:
        return Checkpoint(SHARD_END)
    if mark.position is None:
        return Checkpoint("TRIM_HORIZON")
    number, sub = mark.position
    if not parts:
        return Checkpoint(number)
    return Checkpoint(number, parts - 1 if sub is None else min(sub, parts - 1))
