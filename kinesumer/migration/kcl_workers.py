"""A KCL fleet as its lease table shows it: whether it lives, and which streams."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kinesumer.admin.distribution import Consumer, Distribution, ShardLoad
from kinesumer.aws.kinesis import parse_stream_name
from kinesumer.errors import ConfigurationError, GroupBusyError
from kinesumer.migration.kcl import SHARD_END, read_table
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.aws.kcl_table import Item, LeaseWrite
    from kinesumer.migration.kcl import Lease, StreamId, Table


class Leases(Protocol):
    """A lease table: see ``aws.lease_table``."""

    name: str

    async def scan(self) -> list[Item]: ...
    async def write(self, write: LeaseWrite) -> bool: ...


class LeaseSnapshot(NamedTuple):
    """The rows of a lease table at one time."""

    items: Mapping[str, Mapping[str, object]]
    """The rows by key, with sorted sets."""
    table: Table


async def read_leases(leases: Leases) -> LeaseSnapshot:
    """Read the table. Raise ConfigurationError if it isn't a lease table."""
    found = await leases.scan()
    return LeaseSnapshot(
        {_key(item): _ordered(item) for item in found}, read_table(found)
    )


async def require_no_workers(
    leases: Leases, before: LeaseSnapshot, seconds: float = 0.0
) -> LeaseSnapshot:
    """Read the table again after some time, and return the new snapshot.

    Raise GroupBusyError if any row has changed, since the leases' counters grow while
    workers run.
    """
    await asyncio.sleep(seconds)
    now = await read_leases(leases)
    both = {*before.items, *now.items}
    moved = [key for key in both if before.items.get(key) != now.items.get(key)]
    if moved:
        leases_first = {lease.key for lease in now.table.leases}
        name = min(moved, key=lambda key: (key not in leases_first, key))
        raise GroupBusyError(
            "kcl-workers",
            f"the KCL fleet of table {leases.name} is alive: {len(moved)} rows of "
            f"{len(now.items)} have changed{_within(seconds)}, "
            f"{escape_unprintable(name)} among "
            "them; stop all its workers first",
        )
    return now


def _within(seconds: float) -> str:
    return f" within {seconds:g} s" if seconds else " meanwhile"


def _key(item: Item) -> str:
    return str(item.get("leaseKey", {}).get("S"))


def _ordered(item: Item) -> dict[str, object]:
    return {
        name: sorted(value["SS"]) if "SS" in value else value
        for name, value in item.items()
    }


def by_stream(leases: Iterable[Lease]) -> dict[StreamId | None, list[Lease]]:
    """Return the leases of each stream."""
    found: dict[StreamId | None, list[Lease]] = {}
    for lease in leases:
        found.setdefault(lease.stream, []).append(lease)
    return found


def streams_to_open(
    table: Table, named: Sequence[str], region: str | None
) -> dict[str, StreamId | None]:
    """Return the streams of a table's leases, by the name or ARN to open.

    ``named`` are the user's streams: names, ARNs or identifiers of leases. Raise
    ConfigurationError if they don't match the table. A table of one stream doesn't name
    it.
    """
    ids = list(by_stream(table.leases))
    several = [stream for stream in ids if stream is not None]
    if not several:
        if len(named) != 1:
            raise ConfigurationError(
                "the table is of one stream, whose name isn't in it: say it with "
                "--stream NAME (or its ARN)"
            )
        return {named[0]: None}
    if len(several) < len(ids):
        raise ConfigurationError(
            "the table has leases of one stream and leases of many: delete those that "
            "the fleet doesn't use any more"
        )
    return _chosen(several, named, region)


def _chosen(
    ids: Sequence[StreamId], named: Sequence[str], region: str | None
) -> dict[str, StreamId | None]:
    found: dict[str, StreamId | None] = {}
    unused = set(named)
    for stream in ids:
        names = [name for name in named if _is(stream, name)]
        unused.difference_update(names)
        if named and not names:
            continue
        arns = [name for name in names if name.startswith("arn:")]
        arn = arns[0] if arns else _arn(stream, region)
        if arn in found:
            raise ConfigurationError(
                f"the table has leases of {found[arn]} and of {stream}: say with "
                "--stream which the fleet uses"
            )
        found[arn] = stream
    if unused:
        raise ConfigurationError(
            f"the table has no leases of {', '.join(sorted(unused))}; it has "
            f"{', '.join(map(str, ids))}"
        )
    return found


def _is(stream: StreamId, name: str) -> bool:
    if name.startswith("arn:"):
        parsed = parse_stream_name(name)
        return (stream.account, stream.name) == (name.split(":")[4], parsed.name)
    return name in (stream.name, str(stream))


def _arn(stream: StreamId, region: str | None) -> str:
    if region is None:
        raise ConfigurationError("no region: leases name accounts, not regions")
    partition = "aws"
    for prefix in ("cn", "us-gov"):
        if region.startswith(f"{prefix}-"):
            partition = f"aws-{prefix}"
    return f"arn:{partition}:kinesis:{region}:{stream.account}:stream/{stream.name}"


KIB = 1024


def spread_of(table: Table) -> Distribution:
    """Return the workers and their shards. Workers without a lease are unknown.

    The throughput is the estimate that workers of KCL 3 store in their leases.
    """
    leases = [lease for lease in table.leases if lease.checkpoint != SHARD_END]
    owners = sorted({lease.owner for lease in leases if lease.owner})
    return Distribution(
        [Consumer(owner) for owner in owners],
        [
            ShardLoad(
                lease.owner,
                None if lease.throughput is None else lease.throughput * KIB,
            )
            for lease in leases
        ],
    )
