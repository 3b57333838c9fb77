"""How shards and what arrives in them are spread over clients and their clusters."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.admin import snapshot
from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.sampling import SHARD_ERRORS, sample_arrivals
from kinesumer.admin.shard_reads import PacedReader, ServiceClock, for_each_stream
from kinesumer.errors import ConfigurationError, KinesumerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StateStore


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Cluster = Callable[["Consumer"], str]


VERSION = 1


WAYS = ("label", "zone", "prefix")


_ZONE = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9][a-z]|[a-z]{3,4}[0-9]-az[0-9]")
"""A zone's name, as us-east-1a, or its id, as use1-az2."""


_SEPARATOR = re.compile(r"[-._/:@ ]")


class Consumer(NamedTuple):
    """Who consumes."""

    client_id: str
    label: str = ""
    weight: int = 1
    """Its share of the shards, relative to the others'; 0: it is to have none."""


class ShardLoad(NamedTuple):
    """A shard that is consumed, or should be."""

    owner: str
    """Empty: nobody."""
    bytes_per_second: float | None = None
    """What arrives in it; None: nobody knows."""


class Distribution(NamedTuple):
    """Who owns what."""

    clients: Sequence[Consumer]
    shards: Sequence[ShardLoad]
    problems: Sequence[str] = ()


def cluster_by(way: str) -> Cluster:
    """Return what names a client's cluster: its label, its zone, or how its id begins.

    A zone is looked for in the label, then in the id. ``prefix:2`` takes the first two
    parts of the id. Raises ConfigurationError.
    """
    kind, _, count = way.partition(":")
    if kind == "prefix" and re.fullmatch(r"[1-9]?", count, re.ASCII):
        return lambda client: _prefix(client.client_id, int(count or 1))
    if way == "label":
        return lambda client: client.label
    if way == "zone":
        return lambda client: _zone(client.label) or _zone(client.client_id)
    raise ConfigurationError(f"--by {way}: neither label nor zone nor prefix[:1-9]")


def _prefix(text: str, parts: int) -> str:
    ends = [match.start() for match in _SEPARATOR.finditer(text)]
    return text[: ends[parts - 1]] if len(ends) >= parts else text


def _zone(text: str) -> str:
    found = _ZONE.search(text)
    return found[0] if found else ""


def report(found: Distribution, by: str) -> dict[str, Any]:
    """Return the report as JSON: see docs/distribution.md. Raises ConfigurationError.

    A cluster's fair share is that of its clients' weights.
    """
    cluster = cluster_by(by)
    held: dict[str, list[ShardLoad]] = {
        client.client_id: [] for client in found.clients
    }
    for shard in found.shards:
        held.setdefault(shard.owner, []).append(shard)
    nobody = held.pop("", [])
    return {
        "version": VERSION,
        "by": by,
        "shards": len(found.shards),
        "unowned": len(nobody),
        "bytes_per_second": _sum(found.shards),
        "clusters": list(_clusters(found, cluster, held)),
        "clients": [
            {
                "client_id": client.client_id,
                "cluster": cluster(client),
                **_about(held[client.client_id]),
            }
            for client in sorted(found.clients)
        ],
        "problems": list(found.problems),
    }


def _clusters(
    found: Distribution, cluster: Cluster, held: Mapping[str, list[ShardLoad]]
) -> Iterator[dict[str, Any]]:
    members: dict[str, list[Consumer]] = {}
    for client in found.clients:
        members.setdefault(cluster(client), []).append(client)
    whole = sum(client.weight for client in found.clients) or 1
    for name, clients in sorted(members.items()):
        each = [held[client.client_id] for client in clients]
        share = sum(client.weight for client in clients) / whole
        yield {
            "cluster": name,
            "clients": len(clients),
            **_about([shard for shards in each for shard in shards]),
            "fair_shards": round(share * len(found.shards), 2),
            "fewest_of_a_client": min(map(len, each)),
            "most_of_a_client": max(map(len, each)),
        }


def _about(shards: Sequence[ShardLoad]) -> dict[str, Any]:
    return {"shards": len(shards), "bytes_per_second": _sum(shards)}


def _sum(shards: Iterable[ShardLoad]) -> float | None:
    """Return what arrives in all of them; None if that isn't known of one."""
    total = 0.0
    for shard in shards:
        if shard.bytes_per_second is None:
            return None
        total += shard.bytes_per_second
    return round(total, 1)


async def read_distribution(
    clients: ClientFactory,
    store: StateStore,
    app: str,
    roles: Roles = NO_ROLES,
    *,
    throughput: bool = True,
) -> Distribution:
    """Read an app's rows; ask Kinesis what arrived in each shard in the last seconds.

    Shards that wait for their parents, or have ended, don't count.
    """
    found = await snapshot.take(store, app)
    if not (found.streams or found.corrupt):
        raise KinesumerError(
            f"the table knows no app {app!r}; check --app, --table and --region"
        )
    rows = {
        arn: [row for row in page if row.ready and not row.ended]
        for arn, page in found.shards.items()
    }
    rates: dict[ShardKey, float] = {}
    problems = list(found.corrupt)
    if throughput:
        problems += await _measure(clients, rows, roles, rates)
    members = [Consumer(m.client_id, m.label, _weight(m)) for m in found.alive]
    held = [
        ShardLoad(
            row.owner_id if row.owner in found.sessions else "", rates.get(row.key)
        )
        for page in rows.values()
        for row in page
    ]
    return Distribution(members, held, problems)


def _weight(member: MemberRow) -> int:
    """Return what a client counts for in plans: nothing where it is to have none."""
    return 0 if member.drained or member.state == "leaving" else member.weight


async def _measure(
    clients: ClientFactory,
    rows: Mapping[str, Sequence[ShardRow]],
    roles: Roles,
    rates: dict[ShardKey, float],
) -> list[str]:
    """Fill in the bytes a second that arrive; return which streams can't be read."""
    asking = PacedReader()

    async def of_stream(arn: str, source: KinesisSource) -> None:
        clock = ServiceClock((await source.describe()).now)

        async def of_shard(row: ShardRow) -> None:
            try:
                sample = await sample_arrivals(asking, source, row.key, clock)
            except SHARD_ERRORS:
                return  # unknown: the others are told all the same
            rates[row.key] = sample.bytes_per_second

        await asyncio.gather(*(of_shard(row) for row in rows[arn]))

    faults = await for_each_stream(clients, rows, of_stream, roles)
    return [f"stream {arn}: throughput unknown: {e}" for arn, e in faults.items()]
