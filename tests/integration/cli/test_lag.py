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


def test_it_counts_what_nobody_reads_and_calls_it_stalled(
    left: EmbeddedAws, run: Run
) -> None:
    for number in range(40):
        left.put("orders", b"x" * 100, f"customer {number}")
    left.advance(3600)
    left.put("orders", b"the newest", "customer 1")
    result = run("lag", "--app=a", "--interval=0.5", "--json")
    assert result.exit_code == 0
    told = json.loads(result.output)
    [stream] = told["streams"]
    assert stream["records_behind"] == 41
    assert stream["records_exact"] is True
    assert 3600_000 <= stream["millis_behind_latest"] < 3700_000
    assert stream["trend"] == "stalled"
    assert stream["seconds_to_catch_up"] is None
    assert {shard["state"] for shard in stream["shards"]} == {"unowned"}
    assert told["problems"] == []
    text = run("lag", "--app=a", "--interval=0.5").output
    assert "60 min behind, 41 records, stalled" in text


def test_it_estimates_a_long_backlog_from_samples(left: EmbeddedAws, run: Run) -> None:
    for _ in range(240):
        for number in range(20):
            left.put("orders", b"x" * 10_000, f"customer {number}")
        left.advance(60)
    told = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    [stream] = told["streams"]
    assert stream["records_exact"] is False
    assert 2_400 <= stream["records_behind"] <= 9_600


def test_it_says_which_shards_records_are_gone(left: EmbeddedAws, run: Run) -> None:
    shard = left.open_shards("orders")[0]
    left.split("orders", shard)
    left.advance(25 * 3600)
    told = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    [gone] = [s for s in told["streams"][0]["shards"] if s["problem"]]
    assert gone["shard_id"] == shard
    assert gone["millis_behind_latest"] is None


def test_it_watches_until_it_is_stopped(
    left: EmbeddedAws, start: Callable[..., Process]
) -> None:
    watching = start("lag", "--app=a", "--interval=0.5", "--watch", "--json")
    first, second = (json.loads(line) for line in lines(watching, 2))
    assert first["seconds"] < second["seconds"]
    watching.send_signal(signal.SIGINT)
    _, errors = finished(watching)
    assert (watching.returncode, errors) == (130, b"")


def test_an_unknown_app_is_named(left: EmbeddedAws, run: Run) -> None:
    result = run("lag", "--app=nobody")
    assert result.exit_code == 1
    assert "knows no app 'nobody'" in result.stderr


def test_every_field_is_documented(left: EmbeddedAws, run: Run) -> None:
    text = (Path(__file__).parents[3] / "docs" / "lag.md").read_text()
    told = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    stream = told["streams"][0]
    for name in {*told, *stream, *stream["shards"][0]}:
        assert f"`{name}`" in text, name


def test_a_shard_that_is_paused_is_told(left: EmbeddedAws, run: Run) -> None:
    assert run("pause", "--app=a", "--stream=orders", "--wait=0").exit_code == 0
    told = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    assert {shard["paused"] for shard in told["streams"][0]["shards"]} == {True}


def test_of_a_stream_that_cant_be_read_nothing_is_known(
    left: EmbeddedAws, run: Run
) -> None:
    left.deny("kinesis:DescribeStreamSummary")
    told = json.loads(run("lag", "--app=a", "--interval=0.5", "--json").output)
    [stream] = told["streams"]
    assert "access denied" in stream["problem"]
    assert (stream["records_behind"], stream["trend"]) == (None, "unknown")
    assert "? behind, ? records" in run("lag", "--app=a", "--interval=0.5").output
