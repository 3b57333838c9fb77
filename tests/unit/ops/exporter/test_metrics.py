"""Test the metrics that the exporter builds from the rows of a fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.rows import (
    Deaths,
    GroupRow,
    LeaderRow,
    MemberRow,
    ShardRow,
    StreamRow,
)
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.ops.exporter.collector import DEFAULT_OPTIONS, ScaleObserver
from kinesumer.ops.exporter.metrics import (
    PREFIX,
    AppMetrics,
    AppReading,
    Scale,
    build_metrics,
)
from kinesumer.ops.group.lag import NO_LAGS, Lags
from kinesumer.ops.group.observation import Observation, observe
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.ops.group.status import report

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
SNAPSHOT = Snapshot(
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


def unconsumed(snapshot: Snapshot) -> list[ShardKey]:
    return [key for arn in snapshot.shards for key in snapshot.unconsumed(arn)]


def metrics_of(
    snapshot: Snapshot = SNAPSHOT, lags: Lags | None = LAGS
) -> dict[str, dict[Any, float]]:
    """Return the samples of one app, by name and labels."""
    known = lags or NO_LAGS
    observation = observe(observe(None, snapshot, known, 98.0), snapshot, known, 100.0)
    has_lags = lags is not None
    scale = ScaleObserver(DEFAULT_OPTIONS).observe(
        observation, 100.0, has_lags=has_lags
    )
    return samples(AppMetrics("a", 3, 1, reading(observation, has_lags, scale)))


def reading(observed: Observation, has_lags: bool, scale: Scale) -> AppReading:
    found = report("a", "table", observed)
    return AppReading(found, observed, has_lags, 1e9, 0.1, scale)


def samples(*accounts: AppMetrics) -> dict[str, dict[Any, float]]:
    metrics: dict[str, dict[Any, float]] = {}
    for family in build_metrics(accounts):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            metrics.setdefault(sample.name.removeprefix(PREFIX), {})[labels] = (
                sample.value
            )
    return metrics


def of(values: dict[Any, float], **labels: str) -> float:
    """Return the value of the only sample that has these labels."""
    (value,) = [v for k, v in values.items() if k >= frozenset(labels.items())]
    return value


def test_members_are_counted_by_their_worst_state() -> None:
    members = metrics_of()["members"]
    assert {dict(key)["state"]: value for key, value in members.items()} == {
        "silent": 0,
        "degraded": 1,
        "leaving": 0,
        "drained": 1,
        "joining": 1,
        "up": 1,
    }


def test_shards_in_isolation_and_those_that_stop_are_counted_apart() -> None:
    poison = Position("71")
    dying = [
        shard(0, deaths=Deaths(2)),
        shard(1, deaths=Deaths(3)),
        shard(2, deaths=Deaths(4, suspect=poison)),
        shard(3, deaths=Deaths(5, suspect=poison, poison=poison)),
        shard(4, deaths=Deaths(5, poison=poison), position=Position("72")),
        shard(5, deaths=Deaths(5, poison=poison), ended=True),
    ]
    metrics = metrics_of(replace(SNAPSHOT, shards={ARN: dying}))
    assert of(metrics["isolated_shards"]) == 3
    assert of(metrics["stopped_shards"]) == 1


def test_a_stalled_heartbeat_is_silent_and_ages() -> None:
    before = observe(None, SNAPSHOT, LAGS, 90.0)
    observed = observe(before, SNAPSHOT, LAGS, 100.0)
    metrics = samples(AppMetrics("a", 1, 0, reading(observed, True, Scale())))
    assert of(metrics["members"], state="silent") == 4
    assert of(metrics["heartbeat_age_seconds"], client="b") == 10


def test_unconsumed_shards_and_unreadable_rows_are_counted() -> None:
    metrics = metrics_of()
    assert of(metrics["unreadable_rows"]) == 1
    assert metrics["unowned_shards"] == {frozenset(STREAM.items()): 2}
    assert of(metrics["unowned_seconds"]) == 2
    assert of(metrics["shards"], state="orphaned") == 1
    assert of(metrics["shards"], state="waiting") == 1


def test_unconsumed_shards_that_no_client_may_take_are_counted_as_such() -> None:
    assert of(metrics_of()["unassignable_shards"]) == 0
    full = [
        member._replace(max_shards=1, streams=frozenset({ARN}))
        for member in SNAPSHOT.members
        if SNAPSHOT.owned[member.session]
    ]
    metrics = metrics_of(replace(SNAPSHOT, members=full))
    assert of(metrics["unassignable_shards"]) == of(metrics["unowned_shards"]) == 2


def test_a_paused_shard_isnt_unconsumed() -> None:
    metrics = metrics_of()
    assert of(metrics["paused_shards"]) == 1
    everything = replace(SNAPSHOT, group=GroupRow("g", paused=True))
    assert unconsumed(everything) == []
    assert of(metrics_of(everything)["paused_shards"]) == 5
    assert of(metrics_of(everything)["unowned_seconds"]) == 0


def test_the_lag_is_that_of_the_slowest_shard_and_retention_runs_against_it() -> None:
    metrics = metrics_of()
    assert of(metrics["lag_seconds"]) == 7200
    assert of(metrics["caught_up"]) == 0
    assert of(metrics["shard_lag_seconds"], shard="shardId-0") == 1.5
    assert of(metrics["retention_seconds"]) == 24 * 3600
    assert of(metrics["retention_left_seconds"]) == 22 * 3600


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


def test_a_dead_leader_does_not_lead_and_a_spark_query_needs_none() -> None:
    assert of(metrics_of()["leader_present"]) == 1
    dead = replace(SNAPSHOT, leader=LeaderRow("session of gone", "gone", 1))
    assert of(metrics_of(dead)["leader_present"]) == 0
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
    streams, text = frozenset({ARN}), "0 999999900 6 100 94 16 2"
    found = [
        member("a", streams=streams, failures=text),
        member("b", streams=streams, failures=text),
    ]
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
    streams = frozenset({ARN})
    shards = "repeated-claim 9 3 0/shardId-0\nrepeated-claim 9 3 0/shardId-1"
    found = [
        member("a", streams=streams, incidents=f"credentials 9 1 -\n{shards}"),
        member("b", streams=streams, incidents="credentials 9 1 -"),
        member("c", streams=streams, incidents="later-kind 9 1 -"),
    ]
    metrics = metrics_of(replace(SNAPSHOT, members=found))["incidents"]
    nowhere = {"stream": "", "region": "", "account": ""}
    assert of(metrics, kind="repeated-claim", **STREAM) == 2
    assert of(metrics, kind="repeated-claim", **nowhere) == 0
    assert of(metrics, kind="credentials", **nowhere) == 2
    assert sum(metrics.values()) == 4
    assert set(metrics_of()["incidents"].values()) == {0}
