"""Test the report on the distribution of shards."""

from __future__ import annotations

import pytest

from kinesumer.errors import AccessDeniedError, ConfigurationError
from kinesumer.model.reports import Load
from kinesumer.model.streams import ShardKey
from kinesumer.ops.group import status
from kinesumer.ops.group.distribution import (
    Consumer,
    Distribution,
    DistributionReport,
    ShardLoad,
    cluster_by,
    of_group,
    report,
)
from kinesumer.ops.group.loads import PlanReport, Rates, rates
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.shard_reads import Samples
from tests.support.doctor import ARN, member, row, snapshot

DENIED = AccessDeniedError("kinesis:GetRecords", ARN)


def clusters(answer: DistributionReport) -> dict[str, tuple[int, int, float]]:
    """Return each cluster's number of clients, number of shards, and fair share."""
    return {
        row.cluster: (row.clients, row.shards, row.fair_shards)
        for row in answer.clusters
    }


@pytest.mark.parametrize(
    ("by", "client", "cluster"),
    [
        ("label", Consumer("blue-1", "canary"), "canary"),
        ("label", Consumer("blue-1"), ""),
        ("zone", Consumer("blue-1", "rack 7, us-east-1a"), "us-east-1a"),
        ("zone", Consumer("ip-10.ap-southeast-2c.internal"), "ap-southeast-2c"),
        ("zone", Consumer("pod-7", "use1-az2"), "use1-az2"),
        ("zone", Consumer("pod-7", "eusc-de-east-1b"), "eusc-de-east-1b"),
        ("zone", Consumer("pod-7", "euscde1-az1"), "euscde1-az1"),
        ("zone", Consumer("blue-1", "canary"), ""),
        ("prefix", Consumer("blue-7d9f-x2"), "blue"),
        ("prefix:2", Consumer("blue-7d9f-x2"), "blue-7d9f"),
        ("prefix:9", Consumer("blue-7d9f-x2"), "blue-7d9f-x2"),
        ("prefix", Consumer("10.0.0.7:uuid"), "10"),
        ("prefix", Consumer("alone"), "alone"),
    ],
)
def test_clusters_are_named_by_labels_zones_or_ids(
    by: str, client: Consumer, cluster: str
) -> None:
    assert cluster_by(by)(client) == cluster


@pytest.mark.parametrize("by", ["", "colour", "prefix:0", "prefix:10", "label:1"])
def test_an_unknown_cluster_kind_is_rejected(by: str) -> None:
    with pytest.raises(ConfigurationError, match="give label, zone or prefix"):
        cluster_by(by)


def test_the_distribution_of_a_group_is_that_of_its_report() -> None:
    shards = [
        row(0),
        row(1, "gone"),
        row(2, paused=True),
        row(3, "", ready=False),
        row(4, "", ended=True),
    ]
    members = [
        member("a", label="blue", weight=2),
        member("b", drained=True),
        member("c", state="leaving"),
    ]
    found = snapshot(shards, members, corrupt=("a row",))
    samples: Samples[float | None] = Samples({shards[0].key: 5.0}, {ARN: DENIED}, {})
    made = of_group(status.report("a", "", FleetView(found)), samples)
    assert made == Distribution(
        [Consumer("a", "blue", 2), Consumer("b", weight=0), Consumer("c", weight=0)],
        [
            ShardLoad("a", 5.0, shards[0].key),
            ShardLoad("", None, shards[1].key),
            ShardLoad("a", None, shards[2].key),
        ],
        ["a row", f"stream {ARN}: throughput unknown: {DENIED}"],
        PlanReport(None, None, []),
    )


def test_unowned_shards_and_unknown_rates_are_reported() -> None:
    distribution = Distribution(
        [Consumer("a-1", weight=2), Consumer("a-2"), Consumer("b-1", weight=0)],
        [
            ShardLoad("a-1", 10.0),
            ShardLoad("a-1", 5.0),
            ShardLoad("a-2"),
            ShardLoad("", 1.0),
        ],
    )
    answer = report(distribution, "prefix")
    assert (answer.shards, answer.unowned) == (4, 1)
    assert answer.bytes_per_second is None
    assert clusters(answer) == {"a": (2, 3, 4.0), "b": (1, 0, 0.0)}
    rates = {row.client_id: row.bytes_per_second for row in answer.clients}
    assert rates == {"a-1": 15.0, "a-2": None, "b-1": 0.0}


def test_the_work_of_clients_clusters_and_the_busiest_shards_is_reported() -> None:
    loads = [rates(Load(1000.0, 10.0, seconds)) for seconds in (0.6, 0.1, 0.1)]
    keys = [ShardKey(ARN, f"shardId-{number}") for number in range(4)]
    distribution = Distribution(
        [Consumer("a-1"), Consumer("b-1", weight=2), Consumer("b-2", weight=0)],
        [
            ShardLoad("a-1", None, keys[0], loads[1]),
            ShardLoad("b-1", None, keys[1], loads[0], hot=True),
            ShardLoad("b-1", None, keys[2], loads[2]),
            ShardLoad("b-2", None, keys[3]),
        ],
        plan=PlanReport("load", 3.2, ["so"]),
    )
    answer = report(distribution, "prefix")
    assert answer.plan == PlanReport("load", 3.2, ["so"])
    one, two, idle = answer.clients
    assert one.load == Rates(1000.0, 10.0, 0.1)
    assert two.load == Rates(2000.0, 20.0, 0.7)
    assert idle.load is None
    assert (one.work_share, two.work_share) == (0.1259, 0.8741)
    # Its fair share is a third of the work, and that of the other one two thirds.
    assert (one.load_share, two.load_share) == (0.38, 1.31)
    assert (idle.work_share, idle.load_share) == (0, None)
    assert [row.load_share for row in answer.clusters] == [0.38, 1.31]
    busiest, *others = answer.busiest_shards
    assert (busiest.shard_id, busiest.owner, busiest.hot) == ("shardId-1", "b-1", True)
    assert [row.shard_id for row in others] == ["shardId-0", "shardId-2"]


def test_without_loads_the_work_is_unknown() -> None:
    answer = report(Distribution([Consumer("a")], [ShardLoad("a", 1.0)]), "label")
    assert (answer.plan, answer.busiest_shards) == (None, [])
    [client] = answer.clients
    assert (client.load, client.work_share, client.load_share) == (None,) * 3


def test_an_app_without_clients_is_reported() -> None:
    answer = report(Distribution([], [ShardLoad("")]), "label")
    assert (answer.clusters, answer.unowned) == ([], 1)
