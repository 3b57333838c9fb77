"""Lease tables of the Kinesis Client Library: their rows, streams and workers.

The attributes are those of Java's DynamoDBLeaseSerializer (1.x to 3.x). The Python
library and ports to Rust use the same attributes. All records up to and including the
checkpoint were processed. A checkpoint in an aggregate includes the index of the user
record. For a record that isn't aggregated, this index is 0.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.dynamodb_calls import Attribute, ConditionFailedError, TableCalls
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.streams import parse_stream_name
from kinesumer.errors import ConfigurationError, GroupBusyError
from kinesumer.model.streams import YEAR_10000
from kinesumer.ops.group.distribution import Consumer, Distribution, ShardLoad
from kinesumer.runtime.partitions import partition_of
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire.fields import SHARD_ID, is_sequence_number

KEY = "leaseKey"
COUNTER = "leaseCounter"
# A row in DynamoDB's JSON. ``Value`` doesn't cover all types of a lease's attributes.
Item = dict[str, Attribute]
SHARD_END, AT_TIMESTAMP = "SHARD_END", "AT_TIMESTAMP"
SENTINELS = (SHARD_END, AT_TIMESTAMP, "TRIM_HORIZON", "LATEST")
LEASE = "LEASE"
PENDING = (
    "pendingCheckpoint",
    "pendingCheckpointSubSequenceNumber",
    "pendingCheckpointState",
)
# A worker takes a lease without these attributes at once. Before it takes any other
# lease, it watches for some time that the lease's counter doesn't grow.
OWNERS = ("leaseOwner", "checkpointOwner")

_STREAM = re.compile(r"([0-9]{12}):([\w.-]{1,128}):([0-9]+)", re.ASCII)


# --- the table ------------------------------------------------------------------------


class LeaseWrite(NamedTuple):
    """One change of one lease."""

    key: str
    set: Mapping[str, Attribute]
    remove: tuple[str, ...] = ()
    counter: int | None = None  # the expected counter; None for a new lease


async def open_leases(clients: ClientFactory, table: str) -> KclLeaseTable:
    """Return the lease table. It uses the event loop's shared client."""
    return KclLeaseTable(await clients.open("dynamodb"), table)


class KclLeaseTable:
    """A lease table with one lease for each shard. Calls aren't retried."""

    def __init__(self, opened: OpenClient, table: str) -> None:
        self.name = table
        self._call = TableCalls(opened, table, _missing)

    async def scan(self) -> list[Item]:
        """Return all rows. Raise ConfigurationError if the table doesn't exist."""
        return await self._call.read_items("Scan", {"ConsistentRead": True})

    async def write(self, write: LeaseWrite) -> bool:
        """Change or create a lease. Return False if another process did so first."""
        try:
            if write.counter is None:
                created = {
                    "Item": {KEY: {"S": write.key}, **write.set},
                    "ConditionExpression": f"attribute_not_exists({KEY})",
                }
                await self._call("PutItem", created, bool)
            else:
                await self._call("UpdateItem", _change(write), bool)
        except ConditionFailedError:
            return False
        return True


def _change(write: LeaseWrite) -> dict[str, object]:
    sets = ", ".join(f"{name} = :{at}" for at, name in enumerate(write.set))
    removes = f" REMOVE {', '.join(write.remove)}" if write.remove else ""
    values = {f":{at}": value for at, value in enumerate(write.set.values())}
    return {
        "Key": {KEY: {"S": write.key}},
        "UpdateExpression": f"SET {sets}{removes}",
        # A KCL worker increases the counter when it renews or takes over a lease.
        "ConditionExpression": f"{COUNTER} = :seen",
        "ExpressionAttributeValues": {**values, ":seen": {"N": str(write.counter)}},
    }


def _missing(table: str, region: str) -> ConfigurationError:
    return ConfigurationError(
        f"table {table} doesn't exist in {region}: check the KCL fleet's application "
        "name, which is the name of its lease table, and --region"
    )


# --- rows -----------------------------------------------------------------------------


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


class Table(NamedTuple):
    """The leases of a table at one time, and all its rows by key.

    ``has_types`` tells whether rows have an entity type, as in KCL 3.
    """

    leases: list[Lease]
    has_types: bool
    rows: Mapping[str, Mapping[str, object]]


def read_table(items: Sequence[Item]) -> Table:
    """Return the leases of a table. Raise ConfigurationError if it has none."""
    # KCL 3 has rows of other types for workers' metrics and the leader's lock.
    leases = [read_lease(x) for x in items if _text(x, "entityType") in ("", LEASE)]
    if not leases:
        raise ConfigurationError("the table has no leases: name a KCL fleet's table")
    rows = {
        _text(item, "leaseKey"): {
            # Sets are sorted, since DynamoDB may return them in any order.
            name: sorted(value["SS"]) if "SS" in value else value
            for name, value in item.items()
        }
        for item in items
    }
    has_types = any(_text(item, "entityType") for item in items)
    return Table(sorted(leases), has_types, rows)


def read_lease(item: Item) -> Lease:
    """Parse a lease. Raise ConfigurationError if the row isn't a lease."""
    key = _text(item, "leaseKey")
    prefix, _, shard_id = key.rpartition(":")
    parts = _STREAM.fullmatch(prefix)
    stream = StreamId(parts[1], parts[2], int(parts[3])) if parts else None
    # A key with another spelling is rejected, since an export would write a second
    # lease for the shard.
    if not SHARD_ID.fullmatch(shard_id) or (prefix and str(stream) != prefix):
        raise _invalid(key, "leaseKey")
    checkpoint = _text(item, "checkpoint")
    if checkpoint not in SENTINELS and not is_sequence_number(checkpoint):
        raise _invalid(key, "checkpoint")
    sub = _count(item, key, "checkpointSubSequenceNumber")
    if checkpoint == AT_TIMESTAMP and sub >= 1000 * YEAR_10000:
        raise _invalid(key, "checkpointSubSequenceNumber")
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


