"""The metrics of a fleet, built from rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kinesumer.admin.lag import Lags
from kinesumer.admin.observation import observe
from kinesumer.admin.snapshot import Snapshot
from kinesumer.exporter.metrics import (
    COUNTERS,
    GAUGES,
    PREFIX,
    AppMetrics,
    AppReading,
    build_metrics,
)
from kinesumer.model.rows import (
    GroupRow,
    LeaderRow,
    MemberRow,
    ShardRow,
    StreamRow,
)
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start

ARN = "arn:aws:kinesis:eu-west-1:210987654321:stream/orders"
HALF = HASH_KEYS // 2
STREAM = {
    "app": "a",
    "stream": "orders",
    "region": "eu-west-1",
    "account": "210987654321",
}


def shard(number: int, owner: str = "", **more: Any) -> ShardRow:
    fields: dict[str, Any] = {"ready": True, **more}
    return ShardRow(
        ShardKey(ARN, f"shardId-{number}"),
        0,
        HALF - 1,
        Start.TRIM_HORIZON,
        owner=owner and f"session of {owner}",
        owner_id=owner,
        **fields,
    )


def member(name: str, **more: Any) -> MemberRow:
    fields: dict[str, Any] = {"range": (Interval(ARN, 0, HALF - 1),), **more}
    return MemberRow(name, f"session of {name}", **fields)


SHARDS = [
    shard(0, "a"),
    shard(1),
    shard(2, "gone"),
    shard(3, ready=False),
    shard(4, ended=True),
    shard(5, paused=True),
]
FOUND = Snapshot(
    [
        member("a"),
        member("b", state="degraded"),
        member("c", drained=True),
        member("d", range=None),
    ],
    LeaderRow("session of a", "a", 1),
    [StreamRow(ARN, 1.0, Start.TRIM_HORIZON, baseline=True)],
    {ARN: SHARDS},
    ("a row",),
)
LAGS = Lags({SHARDS[0].key: 1500, SHARDS[1].key: 7_200_000}, {}, {ARN: 24})


def unconsumed(found: Snapshot) -> list[ShardKey]:
    return [key for arn in found.shards for key in found.unconsumed(arn)]


def told(found: Snapshot = FOUND, **more: Any) -> dict[str, dict[Any, float]]:
    """Return the samples of one app, by name and labels."""
    since = dict.fromkeys(unconsumed(found), 70.0)
    observation = observe(observe(None, found, {}, 98.0), found, {}, 100.0)
    fields: dict[str, Any] = {"lags": LAGS, "unconsumed_since": since, **more}
    look = AppReading(observation, at=1e9, seconds=0.1, **fields)
    return samples(AppMetrics("a", 3, 1, look))


def samples(*accounts: AppMetrics) -> dict[str, dict[Any, float]]:
    found: dict[str, dict[Any, float]] = {}
    for family in build_metrics(accounts):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            found.setdefault(sample.name.removeprefix(PREFIX), {})[labels] = (
                sample.value
            )
    return found


def of(values: dict[Any, float], **labels: str) -> float:
    """Return the one sample that has these labels."""
    (value,) = [v for k, v in values.items() if k >= frozenset(labels.items())]
    return value


def test_members_are_counted_by_their_worst_state() -> None:
    members = told()["members"]
    assert {dict(key)["state"]: value for key, value in members.items()} == {
        "silent": 0,
        "degraded": 1,
        "leaving": 0,
        "drained": 1,
        "joining": 1,
        "up": 1,
    }


def test_a_stalled_heartbeat_is_silent_and_ages() -> None:
    before = observe(None, FOUND, {}, 90.0)
    look = AppReading(observe(before, FOUND, {}, 100.0), LAGS, {}, 1e9, 0.1)
    found = samples(AppMetrics("a", 1, 0, look))
    assert of(found["members"], state="silent") == 4
    assert of(found["heartbeat_age_seconds"], client="b") == 10


def test_unconsumed_shards_are_counted_with_the_time_of_the_oldest() -> None:
    found = told()
    assert found["unowned_shards"] == {frozenset(STREAM.items()): 2}
    assert of(found["unowned_seconds"]) == 30
    assert of(found["shards"], state="orphaned") == 1
    assert of(found["shards"], state="waiting") == 1


@pytest.mark.parametrize("name", ["", "x", "arn:aws:kinesis", "\n"])
def test_a_row_with_an_invalid_stream_keeps_the_metrics_of_others(name: str) -> None:
    stray = StreamRow(name, 1.0, Start.TRIM_HORIZON)
    shards = {**FOUND.shards, name: []}
    found = told(replace(FOUND, streams=[*FOUND.streams, stray], shards=shards))
    assert found["unowned_shards"][frozenset(STREAM.items())] == 2
    assert of(found["unowned_shards"], stream=name, region="") == 0


def test_a_paused_shard_isnt_unconsumed() -> None:
    found = told()
    assert of(found["paused_shards"]) == 1
    everything = replace(FOUND, group=GroupRow("g", paused=True))
    assert unconsumed(everything) == []
    assert of(told(everything)["paused_shards"]) == 5
    assert of(told(everything)["unowned_seconds"]) == 0


def test_the_lag_is_that_of_the_slowest_shard_and_retention_runs_against_it() -> None:
    found = told()
    assert of(found["lag_seconds"]) == 7200
    assert of(found["shard_lag_seconds"], shard="shardId-0") == 1.5
    assert of(found["retention_seconds"]) == 24 * 3600
    assert of(found["retention_left_seconds"]) == 22 * 3600


def test_an_unreadable_stream_has_no_lag_metric() -> None:
    found = told(lags=Lags({}, {ARN: "access denied"}))
    assert of(found["lag_known"]) == 0
    assert "lag_seconds" not in found
    assert "retention_left_seconds" not in found


def test_without_lags_there_are_no_lag_and_stuck_metrics() -> None:
    found = told(lags=None)
    assert not {"lag_known", "lag_seconds", "stuck_shards"} & found.keys()


def test_a_dead_leader_is_no_leader() -> None:
    dead = replace(FOUND, leader=LeaderRow("session of gone", "gone", 1))
    assert of(told(dead)["leader_present"]) == 0
    assert of(told()["leader_present"]) == 1


def test_a_spark_query_needs_no_leader() -> None:
    query = replace(FOUND, members=[member("q", kind="query")], leader=None)
    assert "leader_present" not in told(query)


def test_an_unreadable_app_has_no_other_gauges() -> None:
    found = samples(AppMetrics("a", 7, 2, None))
    assert {name: of(values) for name, values in found.items()} == {
        "reads_total": 7,
        "read_errors_total": 2,
        "up": 0,
    }


def test_several_apps_are_exported_together() -> None:
    accounts = [AppMetrics(name, 1, 1, None) for name in ("a", "b")]
    assert of(samples(*accounts)["up"], app="b") == 0


def test_rows_that_cannot_be_read_are_counted() -> None:
    assert of(told()["unreadable_rows"]) == 1


@pytest.mark.parametrize("name", [*GAUGES, *COUNTERS])
def test_metrics_follow_prometheus_conventions(name: str) -> None:
    """Check base units, suffixes and snake case."""
    assert name == name.lower()
    assert not name.endswith(("_total", "_ms", "_millis", "_hours", "_count"))
    assert (GAUGES | COUNTERS)[name].help.endswith(".")
