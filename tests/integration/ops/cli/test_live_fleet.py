"""Test the commands that only observe a fleet, which has one live client."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kinesumer.ops.exporter.metrics import COUNTERS, GAUGES, PREFIX
from kinesumer.testing import EmbeddedAws, background
from tests.support import recipes
from tests.support.cli import (
    COMMAND,
    CONSUME,
    NO_FILES,
    SETTINGS,
    Run,
    lines,
    put_orders,
    report,
)
from tests.support.clock import PATIENCE_SECONDS
from tests.support.promql import (
    Scrape,
    evaluate,
    is_of_client,
    panel_queries,
    read_scrape,
    shows_problems,
)
from tests.support.terminal import Terminal

ROOT = Path(__file__).parents[4]
DOCUMENT = (ROOT / "docs" / "doctor.md").read_text()
LOAD = {"bytes_per_second", "records_per_second", "handler_seconds_per_second"}
OBSERVABILITY = ROOT / "observability"
WATCH = [*COMMAND, "status", "--app=a", "--watch"]


pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def fleet() -> Iterator[EmbeddedAws]:
    """Start an embedded AWS, and a client that has consumed the stream orders."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(SETTINGS)}
    with background(EmbeddedAws()) as embedded:
        embedded.create_table()
        put_orders(embedded)
        with subprocess.Popen(
            [*COMMAND, *CONSUME, "--label=zone-a"],
            env={**kept, **NO_FILES, **embedded.environment()},
            stdout=subprocess.PIPE,
        ) as process:
            try:
                lines(process, 10)
                yield embedded
            finally:
                process.kill()


@pytest.fixture
def live(
    fleet: EmbeddedAws, environment: None, monkeypatch: pytest.MonkeyPatch
) -> EmbeddedAws:
    """Point the environment to the AWS of a live fleet, which tests don't change."""
    for name, value in fleet.environment().items():
        monkeypatch.setenv(name, value)
    return fleet


# --- reports --------------------------------------------------------------------------


def test_status_shows_clients_and_their_shards(live: EmbeddedAws, run: Run) -> None:
    found = report(run("status", "--app=a", "--json"))
    assert found["leader"] == "one"
    [member] = found["members"]
    assert (member["client_id"], member["stalled"]) == ("one", False)
    assert member["label"] == "zone-a"
    assert found["streams"][0]["retention_hours"] == 24
    assert found["streams"][0]["states"] == {"owned": 2}
    text = run("status", "--app=a").output
    assert "shardId-000000000001" in text
    assert "leader" in text


def test_shards_and_throughput_of_each_label(live: EmbeddedAws, run: Run) -> None:
    for shard in range(2):
        for _ in range(8):
            live.put("orders", b"x" * 1000, "k", explicit_hash_key=shard << 127)
    found = report(run("distribution", "--app=a", "--json"))
    rate = found["bytes_per_second"]
    assert rate > 0
    # The client may have measured its shards, or not yet.
    for row in [*found["clusters"], *found["clients"]]:
        assert {row.pop("work_share"), row.pop("load_share")} <= {None, 1.0}
        assert set(row.pop("load") or LOAD) == LOAD
    assert len(found.pop("busiest_shards")) in (0, 2)
    plan = found.pop("plan")
    assert plan["assignor"] == "range"
    assert plan["age_seconds"] >= 0
    assert plan["reasons"][0].startswith("the assignor range gives each client")
    about = {"version": 1, "app": "a", "table": "kinesumer-state-store", "by": "label"}
    both = {"cluster": "zone-a", "shards": 2, "bytes_per_second": rate}
    counts = {"fewest_of_a_client": 2, "most_of_a_client": 2, "fair_shards": 2.0}
    assert found == {
        **about,
        "shards": 2,
        "bytes_per_second": rate,
        "unowned": 0,
        "clusters": [{**both, **counts, "clients": 1}],
        "clients": [{**both, "client_id": "one"}],
        "problems": [],
    }
    text = run("distribution", "--app=a", "--by=zone", "--no-throughput").stdout
    assert text.startswith("app a: 2 shards, ?\n")


