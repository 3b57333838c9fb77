"""``kinesumer lag`` against the embedded AWS."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.cli.conftest import finished, lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process, Run

pytestmark = pytest.mark.process


def test_an_unconsumed_backlog_is_counted_and_stalled(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    for number in range(40):
        stopped_app.put("orders", b"x" * 100, f"customer {number}")
    stopped_app.advance(3600)
    stopped_app.put("orders", b"the newest", "customer 1")
    result = run("lag", "--app=a", "--interval=0.5", "--json")
    assert result.exit_code == 0
    report = json.loads(result.output)
    [stream] = report["streams"]
    assert stream["records_behind"] == 41
    assert stream["records_exact"] is True
    assert 3600_000 <= stream["millis_behind_latest"] < 3700_000
    assert stream["trend"] == "stalled"
    assert stream["seconds_to_catch_up"] is None
    assert {shard["state"] for shard in stream["shards"]} == {"unowned"}
    assert report["problems"] == []
    text = run("lag", "--app=a", "--interval=0.5").output
    assert "60 min behind, 41 records, stalled" in text


def test_a_long_backlog_is_estimated_from_samples(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    for _ in range(240):
        for number in range(20):
            stopped_app.put("orders", b"x" * 10_000, f"customer {number}")
        stopped_app.advance(60)
    report = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    [stream] = report["streams"]
    assert stream["records_exact"] is False
    assert 2_400 <= stream["records_behind"] <= 9_600


def test_a_shard_with_expired_records_is_named(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    shard = stopped_app.open_shards("orders")[0]
    stopped_app.split("orders", shard)
    stopped_app.advance(25 * 3600)
    report = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    [gone] = [s for s in report["streams"][0]["shards"] if s["problem"]]
    assert gone["shard_id"] == shard
    assert gone["millis_behind_latest"] is None


def test_lag_repeats_until_a_signal(
    stopped_app: EmbeddedAws, start: Callable[..., Process]
) -> None:
    watching = start("lag", "--app=a", "--interval=0.5", "--watch", "--json")
    first, second = (json.loads(line) for line in lines(watching, 2))
    assert first["seconds"] < second["seconds"]
    watching.send_signal(signal.SIGINT)
    _, errors = finished(watching)
    assert (watching.returncode, errors) == (130, b"")


def test_an_unknown_app_is_named(stopped_app: EmbeddedAws, run: Run) -> None:
    result = run("lag", "--app=nobody")
    assert result.exit_code == 1
    assert "knows no app 'nobody'" in result.stderr


def test_every_field_is_documented(stopped_app: EmbeddedAws, run: Run) -> None:
    text = (Path(__file__).parents[3] / "docs" / "lag.md").read_text()
    report = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    stream = report["streams"][0]
    for name in {*report, *stream, *stream["shards"][0]}:
        assert f"`{name}`" in text, name


def test_paused_shards_are_marked(stopped_app: EmbeddedAws, run: Run) -> None:
    assert run("pause", "--app=a", "--stream=orders", "--wait=0").exit_code == 0
    report = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    assert {shard["paused"] for shard in report["streams"][0]["shards"]} == {True}


def test_the_lag_of_an_unreadable_stream_is_unknown(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.deny("kinesis:DescribeStreamSummary")
    report = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    [stream] = report["streams"]
    assert "access denied" in stream["problem"]
    assert (stream["records_behind"], stream["trend"]) == (None, "unknown")
    assert "? behind, ? records" in run("lag", "--app=a", "--interval=0.5").output
