"""Test ``kinesumer status``, ``lag``, ``distribution`` and ``health``."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from kinesumer.blocking import Kinesumer
from kinesumer.testing import EmbeddedAws
from tests.support import lease_table
from tests.support.cli import (
    COMMAND,
    Run,
    Starter,
    error_text,
    finished,
    lines,
    report,
)
from tests.support.lease_table import LEASES, lease
from tests.support.terminal import Terminal

STATUS = ("status", "--app=a", "--json")
LAG = ("lag", "--app=a", "--interval=0.5")
HEALTH = ("health", "--app", "billing", "--client-id", "one")
SHARD = "shardId-00000000000"


# --- status ---------------------------------------------------------------------------


def test_status_shows_everything_but_the_lag_of_an_unreadable_stream(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.deny("kinesis:DescribeStreamSummary")
    found = report(run(*STATUS))
    stream = found["streams"][0]
    assert stream["states"] == {"unowned": 2}
    assert "access denied: kinesis:DescribeStreamSummary" in stream["lag_problem"]
    assert any("lag unknown: access denied" in text for text in found["problems"])
    quiet = report(run(*STATUS, "--no-lag"))
    assert not any("lag" in text for text in quiet["problems"])
    assert quiet["streams"][0]["millis_behind_latest"] is None


@pytest.mark.process
def test_status_repeats_until_a_signal_and_survives_an_outage(
    stopped_app: EmbeddedAws, start: Starter
) -> None:
    watching = start(*STATUS, "--watch", "--no-lag")
    seconds = [unowned_seconds(line) for line in lines(watching, 1)]
    stopped_app.outage(2.5)
    assert watching.stderr is not None
    assert b"; trying again" in watching.stderr.readline()
    stopped_app.clear_faults()
    # It remembers through the outage for how long shards have had no owner.
    seconds += map(unowned_seconds, lines(watching, 1))
    assert 0.0 == seconds[0] < 2.5 < seconds[1]
    watching.send_signal(signal.SIGINT)
    finished(watching)
    assert watching.returncode == 130


def unowned_seconds(line: bytes) -> float:
    """Return for how long a status has seen the shards without an owner."""
    [stream] = json.loads(line)["streams"]
    return float(min(shard["unowned_seconds"] for shard in stream["shards"]))


@pytest.mark.process
def test_a_picture_shows_an_outage_beside_the_last_report(
    stopped_app: EmbeddedAws,
) -> None:
    watching = [*COMMAND, "status", "--app=a", "--watch", "--no-lag"]
    with Terminal(watching) as terminal:
        terminal.until("orders (")
        stopped_app.fault("refuse", service="dynamodb")
        terminal.until("trying again")
        stopped_app.clear_faults()
        terminal.text = ""
        terminal.until("no client is alive")
        terminal.press(b"q")
        assert terminal.ended() == 0


# --- apps ----------------------------------------------------------------------------


def test_all_apps_of_a_table_are_listed_with_their_unread_shards(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    with Kinesumer("b") as running:
        next(running.consume("orders", start="TRIM_HORIZON"))
        running.pause("orders", reason="a migration")
        listed = report(run("apps", "--json"))
        assert listed["table"] == "kinesumer-state-store"
        stopped, paused = listed["apps"]
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
    assert (stopped["app"], stopped["clients"], stopped["shards"]) == ("a", 0, 2)
    assert (stopped["unread"], stopped["streams"]) == (2, [arn])
    assert (paused["app"], paused["clients"], paused["paused"]) == ("b", 1, True)
    assert paused["unread"] == 0  # nobody should read it
    text = run("apps").output
    assert "paused" in text and "orders" in text


def test_a_table_without_apps_is_said_and_scanning_needs_permission(
    orders: EmbeddedAws, run: Run
) -> None:
    assert "no app has any rows" in run("apps").output
    orders.deny("dynamodb:Scan")
    assert "dynamodb:Scan" in error_text(run("apps"))


# --- lag ------------------------------------------------------------------------------


def test_an_unconsumed_backlog_is_counted_and_stalled(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    for number in range(40):
        stopped_app.put("orders", b"x" * 100, f"customer {number}")
    stopped_app.advance(3600)
    stopped_app.put("orders", b"the newest", "customer 1")
    found = report(run(*LAG, "--json"))
    [stream] = found["streams"]
    assert (stream["records_behind"], stream["records_exact"]) == (41, True)
    assert 3600_000 <= stream["millis_behind_latest"] < 3700_000
    assert (stream["trend"], stream["seconds_to_catch_up"]) == ("stalled", None)
    assert {shard["state"] for shard in stream["shards"]} == {"unowned"}
    assert found["problems"] == []
    assert "60 min behind, 41 records, stalled" in run(*LAG).output
    document = (Path(__file__).parents[4] / "docs" / "lag.md").read_text()
    for name in {*found, *stream, *stream["shards"][0]}:
        assert f"`{name}`" in document, name


def test_a_shard_with_expired_records_is_named(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    shard = stopped_app.open_shards("orders")[0]
    stopped_app.split("orders", shard)
    stopped_app.advance(25 * 3600)
    [stream] = report(run(*LAG, "--json"))["streams"]
    lost = {s["shard_id"]: s for s in stream["shards"] if s["problem"]}
    assert lost[shard]["millis_behind_latest"] is None


def test_paused_shards_are_marked(stopped_app: EmbeddedAws, run: Run) -> None:
    assert run("pause", "--app=a", "--stream=orders", "--wait=0").exit_code == 0
    [stream] = report(run(*LAG, "--json"))["streams"]
    assert {shard["paused"] for shard in stream["shards"]} == {True}


def test_the_lag_of_an_unreadable_stream_is_unknown(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.deny("kinesis:DescribeStreamSummary")
    [stream] = report(run(*LAG, "--json"))["streams"]
    assert "access denied" in stream["problem"]
    assert (stream["records_behind"], stream["trend"]) == (None, "unknown")
    assert ": lag unknown" in run(*LAG).output


# --- distribution ---------------------------------------------------------------------


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


# --- health ---------------------------------------------------------------------------


def test_a_live_client_is_ready_and_one_that_has_left_is_dead(
    orders: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(orders.journal.latest)
    assert run(*HEALTH).exit_code == 1
    # The command reads only the client's row. It doesn't describe the table.
    calls = list(orders.journal.latest)[before:]
    assert [entry.operation for entry in calls] == ["GetItem"]
    monkeypatch.setenv("KINESUMER_APP", "billing")
    monkeypatch.setenv("KINESUMER_CLIENT_ID", "one")
    why = "its heartbeat advances, and it has its part of the plan"
    with Kinesumer("billing", client_id="one") as running:
        next(running.consume("orders", start="TRIM_HORIZON"))
        result = run("health", "--ready")
        said = f"one of billing: alive, ready: {why}\n"
        assert (result.exit_code, result.stdout) == (0, said)
        found = report(run("health", "--json"))
    assert found == {
        "app": "billing",
        "client_id": "one",
        "alive": True,
        "ready": True,
        "state": "up",
        "why": why,
    }
    result = run("health")
    assert (result.exit_code, result.stdout[:21]) == (1, "one of billing: dead:")


def test_health_without_a_state_store_counts_as_alive(
    aws: EmbeddedAws, run: Run
) -> None:
    aws.create_table()
    aws.fault("error", service="dynamodb")
    result = run(*HEALTH)
    assert result.exit_code == 0
    assert result.stdout.startswith("one of billing: unknown: the state store")
    assert report(run(*HEALTH, "--ready", "--json"), status=1)["alive"] is None


def test_health_without_a_table_is_an_error(aws: EmbeddedAws, run: Run) -> None:
    assert "kinesumer init" in error_text(run(*HEALTH), 1)