def test_a_healthy_fleet_has_no_findings(live: EmbeddedAws, run: Run) -> None:
    found = report(run("doctor", "--app=a", "--interval=1", "--json"))
    assert (found["findings"], found["worst"]) == ([], None)
    assert found["app_examined"] is True
    assert all(f"`{name}`" in DOCUMENT for name in found)
    assert all(check in DOCUMENT for check in found["checks"])
    assert "all is well" in run("doctor").output


@pytest.fixture
def scrape(live: EmbeddedAws, run: Run) -> Scrape:
    """Return what the exporter shows once the client has measured its load."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = read_scrape(run("metrics", "--app", "a", "--once").output)
        if found.get("kinesumer_group_member_work"):
            return found
        assert time.monotonic() < deadline, found


def test_a_live_fleet_has_every_documented_metric_and_label(scrape: Scrape) -> None:
    """Other tests compare the docs with metrics.py. This one uses a live fleet."""
    found = {
        metric: {name for labels in series for name, _ in labels}
        for metric, series in scrape.items()
    }
    counters = {f"{name}_total": about for name, about in COUNTERS.items()}
    # The metrics of fan-out are missing, since this fleet only polls.
    assert found == {
        PREFIX + name: set(about.labels)
        for name, about in {**GAUGES, **counters}.items()
        if "fan_out" not in name
    }


def test_no_alert_fires_for_a_healthy_fleet(scrape: Scrape) -> None:
    for group in yaml.safe_load((OBSERVABILITY / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert not evaluate(rule["expr"], scrape), rule["alert"]


def test_every_panel_has_data_of_a_live_fleet(scrape: Scrape) -> None:
    """Only those of clients' own metrics have none: test_run.py evaluates them."""
    for query in panel_queries():
        if not is_of_client(query):
            assert bool(evaluate(query, scrape)) != shows_problems(query), query


@pytest.mark.parametrize("name", ["scaledobject", "hpa"])
def test_autoscalers_on_kubernetes_ask_for_one_client(
    scrape: Scrape, name: str
) -> None:
    query = recipes.scaling_query(name).replace('"billing"', '"a"')
    assert list(evaluate(query, scrape).values()) == [1.0]


def test_an_autoscaler_on_ecs_asks_for_one_client(scrape: Scrape) -> None:
    dimensions = recipes.ecs_dimensions()
    assert len(dimensions) == 2
    for each in dimensions:
        series = frozenset({**each, "app": "a"}.items())
        assert scrape["kinesumer_group_clients_wanted"][series] == 1.0


def test_two_processes_with_one_client_id(live: EmbeddedAws, run: Run) -> None:
    result = run(*CONSUME)
    assert result.exit_code == 1
    assert "client id 'one' of app 'a' is in use" in result.stderr


# --- status --watch -------------------------------------------------------------------


def test_a_live_fleet_is_drawn_in_a_terminal_until_q(live: EmbeddedAws) -> None:
    with Terminal(WATCH) as terminal:
        drawn = terminal.until("orders (")  # the line below the clients
        assert "\x1b[?1049h" in drawn, "the terminal's own lines come back at the end"
        assert "██████████" in drawn
        terminal.resize(60, 12)
        terminal.press(b"q")
        terminal.until("\x1b[?1049l")
        assert terminal.ended() == 0
        assert terminal.is_as_it_was


def test_ctrl_c_ends_the_picture_and_restores_the_terminal(live: EmbeddedAws) -> None:
    with Terminal([*WATCH, "--no-lag"], NO_COLOR="1") as plain:
        assert ";5;" not in plain.until("orders (")
        plain.process.send_signal(signal.SIGINT)
        assert plain.ended() == 130
        assert plain.is_as_it_was
