"""The report on the distribution of shards."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.admin.distribution import (
    Consumer,
    Distribution,
    ShardLoad,
    cluster_by,
    report,
)
from kinesumer.core.assignment import Member, assign_range
from kinesumer.errors import ConfigurationError
from kinesumer.migration.kcl import read_table
from kinesumer.migration.kcl_workers import spread_of
from kinesumer.model.streams import HASH_KEYS
from tests.unit.migration.fleet import FIXTURE

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


def clusters(told: dict[str, Any]) -> dict[str, tuple[int, int, float]]:
    """Return clients, shards and the fair share by cluster."""
    return {
        row["cluster"]: (row["clients"], row["shards"], row["fair_shards"])
        for row in told["clusters"]
    }


def test_two_clusters_of_a_hundred_share_500_shards_evenly() -> None:
    # Ids in turn: by their order alone one cluster would get 300.
    members = [
        Member(f"{number:03}", 1, frozenset({ARN}), "ab"[number % 2])
        for number in range(200)
    ]
    firsts = [place * HASH_KEYS // 500 for place in range(500)]
    plan = assign_range(members, {ARN: firsts})
    owners = [
        next(
            client_id
            for client_id, range_ in plan.items()
            if any(part.first <= first <= part.last for part in range_)
        )
        for first in firsts
    ]
    told = report(
        Distribution(
            [Consumer(m.client_id, m.label) for m in members],
            [ShardLoad(owner, 1024.0) for owner in owners],
        ),
        "label",
    )
    assert clusters(told) == {"a": (100, 250, 250.0), "b": (100, 250, 250.0)}
    assert [row["bytes_per_second"] for row in told["clusters"]] == [256_000.0] * 2
    assert {
        (row["fewest_of_a_client"], row["most_of_a_client"])
        for row in (told["clusters"])
    } == {(2, 3)}


@pytest.mark.parametrize(
    ("by", "client", "cluster"),
    [
        ("label", Consumer("blue-1", "canary"), "canary"),
        ("label", Consumer("blue-1"), ""),
        ("zone", Consumer("blue-1", "rack 7, us-east-1a"), "us-east-1a"),
        ("zone", Consumer("ip-10.ap-southeast-2c.internal"), "ap-southeast-2c"),
        ("zone", Consumer("pod-7", "use1-az2"), "use1-az2"),
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


def test_unowned_shards_and_unknown_rates_are_reported() -> None:
    found = Distribution(
        [Consumer("a-1", weight=2), Consumer("a-2"), Consumer("b-1", weight=0)],
        [
            ShardLoad("a-1", 10.0),
            ShardLoad("a-1", 5.0),
            ShardLoad("a-2"),
            ShardLoad("", 1.0),
        ],
    )
    told = report(found, "prefix")
    assert (told["shards"], told["unowned"]) == (4, 1)
    assert told["bytes_per_second"] is None
    assert clusters(told) == {"a": (2, 3, 4.0), "b": (1, 0, 0.0)}
    rates = {row["client_id"]: row["bytes_per_second"] for row in told["clients"]}
    assert rates == {"a-1": 15.0, "a-2": None, "b-1": 0.0}


def test_an_app_without_clients_is_reported() -> None:
    told = report(Distribution([], [ShardLoad("")]), "label")
    assert (told["clusters"], told["unowned"]) == ([], 1)


def test_a_kcl_fleet_is_read_from_its_leases() -> None:
    told = report(spread_of(read_table(FIXTURE["tables"]["kclmulti2"])), "prefix")
    assert clusters(told) == {"worker": (1, 5, 5.0)}  # one has ended
    assert told["bytes_per_second"] is None  # two have no estimate yet
    told = report(spread_of(read_table(FIXTURE["tables"]["kclsingle"])), "prefix")
    assert told["bytes_per_second"] == 1.9
