"""``kinesumer distribution`` of an app and of a KCL fleet."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cli import lease_table
from tests.integration.cli.conftest import error_text
from tests.integration.cli.lease_table import LEASES, lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process, Run

SHARD = "shardId-00000000000"


@pytest.mark.process
def test_shards_and_throughput_of_each_label(
    aws: EmbeddedAws, run: Run, start: Callable[..., Process]
) -> None:
    aws.create_table()
    aws.create_stream("orders", 4)
    for name in ("east", "west"):
        start("consume", "orders", "--app=a", f"--client-id={name}", f"--label={name}1")
    for _ in range(200):
        report = run("distribution", "--app=a", "--no-throughput", "--json")
        if report.exit_code == 0:
            shards = [row["shards"] for row in json.loads(report.stdout)["clusters"]]
            if shards == [2, 2]:
                break
        time.sleep(0.1)
    for shard in range(4):
        for _ in range(8):
            aws.put("orders", b"x" * 1000, "k", explicit_hash_key=shard << 126)
    report = run("distribution", "--app=a", "--json")
    found: dict[str, Any] = json.loads(report.stdout)
    east, west = found.pop("clusters")
    rate = east["bytes_per_second"]
    assert rate > 0 and west["bytes_per_second"] > 0
    assert east == {
        "cluster": "east1",
        "clients": 1,
        "shards": 2,
        "bytes_per_second": rate,
        "fair_shards": 2.0,
        "fewest_of_a_client": 2,
        "most_of_a_client": 2,
    }
    assert found.pop("bytes_per_second") > rate
    assert [row.pop("bytes_per_second") > 0 for row in found["clients"]] == [True] * 2
    assert found == {
        "version": 1,
        "app": "a",
        "table": "kinesumer-state-store",
        "by": "label",
        "shards": 4,
        "unowned": 0,
        "clients": [
            {"client_id": "east", "cluster": "east1", "shards": 2},
            {"client_id": "west", "cluster": "west1", "shards": 2},
        ],
        "problems": [],
    }
    text = run("distribution", "--app=a", "--by=zone", "--no-throughput").stdout
    assert text.startswith("app a: 4 shards, ?\n")
    assert "(none)  2" in text


def test_shards_and_throughput_of_a_kcl_fleet(aws: EmbeddedAws, run: Run) -> None:
    rate: dict[str, Any] = {"throughputKBps": {"N": "1.5"}}
    lease_table.create(
        aws,
        lease(f"{SHARD}0", "SHARD_END"),
        lease(f"{SHARD}1", "49", leaseOwner={"S": "blue-1"}, **rate),
        lease(f"{SHARD}2", "49", leaseOwner={"S": "blue-2"}, **rate),
        lease(f"{SHARD}3", "49", leaseOwner={"S": "green-1"}, **rate),
    )
    text = run("distribution", "--kcl", LEASES).stdout
    assert text.splitlines()[:4] == [
        f"lease table {LEASES}: 3 shards, 4.5 KiB/s",
        "prefix  clients  shards  fair  a client  throughput",
        "blue    2        2       2     1 to 1    3.0 KiB/s ",
        "green   1        1       1     1 to 1    1.5 KiB/s ",
    ]


def test_distribution_needs_a_known_app_or_a_lease_table(
    aws: EmbeddedAws, run: Run
) -> None:
    aws.create_table()
    assert "pass either --app APP or --kcl TABLE" in error_text(run("distribution"))
    assert "knows no app 'a'" in error_text(run("distribution", "--app=a"))
    assert "give label" in error_text(run("distribution", "--app=a", "--by=colour"))
