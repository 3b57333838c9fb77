"""Test the commands for an app that is in the lease table of a KCL fleet."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support import lease_table
from tests.support.cli import CONSUME, Run, Starter, finished, lines, report
from tests.support.lease_table import LEASES, lease

SHARDS = ("shardId-000000000000", "shardId-000000000001")
IN_FLEET = (*CONSUME, "--kcl-table", LEASES)
HASH_KEYS = 2**128

pytestmark = pytest.mark.process


@pytest.fixture
def fleet(orders: EmbeddedAws) -> EmbeddedAws:
    """Create the leases of "orders", one of them with a worker."""
    halves = [(0, HASH_KEYS // 2 - 1), (HASH_KEYS // 2, HASH_KEYS - 1)]
    for shard_id, (first, last) in zip(SHARDS, halves, strict=True):
        keys: dict[str, Any] = {
            "startingHashKey": {"S": str(first)},
            "endingHashKey": {"S": str(last)},
        }
        item = lease(shard_id, "TRIM_HORIZON", **keys)
        if shard_id == SHARDS[0]:
            del item["leaseOwner"]
            lease_table.create(orders, item)
        else:
            lease_table.put(orders, item, table=LEASES)
    return orders


def one_record(start: Starter, command: tuple[str, ...]) -> bytes:
    """Return what a client writes that consumes one record."""
    return finished(start(*command, "--limit=1", "--output=text"))[0]


def test_a_client_joins_a_fleet_leaves_it_and_returns(
    fleet: EmbeddedAws, start: Starter, run: Run
) -> None:
    process = start(*IN_FLEET)
    # The worker of the second lease is dead, so that the client gets both.
    assert len(lines(process, 10)) == 10
    [stream] = report(run("status", "--app=a", "--json"))["streams"]
    assert {shard["state"] for shard in stream["shards"]} == {"owned"}
    process.send_signal(signal.SIGTERM)
    finished(process)
    for row in lease_table.rows(fleet).values():
        assert row["checkpoint"]["S"].isdigit() and "leaseOwner" not in row
    # Without the option, the app's clients are refused.
    refused = run(*CONSUME, "--limit=1")
    assert refused.exit_code == 1
    assert f"lease table {LEASES} of a KCL fleet" in refused.stderr
    done = run("kcl", "cut-over", "--app=a", "--look=0", "--yes")
    assert done.exit_code == 0, done.stderr
    assert f"moved 2 shards out of lease table {LEASES}" in done.stdout
    fleet.put("orders", b"new", explicit_hash_key=0)
    assert one_record(start, CONSUME) == b"new\n"
    back = run("kcl", "cut-over", "--app=a", "--look=0", "--yes", "--back")
    assert f"moved 2 shards into lease table {LEASES}" in back.stdout
    fleet.put("orders", b"newer", explicit_hash_key=0)
    assert one_record(start, IN_FLEET) == b"newer\n"


def test_a_client_is_known_to_kcl_3_and_leaves_its_leases_to_living_workers(
    fleet: EmbeddedAws, start: Starter
) -> None:
    table = f"{LEASES}-WorkerMetricStats"
    entry = {"wid": {"S": "w9"}, "lut": {"N": str(int(time.time()))}}
    lease_table.create(fleet, entry, table=table, key="wid")
    process = start(*IN_FLEET, "--client-id=c1")
    assert len(lines(process, 10)) == 10
    assert lease_table.rows(fleet, table, key="wid").keys() == {"c1", "w9"}
    process.send_signal(signal.SIGTERM)
    finished(process)
    leases = lease_table.rows(fleet).values()
    assert [row["leaseOwner"]["S"] for row in leases] == ["w9", "w9"]
    assert all(row["checkpoint"]["S"].isdigit() for row in leases)


def test_status_shows_workers_and_changes_that_they_would_not_follow_are_refused(
    fleet: EmbeddedAws, start: Starter, run: Run
) -> None:
    process = start(*IN_FLEET, "--output=text")
    lines(process, 1)
    status = report(run("status", "--app=a", "--json"))
    [stream] = status["streams"]
    by_id = {shard["shard_id"]: shard for shard in stream["shards"]}
    assert by_id[SHARDS[0]]["state"] == "owned"
    foreign = by_id[SHARDS[1]]
    assert (foreign["state"], foreign["owner"]) == ("foreign", "worker-1")
    assert status["problems"] == []
    assert "foreign" in run("status", "--app=a").stdout
    assert "have no owner" not in run("distribution", "--app=a").stdout
    assert run("doctor", "--app=a").exit_code == 0
    for command in (
        ["pause", "--stream=orders"],
        ["seek", "--stream=orders", "--to=TRIM_HORIZON", "--yes"],
    ):
        result = run(*command, "--app=a")
        assert result.exit_code != 0
        assert "in the lease table of a KCL fleet" in result.stderr


def test_an_app_that_is_in_no_fleet_cannot_be_cut_over(
    orders: EmbeddedAws, run: Run
) -> None:
    result = run("kcl", "cut-over", "--app=a", "--yes")
    assert "keeps no positions in the lease table of a KCL fleet" in result.stderr


def test_a_lease_table_that_does_not_exist_is_refused(
    orders: EmbeddedAws, run: Run
) -> None:
    result = run(*CONSUME, "--kcl-table=missing", "--limit=1")
    assert "table missing doesn't exist in us-east-1" in result.stderr
