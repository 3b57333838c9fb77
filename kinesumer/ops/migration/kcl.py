"""Lease tables of the Kinesis Client Library: their leases, streams and workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.dynamodb_calls import (
    Attribute,
    ConditionFailedError,
    TableCalls,
    row_of,
)
from kinesumer.aws.lease_table import missing_lease_table
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.streams import parse_stream_name
from kinesumer.errors import ConfigurationError, GroupBusyError
from kinesumer.ops.group.distribution import Consumer, Distribution, ShardLoad
from kinesumer.runtime.partitions import partition_of
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire.kcl_leases import (
    COUNTER,
    ENTITY_TYPE,
    KEY,
    SHARD_END,
    Lease,
    StreamId,
    is_lease,
    read_lease,
)

# A row in DynamoDB's JSON. ``Value`` doesn't cover all types of a lease's attributes.
Item = dict[str, Attribute]


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
        self._call = TableCalls(opened, table, missing_lease_table)

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


# --- rows -----------------------------------------------------------------------------


class Table(NamedTuple):
    """The leases of a table at one time, and all its rows by key.

    ``has_types`` tells whether rows have an entity type, as in KCL 3.
    """

    leases: list[Lease]
    has_types: bool
    rows: Mapping[str, Mapping[str, object]]


def read_table(items: Sequence[Item]) -> Table:
    """Return the leases of a table. Raise ConfigurationError if it has none."""
    known = [row_of(item) for item in items]
    leases = [read_lease(row) for row in known if is_lease(row)]
    if not leases:
        raise ConfigurationError("the table has no leases: name a KCL fleet's table")
    rows = {
        str(row.get(KEY, "")): {
            # Sets are sorted, since DynamoDB may return them in any order.
            name: sorted(value["SS"]) if "SS" in value else value
            for name, value in item.items()
        }
        for row, item in zip(known, items, strict=True)
    }
    has_types = any(ENTITY_TYPE in row for row in known)
    return Table(sorted(leases), has_types, rows)


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
