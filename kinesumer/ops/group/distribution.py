"""Report the distribution of shards and their traffic over clients and clusters."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from kinesumer.aws.session import ClientFactory
from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import ShardKey
from kinesumer.ops.group import status
from kinesumer.ops.group.connect import NO_ROLES, Roles
from kinesumer.ops.group.loads import PlanReport, Rates, rates, sum_loads
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.shard_reads import (
    SHARD_ERRORS,
    Samples,
    ShardSampler,
    sample_shards,
)
from kinesumer.ops.group.snapshot import read_known_snapshot
from kinesumer.ports import StateStore
from kinesumer.runtime.text import MAX_NAMED

ClusterOf = Callable[["Consumer"], str]
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
    load: Rates | None = None  # None if unknown
    hot: bool = False

    @property
    def work(self) -> int:
        """The shard's work, as the assignor by load computes it; 0 if unknown."""
        return 0 if self.load is None else self.load.work


class Distribution(NamedTuple):
    """The clients, the shards and their owners."""

    clients: Sequence[Consumer]
    shards: Sequence[ShardLoad]
    problems: Sequence[str] = ()
    plan: PlanReport | None = None  # None for a KCL fleet


def cluster_by(kind: str) -> ClusterOf:
    """Return a function that names a client's cluster: label, zone or id prefix.

    ``prefix:2`` is the first two parts of the id. Raises ConfigurationError.
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


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The shards of a client or a cluster, their traffic and their work."""

    shards: int
    bytes_per_second: float | None
    load: Rates | None
    work_share: float | None
    load_share: float | None


class ClusterSpread(Spread, frozen=True, kw_only=True):
    """The share of a cluster; the weights of its clients determine its fair share."""

    cluster: str
    clients: int
    fair_shards: float
    fewest_of_a_client: int
    most_of_a_client: int


class ClientSpread(Spread, frozen=True, kw_only=True):
    """The share of a client."""

    client_id: str
    cluster: str


class BusyShard(msgspec.Struct, frozen=True, kw_only=True):
    """One of the shards with the most work."""

    stream_arn: str
    shard_id: str
    owner: str | None
    load: Rates
    work_share: float
    hot: bool


class DistributionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``kinesumer distribution``; see docs/distribution.md."""

    by: str
    shards: int
    unowned: int
    plan: PlanReport | None
    bytes_per_second: float | None
    clusters: list[ClusterSpread]
    clients: list[ClientSpread]
    busiest_shards: list[BusyShard]
    problems: list[str]


def report(distribution: Distribution, by: str) -> DistributionReport:
    """Return the report. Raises ConfigurationError if ``by`` is unknown."""
    cluster_of = cluster_by(by)
    owned: dict[str, list[ShardLoad]] = defaultdict(list)
    clusters: dict[str, list[Consumer]] = defaultdict(list)
    for shard in distribution.shards:
        owned[shard.owner].append(shard)
    for client in distribution.clients:
        clusters[cluster_of(client)].append(client)
    total_weight = sum(client.weight for client in distribution.clients)
    total_work = sum(shard.work for shard in distribution.shards)

    def fair_share(clients: Sequence[Consumer]) -> float | None:
        return _share(sum(client.weight for client in clients), total_weight)

    def spread(clients: Sequence[Consumer]) -> Spread:
        shards = [shard for client in clients for shard in owned[client.client_id]]
        work = _share(sum(shard.work for shard in shards), total_work)
        fair = fair_share(clients)
        return Spread(
            shards=len(shards),
            bytes_per_second=_total_bytes(shards),
            load=rates(sum_loads(s.load.load for s in shards if s.load)),
            work_share=None if work is None else round(work, 4),
            load_share=None if work is None or not fair else round(work / fair, 2),
        )

    def of_cluster(name: str, clients: Sequence[Consumer]) -> ClusterSpread:
        counts = [len(owned[client.client_id]) for client in clients]
        # All clients may be drained.
        fair = fair_share(clients) or 0.0
        return ClusterSpread(
            cluster=name,
            clients=len(clients),
            fair_shards=round(fair * len(distribution.shards), 2),
            fewest_of_a_client=min(counts),
            most_of_a_client=max(counts),
            **asdict(spread(clients)),
        )

    return DistributionReport(
        by=by,
        shards=len(distribution.shards),
        unowned=len(owned[""]),
        plan=distribution.plan,
        bytes_per_second=_total_bytes(distribution.shards),
        clusters=[of_cluster(*item) for item in sorted(clusters.items())],
        clients=[
            ClientSpread(
                client_id=one.client_id,
                cluster=cluster_of(one),
                **asdict(spread([one])),
            )
            for one in sorted(distribution.clients)
        ],
        busiest_shards=_busiest(distribution.shards, total_work),
        problems=list(distribution.problems),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _busiest(shards: Iterable[ShardLoad], total_work: int) -> list[BusyShard]:
    """Return the shards with the most work, the busiest first."""
    return [
        BusyShard(
            stream_arn=shard.key.stream_arn,
            shard_id=shard.key.shard_id,
            owner=shard.owner or None,
            load=shard.load,
            work_share=round(shard.work / total_work, 4),
            hot=shard.hot,
        )
        for shard in sorted(shards, key=lambda shard: -shard.work)[:MAX_NAMED]
        if shard.key is not None and shard.load is not None
    ]


def _total_bytes(shards: Iterable[ShardLoad]) -> float | None:
    """Return the total traffic of the shards; None if a shard's traffic is unknown."""
    rates = [shard.bytes_per_second for shard in shards]
    return None if None in rates else round(sum(filter(None, rates), 0.0), 1)


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
    rows = {
        arn: [row for row in page if row.ready and not row.ended]
        for arn, page in snapshot.shards.items()
        if throughput
    }
    samples = await sample_shards(clients, rows, roles, _sample_rate)
    return of_group(status.report(app, "", FleetView(snapshot)), samples)


def of_group(group: status.GroupReport, samples: Samples[float | None]) -> Distribution:
    """Return the distribution of a group, with the sampled traffic of its shards."""
    # The fair share of drained and leaving clients is no shards, so their weight is 0.
    consumers = [
        Consumer(
            member.client_id,
            member.label,
            0 if member.drained or member.state == "leaving" else member.weight,
        )
        for member in group.members
    ]
    loads = [
        ShardLoad(
            (shard.owner or "") if shard.state in ("owned", "moving") else "",
            samples.values.get(key := ShardKey(stream.stream_arn, shard.shard_id)),
            key,
            shard.load,
            shard.hot,
        )
        for stream in group.streams
        for shard in stream.shards
        if shard.state not in ("ended", "waiting", "foreign")
    ]
    problems = group.unreadable_rows + [
        f"stream {arn}: throughput unknown: {error}"
        for arn, error in samples.problems.items()
    ]
    return Distribution(consumers, loads, problems, group.plan)


async def _sample_rate(sampler: ShardSampler, _: ShardRow) -> float | None:
    """Measure the bytes per second that arrive in a shard; None if unknown."""
    try:
        return (await sampler.arrivals()).bytes_per_second
    except SHARD_ERRORS:
        return None
