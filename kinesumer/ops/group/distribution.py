"""Report the distribution of shards and their traffic over clients and clusters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.core.load import work_of
from kinesumer.errors import ConfigurationError
from kinesumer.ops.group.connect import NO_ROLES, Roles
from kinesumer.ops.group.loads import load_report, sum_loads
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.sampling import SHARD_ERRORS, ShardSampler, sample_shards
from kinesumer.ops.group.snapshot import read_known_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.loads import Load
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ops.group.plan_reasons import PlanReasons
    from kinesumer.ports import StateStore

    ClusterOf = Callable[["Consumer"], str]

VERSION = 1
BUSIEST_SHARDS = 10  # the number of shards that the report lists

# A zone's name, such as us-east-1a, or its id, such as use1-az2.
_ZONE = re.compile(r"[a-z]+(?:-[a-z]+)+-[0-9]+[a-z]|[a-z]{3,}[0-9]+-az[0-9]+")
_SEPARATOR = re.compile(r"[-._/:@ ]")


class Consumer(NamedTuple):
    """The properties of a client that determine its share of the shards."""

    client_id: str
    label: str = ""
    weight: int = 1  # its share of the shards relative to the others; 0 for none


class ShardLoad(NamedTuple):
    """The owner of a shard, its traffic, and the load that its owner reports."""

    owner: str  # a client id; empty if the shard has no owner
    bytes_per_second: float | None = None  # arriving data; None if unknown
    key: ShardKey | None = None  # None in a KCL fleet
    load: Load | None = None  # None if unknown
    hot: bool = False

    @property
    def work(self) -> int:
        """The shard's work, as the assignor by load computes it; 0 if unknown."""
        return 0 if self.load is None else work_of(self.load)


class Distribution(NamedTuple):
    """The clients, the shards and their owners."""

    clients: Sequence[Consumer]
    shards: Sequence[ShardLoad]
    problems: Sequence[str] = ()
    plan: PlanReasons | None = None  # None for a KCL fleet


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

    The weights of a cluster's clients determine its fair share of the shards and of the
    work.
    """
    cluster_of = cluster_by(by)
    owned: dict[str, list[ShardLoad]] = {c.client_id: [] for c in distribution.clients}
    for shard in distribution.shards:
        owned.setdefault(shard.owner, []).append(shard)
    unowned = owned.pop("", [])
    clusters: dict[str, list[Consumer]] = {}
    for client in distribution.clients:
        clusters.setdefault(cluster_of(client), []).append(client)
    total_weight = sum(client.weight for client in distribution.clients)
    total_work = sum(shard.work for shard in distribution.shards)

    def load(clients: Sequence[Consumer]) -> dict[str, Any]:
        shards = [shard for client in clients for shard in owned[client.client_id]]
        weight = sum(client.weight for client in clients)
        work_share = _share(sum(shard.work for shard in shards), total_work)
        fair_share = _share(weight, total_weight)
        return {
            "shards": len(shards),
            "bytes_per_second": _total_bytes(shards),
            "load": load_report(sum_loads(s.load for s in shards if s.load)),
            "work_share": None if work_share is None else round(work_share, 4),
            "load_share": round(work_share / fair_share, 2)
            if work_share is not None and fair_share
            else None,
        }

    return {
        "version": VERSION,
        "by": by,
        "shards": len(distribution.shards),
        "unowned": len(unowned),
        "plan": distribution.plan and distribution.plan.report(),
        "bytes_per_second": _total_bytes(distribution.shards),
        "clusters": [
            {
                "cluster": name,
                "clients": len(clients),
                **load(clients),
                "fair_shards": round(
                    sum(client.weight for client in clients)
                    / (total_weight or 1)  # all clients may be drained
                    * len(distribution.shards),
                    2,
                ),
                "fewest_of_a_client": min(len(owned[c.client_id]) for c in clients),
                "most_of_a_client": max(len(owned[c.client_id]) for c in clients),
            }
            for name, clients in sorted(clusters.items())
        ],
        "clients": [
            {
                "client_id": client.client_id,
                "cluster": cluster_of(client),
                **load([client]),
            }
            for client in sorted(distribution.clients)
        ],
        "busiest_shards": [
            {
                "stream_arn": shard.key.stream_arn,
                "shard_id": shard.key.shard_id,
                "owner": shard.owner or None,
                "load": load_report(shard.load),
                "work_share": round(shard.work / total_work, 4),
                "hot": shard.hot,
            }
            for shard in _busiest(distribution.shards)
            if shard.key is not None
        ],
        "problems": list(distribution.problems),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _busiest(shards: Iterable[ShardLoad]) -> list[ShardLoad]:
    """Return the shards with the most work, the busiest first."""
    known = [shard for shard in shards if shard.load is not None]
    return sorted(known, key=lambda shard: -shard.work)[:BUSIEST_SHARDS]


def _total_bytes(shards: Iterable[ShardLoad]) -> float | None:
    """Return the total traffic of the shards; None if a shard's traffic is unknown."""
    rates = [shard.bytes_per_second for shard in shards]
    known = [rate for rate in rates if rate is not None]
    return round(sum(known, 0.0), 1) if len(known) == len(rates) else None


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
    snapshot = await read_known_snapshot(store, app)
    fleet = FleetView(snapshot)
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
    # The fair share of drained and leaving clients is no shards, so their weight is 0.
    consumers = [
        Consumer(
            member.client_id,
            member.label,
            0 if member.drained or member.state == "leaving" else member.weight,
        )
        for member in snapshot.alive
    ]
    loads = [
        ShardLoad(
            row.owner_id if row.owner in snapshot.sessions else "",
            rates.get(row.key),
            row.key,
            fleet.loads.of_shards.get(row.key),
            row.key in fleet.loads.hot_shards,
        )
        for page in rows.values()
        for row in page
    ]
    return Distribution(consumers, loads, problems, fleet.plan)


async def _sample_rate(sampler: ShardSampler, _: ShardRow) -> float | None:
    """Measure the bytes per second that arrive in a shard; None if unknown."""
    try:
        return (await sampler.arrivals()).bytes_per_second
    except SHARD_ERRORS:
        return None
