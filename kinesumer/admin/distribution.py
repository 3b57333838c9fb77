"""Report how shards and their traffic are spread over clients and clusters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.sampling import SHARD_ERRORS, ShardSampler, sample_shards
from kinesumer.admin.snapshot import read_snapshot, unknown_app
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StateStore

    ClusterOf = Callable[["Consumer"], str]

VERSION = 1
CLUSTER_KINDS = ("label", "zone", "prefix")

_ZONE = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9][a-z]|[a-z]{3,4}[0-9]-az[0-9]")
"""A zone's name, such as us-east-1a, or its id, such as use1-az2."""
_SEPARATOR = re.compile(r"[-._/:@ ]")


class Consumer(NamedTuple):
    """A client, as far as it determines its share of the shards."""

    client_id: str
    label: str = ""
    weight: int = 1
    """Its share of the shards relative to the others; 0 for none."""


class ShardLoad(NamedTuple):
    """A shard that is or should be consumed."""

    owner: str
    """A client id; empty if the shard has no owner."""
    bytes_per_second: float | None = None
    """The data that arrives in it; None if unknown."""


class Distribution(NamedTuple):
    """The clients, the shards and their owners."""

    clients: Sequence[Consumer]
    shards: Sequence[ShardLoad]
    problems: Sequence[str] = ()


def cluster_by(kind: str) -> ClusterOf:
    """Return a function that names a client's cluster: label, zone or id prefix.

    ``zone`` searches the label for a zone, then the id. ``prefix:2`` takes the first
    two parts of the id. Raises ConfigurationError.
    """
    name, _, count = kind.partition(":")
    if name == "prefix" and re.fullmatch(r"[1-9]?", count, re.ASCII):
        return lambda client: _prefix(client.client_id, int(count or 1))
    if kind == "label":
        return lambda client: client.label
    if kind == "zone":
        return lambda client: _zone(client.label) or _zone(client.client_id)
    raise ConfigurationError(f"--by {kind}: give label, zone or prefix[:1-9]")


def _prefix(text: str, parts: int) -> str:
    ends = [match.start() for match in _SEPARATOR.finditer(text)]
    return text[: ends[parts - 1]] if len(ends) >= parts else text


def _zone(text: str) -> str:
    match = _ZONE.search(text)
    return match[0] if match else ""


def report(distribution: Distribution, by: str) -> dict[str, Any]:
    """Return the report as JSON (docs/distribution.md). Raises ConfigurationError.

    The weights of a cluster's clients determine its fair share.
    """
    cluster_of = cluster_by(by)
    owned: dict[str, list[ShardLoad]] = {
        client.client_id: [] for client in distribution.clients
    }
    for shard in distribution.shards:
        owned.setdefault(shard.owner, []).append(shard)
    unowned = owned.pop("", [])
    return {
        "version": VERSION,
        "by": by,
        "shards": len(distribution.shards),
        "unowned": len(unowned),
        "bytes_per_second": _total_bytes(distribution.shards),
        "clusters": list(_clusters(distribution, cluster_of, owned)),
        "clients": [
            {
                "client_id": client.client_id,
                "cluster": cluster_of(client),
                **_load(owned[client.client_id]),
            }
            for client in sorted(distribution.clients)
        ],
        "problems": list(distribution.problems),
    }


def _clusters(
    distribution: Distribution,
    cluster_of: ClusterOf,
    owned: Mapping[str, list[ShardLoad]],
) -> Iterator[dict[str, Any]]:
    members: dict[str, list[Consumer]] = {}
    for client in distribution.clients:
        members.setdefault(cluster_of(client), []).append(client)
    total_weight = sum(client.weight for client in distribution.clients) or 1
    for name, clients in sorted(members.items()):
        loads = [owned[client.client_id] for client in clients]
        share = sum(client.weight for client in clients) / total_weight
        yield {
            "cluster": name,
            "clients": len(clients),
            **_load([shard for shards in loads for shard in shards]),
            "fair_shards": round(share * len(distribution.shards), 2),
            "fewest_of_a_client": min(map(len, loads)),
            "most_of_a_client": max(map(len, loads)),
        }


def _load(shards: Sequence[ShardLoad]) -> dict[str, Any]:
    return {"shards": len(shards), "bytes_per_second": _total_bytes(shards)}


def _total_bytes(shards: Iterable[ShardLoad]) -> float | None:
    """Return the sum of the shards' traffic; None if that of any shard is unknown."""
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
    """Read an app's rows, and sample the current traffic of each shard.

    Leaves out shards that have ended or wait for their parents. Raises KinesumerError.
    """
    snapshot = await read_snapshot(store, app)
    if not (snapshot.streams or snapshot.corrupt):
        raise unknown_app(app)
    rows = {
        arn: [row for row in page if row.ready and not row.ended]
        for arn, page in snapshot.shards.items()
    }
    rates: dict[ShardKey, float | None] = {}
    problems = list(snapshot.corrupt)
    if throughput:
        samples = await sample_shards(clients, rows, roles, _sample_rate)
        rates = samples.values
        problems += [
            f"stream {arn}: throughput unknown: {error}"
            for arn, error in samples.problems.items()
        ]
    members = [Consumer(m.client_id, m.label, _weight(m)) for m in snapshot.alive]
    loads = [
        ShardLoad(
            row.owner_id if row.owner in snapshot.sessions else "", rates.get(row.key)
        )
        for page in rows.values()
        for row in page
    ]
    return Distribution(members, loads, problems)


def _weight(member: MemberRow) -> int:
    """Return a client's weight in plans: 0 if it shall have no shards."""
    return 0 if member.drained or member.state == "leaving" else member.weight


async def _sample_rate(sampler: ShardSampler, _: ShardRow) -> float | None:
    """Return the bytes per second that arrive in a shard; None if unknown."""
    try:
        return (await sampler.arrivals()).bytes_per_second
    except SHARD_ERRORS:
        return None
