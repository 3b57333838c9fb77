"""Test the entries by which the leader of KCL 3 knows workers."""

from __future__ import annotations

import json

import pytest

from kinesumer.model.rows import Row
from kinesumer.wire.kcl_workers import (
    entry,
    is_alive,
    read_clients,
    read_workers,
    takes_leases,
    upgrade_leader,
    workers_table,
)

# As KCL 3.5.1 and KCL 3.4.0 for Java wrote them, without their metrics.
IN_LEASES: Row = {
    "leaseKey": "w1",
    "entityType": "WORKER_METRIC_STATS",
    "lut": 1795943227,
    "slu": 1795943227,
    "sup": 1,
}
IN_OWN_TABLE: Row = {"wid": "w2", "lut": 1795943230}


def test_entries_are_read_from_either_table() -> None:
    others: list[Row] = [
        {"leaseKey": "Leader", "entityType": "LEADER", "ownerName": "w1"},
        {"leaseKey": "shardId-000000000000", "leaseCounter": 1, "lut": 5},
        {"wid": "w3", "lut": "soon"},
        {"wid": 4, "lut": 5},
    ]
    found = read_workers([IN_LEASES, IN_OWN_TABLE, *others])
    assert found == {"w1": 1795943227, "w2": 1795943230}


def test_a_client_s_entry_is_a_failing_worker_that_is_none_of_kcl_s() -> None:
    write = entry("orders", "c1", 1795943227.9)
    assert (write.key.pk, write.set["lut"], write.set["slu"]) == (
        "c1",
        *[1795943227] * 2,
    )
    metrics = json.loads(str(write.set["sts"]))["M"]
    limits = json.loads(str(write.set["opr"]))["M"]
    assert metrics.keys() == limits.keys()
    assert metrics["C"]["L"][-1] == {"N": "-1"}
    assert limits["C"]["L"][0] != {"N": "0"}
    assert write.set.keys() >= {key for key in IN_LEASES if key != "leaseKey"}
    row: Row = {"leaseKey": "c1", **write.set}
    assert read_workers([row]) == {}
    assert read_clients([IN_LEASES, row], "orders") == {"c1"}
    assert read_clients([row], "payments") == frozenset()


@pytest.mark.parametrize(
    ("mode", "takes"),
    [("UPGRADE_FROM_2X", True), ("2X", True), ("3X", False)],
)
def test_the_mode_says_whether_workers_take_leases(mode: str, *, takes: bool) -> None:
    row: Row = {
        "leaseKey": "Migration3.0",
        "entityType": "CLIENT_VERSION_MIGRATION",
        "cv": f"CLIENT_VERSION_{mode}",
    }
    assert takes_leases([IN_LEASES, row]) is takes
    assert not takes_leases([IN_LEASES])


# By the number of owners: the one that Java elects, counted from 0 in their order.
@pytest.mark.parametrize(
    ("count", "elected"), [(1, 0), (2, 0), (3, 2), (4, 3), (6, 2), (10, 8), (12, 9)]
)
def test_the_owner_that_kcl_elects_is_to_end_the_mode_compatible_with_kcl_2(
    count: int, elected: int
) -> None:
    mode: Row = {
        "leaseKey": "Migration3.0",
        "entityType": "CLIENT_VERSION_MIGRATION",
        "cv": "CLIENT_VERSION_UPGRADE_FROM_2X",
    }
    leases: list[Row] = [
        {"leaseKey": f"shard-{number}", "leaseCounter": 1, "leaseOwner": f"w{name:02}"}
        for number, name in enumerate([*reversed(range(count)), 0])
    ]
    free: Row = {"leaseKey": "shard-free", "leaseCounter": 1}
    assert upgrade_leader([IN_LEASES, mode, free, *leases]) == f"w{elected:02}"
    rolled_back = mode | {"cv": "CLIENT_VERSION_2X"}
    assert upgrade_leader([IN_LEASES, rolled_back, *leases]) is None
    assert upgrade_leader([IN_LEASES, mode, free]) is None


def test_a_worker_is_alive_for_a_minute_after_its_entry() -> None:
    assert is_alive(100, 159.9)
    assert not is_alive(100, 160.0)


def test_the_entries_table_is_named_after_the_lease_table() -> None:
    assert workers_table("orders") == "orders-WorkerMetricStats"
