"""Lease tables of the Kinesis Client Library: their leases, streams and workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kinesumer.aws.streams import parse_stream_name
from kinesumer.errors import ConfigurationError, GroupBusyError
from kinesumer.model.rows import Row
from kinesumer.ops.group.distribution import Consumer, Distribution, ShardLoad
from kinesumer.ports import LeaseTable
from kinesumer.runtime.partitions import partition_of
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire.kcl_leases import (
    ENTITY_TYPE,
    KEY,
    SHARD_END,
    Lease,
    StreamId,
    is_lease,
    read_lease,
)

# --- rows -----------------------------------------------------------------------------


class Table(NamedTuple):
    """The leases of a table at one time, and all its rows by key.

    ``has_types`` tells whether rows have an entity type, as in KCL 3.
    """

    leases: list[Lease]
    has_types: bool
    rows: Mapping[str, Row]


def read_table(rows: Sequence[Row]) -> Table:
    """Return the leases of a table. Raise ConfigurationError if it has none."""
    leases = [read_lease(row) for row in rows if is_lease(row)]
    if not leases:
        raise ConfigurationError("the table has no leases: name a KCL fleet's table")
    has_types = any(ENTITY_TYPE in row for row in rows)
    return Table(sorted(leases), has_types, {str(row.get(KEY)): row for row in rows})


# --- workers --------------------------------------------------------------------------


async def read_fleet(
    leases: LeaseTable,
    named: Sequence[str],
    region: str | None,
    watch_seconds: float,
) -> tuple[Table, dict[str, list[Lease]]]:
    """Return a fleet's table, and its leases by stream, if no worker runs.

    ``streams_to_open`` says what the keys and ``named`` are. Raise GroupBusyError if
    the table changes within ``watch_seconds``.
    """
    first = read_table(await leases.scan(consistent=True))
    opened = streams_to_open(first, named, region)
    table = await require_no_workers(leases, first, watch_seconds)
    found = by_stream(table.leases)
    return table, {name: found[stream] for name, stream in opened.items()}


async def require_no_workers(
    leases: LeaseTable, before: Table, seconds: float = 0.0
) -> Table:
    """Read the table again after some time, and return it.

    Raise GroupBusyError if any row has changed, since the leases' counters grow while
    workers run.
    """
    await asyncio.sleep(seconds)
    now = read_table(await leases.scan(consistent=True))
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
