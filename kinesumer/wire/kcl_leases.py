"""Rows of the Kinesis Client Library's lease tables.

The attributes are those of Java's DynamoDBLeaseSerializer (1.x to 3.x). The Python
library and ports to Rust use the same attributes. All records up to and including the
checkpoint were processed. A checkpoint in an aggregate includes the index of the user
record. For a record that isn't aggregated, this index is 0.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import Row, UnsupportedValue
from kinesumer.model.streams import YEAR_10000
from kinesumer.wire.fields import SHARD_ID, is_sequence_number

KEY = "leaseKey"
COUNTER = "leaseCounter"
OWNER, CHECKPOINT_OWNER = "leaseOwner", "checkpointOwner"
SHARD_END, AT_TIMESTAMP = "SHARD_END", "AT_TIMESTAMP"
SENTINELS = (SHARD_END, AT_TIMESTAMP, "TRIM_HORIZON", "LATEST")
ENTITY_TYPE, LEASE = "entityType", "LEASE"
PENDING = (
    "pendingCheckpoint",
    "pendingCheckpointSubSequenceNumber",
    "pendingCheckpointState",
)
# A worker takes a lease without these attributes at once. Before it takes any other
# lease, it watches for some time that the lease's counter doesn't grow.
OWNERS = (OWNER, CHECKPOINT_OWNER)

_STREAM = re.compile(r"([0-9]{12}):([\w.-]{1,128}):([0-9]+)", re.ASCII)


class StreamId(NamedTuple):
    """A stream's identifier in a lease table of several streams.

    ``epoch`` is the stream's creation time in seconds, or another number that the
    fleet's users chose.
    """

    account: str
    name: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.account}:{self.name}:{self.epoch}"


class Lease(NamedTuple):
    """One lease of a KCL table."""

    key: str
    stream: StreamId | None  # None if the table has only one stream
    shard_id: str
    counter: int
    checkpoint: str  # a sequence number or one of SENTINELS
    sub: int
    owner: str = ""
    pending: str = ""  # a prepared checkpoint that isn't valid yet
    throughput: float | None = None  # KiB per second, as KCL 3 estimates it
    is_counted: bool = True  # whether the counter is a number


def is_lease(row: Row) -> bool:
    """Return whether a row is a lease.

    KCL 3 has rows of other types for workers' metrics and the leader's lock.
    """
    return _text(row, ENTITY_TYPE) in ("", LEASE)


def read_lease(row: Row) -> Lease:
    """Parse a lease. Raise ConfigurationError if the row isn't a lease."""
    key = _text(row, KEY)
    prefix, _, shard_id = key.rpartition(":")
    parts = _STREAM.fullmatch(prefix)
    stream = StreamId(parts[1], parts[2], int(parts[3])) if parts else None
    # A key with another spelling is rejected, since an export would write a second
    # lease for the shard.
    if not SHARD_ID.fullmatch(shard_id) or (prefix and str(stream) != prefix):
        raise _invalid(key, KEY)
    checkpoint = _text(row, "checkpoint")
    if checkpoint not in SENTINELS and not is_sequence_number(checkpoint):
        raise _invalid(key, "checkpoint")
    sub = _count(row, key, "checkpointSubSequenceNumber")
    if checkpoint == AT_TIMESTAMP and sub >= 1000 * YEAR_10000:
        raise _invalid(key, "checkpointSubSequenceNumber")
    return Lease(
        key=key,
        stream=stream,
        shard_id=shard_id,
        counter=_count(row, key, COUNTER),
        checkpoint=checkpoint,
        sub=sub,
        owner=_text(row, OWNER),
        pending=_text(row, "pendingCheckpoint"),
        throughput=_throughput(row),
        is_counted=type(row.get(COUNTER)) is int,
    )


def _invalid(key: str, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"row {key!r}: {name} isn't that of a lease; name a KCL fleet's table"
    )


def _text(row: Row, name: str) -> str:
    value = row.get(name, "")
    return value if type(value) is str else ""


def _count(row: Row, key: str, name: str) -> int:
    """Return an attribute that is a whole number, or 0 if it is missing.

    Some ports of the KCL write numbers as text.
    """
    value = row.get(name, 0)
    text = str(value) if type(value) in (int, str) else ""
    if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        raise _invalid(key, name)
    return int(text)


def _throughput(row: Row) -> float | None:
    value = row.get("throughputKBps")
    if not isinstance(value, UnsupportedValue):  # a number that isn't whole
        return float(value) if type(value) is int else None
    try:
        return float(json.loads(value)["N"])
    except (KeyError, ValueError, TypeError):
        return None
