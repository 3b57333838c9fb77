"""Test the metrics that the exporter builds from the rows of a fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.rows import Deaths, GroupRow, LeaderRow
from kinesumer.model.streams import FanOutUse
from kinesumer.ops.exporter.collector import DEFAULT_OPTIONS, ScaleObserver
from kinesumer.ops.exporter.metrics import (
    AppMetrics,
    Scale,
)
from kinesumer.ops.group.lag import NO_LAGS, Lags
from kinesumer.ops.group.observation import observe
from kinesumer.ops.group.snapshot import Snapshot
from tests.support.doctor import ARN, member, row, snapshot
from tests.support.exported_metrics import STREAM, reading, samples

SHARDS = [
    row(0),
    row(1, ""),
    row(2, "gone"),
    row(3, "", ready=False),
    row(4, "", ended=True),
    row(5, "", paused=True),
]
SNAPSHOT = snapshot(
    SHARDS,
    [
        member("a"),
        member("b", state="degraded"),
        member("c", drained=True),
        member("d", range=None),
    ],
    corrupt=("a row",),
)
LAGS = Lags({SHARDS[0].key: 1500, SHARDS[1].key: 7_200_000}, {}, {ARN: 24})


def metrics_of(
    snapshot: Snapshot = SNAPSHOT, lags: Lags | None = LAGS
) -> dict[str, dict[Any, float]]:
    """Return the samples of one app, by name and labels."""
    known = lags or NO_LAGS
    observation = observe(observe(None, snapshot, known, 98.0), snapshot, known, 100.0)
    has_lags = lags is not None
    observer = ScaleObserver(DEFAULT_OPTIONS)
    scale = observer.observe(observation, 100.0, has_lags=has_lags)
    return samples(AppMetrics("a", 3, 1, reading(observation, has_lags, scale)))


def of(values: dict[Any, float], **labels: str) -> float:
    """Return the value of the only sample that has these labels."""
    (value,) = [v for k, v in values.items() if k >= frozenset(labels.items())]
    return value


def test_members_are_counted_by_their_worst_state() -> None:
    members = metrics_of()["members"]
    found = {dict(key)["state"]: value for key, value in members.items()}
    counted = dict.fromkeys(("degraded", "drained", "joining", "up"), 1)
    assert found == {"silent": 0, "leaving": 0, **counted}


def test_a_stalled_heartbeat_is_silent_and_ages() -> None:
    before = observe(None, SNAPSHOT, LAGS, 90.0)
    observed = observe(before, SNAPSHOT, LAGS, 100.0)
    metrics = samples(AppMetrics("a", 1, 0, reading(observed, True, Scale())))
    assert of(metrics["members"], state="silent") == 4
    assert of(metrics["heartbeat_age_seconds"], client="b") == 10


POISON = Position("71")
DYING = [
    row(0, deaths=Deaths(2)),
    row(1, deaths=Deaths(3)),
    row(2, deaths=Deaths(4, suspect=POISON)),
    row(3, deaths=Deaths(5, suspect=POISON, poison=POISON)),
    row(4, deaths=Deaths(5, poison=POISON), position=Position("72")),
    row(5, deaths=Deaths(5, poison=POISON), ended=True),
]
PAUSED = GroupRow("g", paused=True)
DEAD_LEADER = LeaderRow("session of gone", "gone", 1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"unreadable_rows": 1, "leader_present": 1, "paused_shards": 1}),
        # Shards in isolation, and those that stop.
        ({"shards": {ARN: DYING}}, {"isolated_shards": 3, "stopped_shards": 1}),
        ({}, {"unowned_shards": 2, "unowned_seconds": 2, "unassignable_shards": 0}),
        (
            {"members": [member("a", max_shards=1)]},
            {"unowned_shards": 2, "unassignable_shards": 2},
        ),
        # A paused shard isn't unconsumed.
        (
            {"group": PAUSED},
            {"paused_shards": 5, "unowned_shards": 0, "unowned_seconds": 0},
        ),
        # The lag is that of the slowest shard, and retention runs against it.
        (
            {},
            {
                "lag_seconds": 7200,
                "caught_up": 0,
                "retention_seconds": 24 * 3600,
                "retention_left_seconds": 22 * 3600,
            },
        ),
        ({"leader": DEAD_LEADER}, {"leader_present": 0}),
    ],
)
def test_each_metric_of_an_app_or_its_only_stream(
    changes: dict[str, Any], expected: dict[str, float]
) -> None:
    metrics = metrics_of(replace(SNAPSHOT, **changes))
    assert {name: of(metrics[name]) for name in expected} == expected


def test_a_shard_that_lags_at_one_position_for_a_minute_is_stuck() -> None:
    lags = Lags({SHARDS[0].key: 20_000}, {})
    observed = observe(observe(None, SNAPSHOT, lags, 0.0), SNAPSHOT, lags, 60.0)
    metrics = samples(AppMetrics("a", 1, 0, reading(observed, True, Scale())))
    assert of(metrics["stuck_shards"]) == 1


def test_samples_have_the_labels_of_their_stream_and_shard() -> None:
    metrics = metrics_of()
    assert metrics["unowned_shards"].keys() == {frozenset(STREAM.items())}
    assert of(metrics["shards"], state="orphaned") == 1
    assert of(metrics["shards"], state="waiting") == 1
    assert of(metrics["shard_lag_seconds"], shard="shardId-0") == 1.5


@pytest.mark.parametrize(
    ("lags", "missing"),
    [
        (
            Lags({}, {ARN: "access denied"}),
            {"lag_seconds", "caught_up", "retention_left_seconds"},
        ),
        (None, {"lag_known", "lag_seconds", "stuck_shards"}),
    ],
)
def test_without_a_lag_its_metrics_are_missing(
    lags: Lags | None, missing: set[str]
) -> None:
    metrics = metrics_of(lags=lags)
    assert not missing & metrics.keys()
    assert "lag_known" in missing or of(metrics["lag_known"]) == 0


def test_a_spark_query_needs_no_leader() -> None:
    query = replace(SNAPSHOT, members=[member("q", kind="query")], leader=None)
    assert "leader_present" not in metrics_of(query)


def test_an_unreadable_app_has_no_other_gauges() -> None:
    metrics = samples(AppMetrics("a", 7, 2, None))
    assert {name: of(values) for name, values in metrics.items()} == {
        "reads_total": 7,
        "read_errors_total": 2,
        "up": 0,
    }


def test_failures_of_all_clients_are_added_up() -> None:
    text = "0 999999900 6 100 94 16 2"
    found = [member(name, failures=text) for name in "ab"]
    metrics = metrics_of(replace(SNAPSHOT, members=found))
    values = {
        "handler_calls": 200,
        "failed_calls": 188,
        "dead_letters": 32,
        "skipped_records": 4,
        "failing_seconds": 100,
    }
    assert {name: of(metrics[name]) for name in values} == values
    metrics = metrics_of()
    assert {name: of(metrics[name]) for name in values} == dict.fromkeys(values, 0)


def test_incidents_are_counted_by_kind_and_stream() -> None:
    shards = "repeated-claim 9 3 0/shardId-0\nrepeated-claim 9 3 0/shardId-1"
    found = [
        member("a", incidents=f"credentials 9 1 -\n{shards}"),
        member("b", incidents="credentials 9 1 -"),
        member("c", incidents="later-kind 9 1 -"),
    ]
    metrics = metrics_of(replace(SNAPSHOT, members=found))["incidents"]
    nowhere = {"stream": "", "region": "", "account": ""}
    assert of(metrics, kind="repeated-claim", **STREAM) == 2
    assert of(metrics, kind="repeated-claim", **nowhere) == 0
    assert of(metrics, kind="credentials", **nowhere) == 2
    assert sum(metrics.values()) == 4
    assert set(metrics_of()["incidents"].values()) == {0}


def test_clients_are_counted_by_consumer_and_apart_if_they_poll() -> None:
    uses = FanOutUse("billing"), FanOutUse("billing", "denied"), FanOutUse("audit")
    found = [member(n, fan_out={ARN: use}) for n, use in zip("abc", uses, strict=True)]
    metrics = metrics_of(replace(SNAPSHOT, members=found))
    for consumer, counts in {"audit": (1, 0), "billing": (1, 1)}.items():
        names = "fan_out_clients", "fan_out_polling_clients"
        assert tuple(of(metrics[n], consumer=consumer) for n in names) == counts
    assert len(metrics["fan_out_clients"]) == 2