def _invalid(key: str, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"row {escape_unprintable(key)!r}: {name} isn't that of a lease; "
        "name a KCL fleet's table"
    )


def _text(item: Item, name: str) -> str:
    value = item.get(name, {}).get("S", "")
    return value if isinstance(value, str) else ""


def _count(item: Item, key: str, name: str) -> int:
    """Return an attribute that is a whole number, or 0 if it is missing.

    Some ports of the KCL write numbers as text.
    """
    attribute = item.get(name, {})
    text = str(attribute.get("N", attribute.get("S", "0")))
    if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        raise _invalid(key, name)
    return int(text)


def _throughput(item: Item) -> float | None:
    try:
        return float(item["throughputKBps"]["N"])
    except (KeyError, ValueError, TypeError):
        return None


# --- workers --------------------------------------------------------------------------


async def read_fleet(
    leases: KclLeaseTable,
    named: Sequence[str],
    region: str | None,
    watch_seconds: float,
) -> tuple[Table, dict[str, list[Lease]]]:
    """Return a fleet's table, and its leases by stream, if no worker runs.

    ``streams_to_open`` says what the keys and ``named`` are. Raise GroupBusyError if
    the table changes within ``watch_seconds``.
    """
    first = read_table(await leases.scan())
    opened = streams_to_open(first, named, region)
    table = await require_no_workers(leases, first, watch_seconds)
    found = by_stream(table.leases)
    return table, {name: found[stream] for name, stream in opened.items()}


async def require_no_workers(
    leases: KclLeaseTable, before: Table, seconds: float = 0.0
) -> Table:
    """Read the table again after some time, and return it.

    Raise GroupBusyError if any row has changed, since the leases' counters grow while
    workers run.
    """
    await asyncio.sleep(seconds)
    now = read_table(await leases.scan())
    keys = {*before.rows, *now.rows}
    changed = [key for key in keys if before.rows.get(key) != now.rows.get(key)]
    if changed:
        lease_keys = {lease.key for lease in now.leases}
        name = min(changed, key=lambda key: (key not in lease_keys, key))
        within = f" within {seconds:g} s" if seconds else " meanwhile"
        raise GroupBusyError(
            "kcl-workers",
            f"the KCL fleet of table {leases.name} is alive: {len(changed)} rows of "
            f"{len(now.rows)} have changed{within}, {escape_unprintable(name)} among "
            "them; stop all its workers first",
        )
    return now


def by_stream(leases: Iterable[Lease]) -> dict[StreamId | None, list[Lease]]:
    """Return the leases of each stream."""
    found: dict[StreamId | None, list[Lease]] = {}
    for lease in leases:
        found.setdefault(lease.stream, []).append(lease)
    return found


def distribution_of(table: Table) -> Distribution:
    """Return the workers and their shards, except workers without a lease.

    The throughput is the estimate, in KiB a second, that workers of KCL 3 store in
    their leases.
    """
    leases = [lease for lease in table.leases if lease.checkpoint != SHARD_END]
    owners = sorted({lease.owner for lease in leases if lease.owner})
    return Distribution(
        [Consumer(owner) for owner in owners],
        [ShardLoad(x.owner, x.throughput and x.throughput * 1024) for x in leases],
    )


# --- streams --------------------------------------------------------------------------


def streams_to_open(
    table: Table, named: Sequence[str], region: str | None
) -> dict[str, StreamId | None]:
    """Return the streams of a table's leases.

    The keys are names or ARNs by which the streams can be opened.

    ``named`` are the streams that the user named, by name, by ARN or by the identifier
    in the leases. Exactly one is required if the table is of a single stream, since
    such leases don't contain the stream's name. Raise ConfigurationError if ``named``
    doesn't match the table.
    """
    ids = list(by_stream(table.leases))
    several = [stream for stream in ids if stream is not None]
    if not several:
        if len(named) != 1:
            raise ConfigurationError(
                "the leases are of a single stream and don't contain its name: give "
                "the stream's name or ARN with --stream"
            )
        return {named[0]: None}
    if len(several) < len(ids):
        raise ConfigurationError(
            "the table has leases of one stream and leases of many: delete those that "
            "the fleet doesn't use any more"
        )
    chosen: dict[str, StreamId | None] = {}
    unused = set(named)
    for stream in several:
        names = [name for name in named if _is_called(stream, name)]
        unused.difference_update(names)
        if named and not names:
            continue
        arns = [name for name in names if name.startswith("arn:")]
        arn = arns[0] if arns else _arn(stream, region)
        if arn in chosen:
            raise ConfigurationError(
                f"the table has leases of {chosen[arn]} and of {stream}: name by "
                "--stream the one that the fleet uses"
            )
        chosen[arn] = stream
    if unused:
        raise ConfigurationError(
            f"the table has no leases of stream {', '.join(sorted(unused))}; name by "
            f"--stream one of {', '.join(map(str, several))}"
        )
    return chosen


def _is_called(stream: StreamId, name: str) -> bool:
    if name.startswith("arn:"):
        parsed = parse_stream_name(name)
        return (stream.account, stream.name) == (name.split(":")[4], parsed.name)
    return name in (stream.name, str(stream))


def _arn(stream: StreamId, region: str | None) -> str:
    if region is None:
        raise ConfigurationError("leases don't contain a region: give --region")
    partition = partition_of(region)
    return f"arn:{partition}:kinesis:{region}:{stream.account}:stream/{stream.name}"
