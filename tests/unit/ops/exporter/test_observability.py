"""Test that dashboards and alerts name only exported metrics, and their queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kinesumer.ops.exporter.metrics import (
    COUNTERS,
    GAUGES,
    MEMBER_STATES,
    PREFIX,
    SHARD_STATES,
)
from kinesumer.ops.supervisor.metrics import metric_name
from kinesumer.telemetry import conventions
from tests.support.promql import evaluate, named, read_scrape, shows_problems

ROOT = Path(__file__).parents[4]
DASHBOARD = json.loads((ROOT / "observability" / "grafana.json").read_text())
ALERTS = [
    rule
    for group in yaml.safe_load((ROOT / "observability" / "alerts.yaml").read_text())[
        "groups"
    ]
    for rule in group["rules"]
]
GUIDE = (ROOT / "docs" / "monitoring.md").read_text()
LABELS = {
    **{PREFIX + name: set(about.labels) for name, about in GAUGES.items()},
    **{f"{PREFIX}{name}_total": set(about.labels) for name, about in COUNTERS.items()},
}
"""The labels of each scraped metric; test_metrics.py checks them at a live exporter."""
OF_MESSAGES = {
    metric_name(name, "")
    for name in (conventions.GROUP, conventions.DESTINATION, conventions.SYSTEM)
}
OF_CLIENTS = {
    f"{metric_name(conventions.CONSUMED_MESSAGES, '')}_total": OF_MESSAGES,
    f"{metric_name(conventions.PROCESS_DURATION, 's')}_bucket": OF_MESSAGES | {"le"},
}
"""Those of clients in panels; test_run.py evaluates the panels with live clients."""
KNOWN = LABELS | OF_CLIENTS
STATES = {f"{PREFIX}members": set(MEMBER_STATES), f"{PREFIX}shards": set(SHARD_STATES)}
TARGETS = [
    pytest.param(target["expr"], target["legendFormat"], id=panel["title"])
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]


@pytest.mark.parametrize(("expression", "legend"), TARGETS)
def test_panels_use_metrics_and_labels_that_exist(expression: str, legend: str) -> None:
    judge(expression)
    assert set(re.findall(r"{{(\w+)}}", legend)) <= left(expression)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alerts_use_metrics_that_exist_and_the_guide_says_what_to_do(
    rule: dict[str, Any],
) -> None:
    judge(rule["expr"])
    summary = rule["annotations"]["summary"]
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= left(rule["expr"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert f"| `{rule['alert']}` |" in GUIDE


def test_each_required_condition_has_an_alert() -> None:
    """There are alerts for lag, unowned shards, a missing leader, and retention."""
    watched = {s.metric for rule in ALERTS for s in named(rule["expr"]).selectors}
    for name in (
        "lag_seconds",
        "unowned_seconds",
        "leader_present",
        "retention_left_seconds",
    ):
        assert PREFIX + name in watched


@pytest.mark.parametrize("metric", LABELS)
def test_the_guide_describes_every_metric(metric: str) -> None:
    assert f"`{metric}`" in GUIDE


def test_the_dashboard_can_be_imported() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert DASHBOARD["title"] and DASHBOARD["uid"] and DASHBOARD["schemaVersion"] >= 36
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"] == source
        assert [t["refId"] for t in panel["targets"]] == list(
            "ABCDEF"[: len(panel["targets"])]
        )


def test_a_panel_of_problems_says_none_while_there_are_none() -> None:
    for panel in DASHBOARD["panels"]:
        is_empty = all(shows_problems(t["expr"]) for t in panel["targets"])
        shown = panel["fieldConfig"]["defaults"].get("noValue")
        assert (shown == "none") == is_empty, panel["title"]


def test_prometheus_reads_the_rules_and_the_ports_of_the_guide() -> None:
    path = ROOT / "observability" / "prometheus.yaml"
    settings = yaml.safe_load(path.read_text())
    assert [(path.parent / name).exists() for name in settings["rule_files"]] == [True]
    ports = [
        target.rpartition(":")[2]
        for job in settings["scrape_configs"]
        for scraped in job["static_configs"]
        for target in scraped["targets"]
    ]
    assert re.findall(r"(?:--listen 127.0.0.1:|--metrics-port )(\d+)", GUIDE) == ports


def test_variables_are_those_that_panels_use() -> None:
    known = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$(\w+)", " ".join(variables_used()))) <= known
    for variable in DASHBOARD["templating"]["list"]:
        query = variable.get("definition", "")
        if match := re.fullmatch(r"label_values\((.*), (\w+)\)", query):
            judge(match[1])
            assert match[2] in LABELS[named(match[1]).selectors[0].metric]


def variables_used() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield panel["datasource"]["uid"].replace("{", "").replace("}", "")
        for target in panel["targets"]:
            yield target["expr"]


def judge(expression: str) -> None:
    """Fail if an expression names an unknown metric, label or state."""
    found = named(expression)
    assert found.selectors
    for metric, matchers in found.selectors:
        assert metric in KNOWN, metric
        for label, value in matchers:
            assert label in KNOWN[metric], (metric, label)
            if label == "state":
                assert value in STATES[metric], value
    assert found.grouped <= set.union(*(KNOWN[s.metric] for s in found.selectors))


def left(expression: str) -> set[str]:
    """Return the labels of an expression's result."""
    found = named(expression)
    if found.grouped:
        return found.grouped
    if "sum(" in expression or "max(" in expression or "min(" in expression:
        return set()
    return KNOWN[found.selectors[0].metric]


SCRAPE = read_scrape(
    """
# TYPE up gauge
up{app="a"} 1
up{app="b"} 0
# TYPE members gauge
members{app="a",state="up"} 3
members{app="a",state="silent"} 1
members{app="b",state="up"} 0
# TYPE wanted gauge
wanted{app="a"} 5
"""
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("up == 0", {"b": 0}),
        ('members{state="up"}', {"a up": 3, "b up": 0}),
        ('sum(members{app=~"a|b",state!="up"})', {"": 1}),
        ("sum by (app) (members)", {"a": 4, "b": 0}),
        ("max by (app) (wanted) > on (app) sum by (app) (members)", {"a": 5}),
        ("wanted < on (app) sum by (app) (members)", {}),
        ("sum(1 - up)", {"": 1}),
        ("2 * up - up", {"a": 1, "b": 0}),
        ("wanted > 1 and on (app) up == 1", {"a": 5}),
        ("topk(1, members)", {"a up": 3}),
        ("rate(up[5m]) * 60", {"a": 0, "b": 0}),
        ("absent(up)", {}),
        ("absent(down)", {"": 1}),
        ("(up) == 1", {"a": 1}),
    ],
)
def test_a_query_has_the_result_that_prometheus_documents(
    query: str, expected: dict[str, float]
) -> None:
    found = evaluate(query, SCRAPE)
    names = {" ".join(v for _, v in sorted(k)): value for k, value in found.items()}
    assert names == expected


@pytest.mark.parametrize(
    "query", ["up up", "mean(up)", "up - on (app) members", "(up", "up)"]
)
def test_a_query_that_cannot_be_evaluated_is_noticed(query: str) -> None:
    with pytest.raises(AssertionError):
        evaluate(query, SCRAPE)
