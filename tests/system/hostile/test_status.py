"""Test that ``status`` reports unreadable rows, and that its work is linear."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

import boto3
import pytest
from rich.cells import cell_len

from kinesumer.model.rows import LeaderRow, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.ops.cli import console
from kinesumer.ops.cli.console import Names, print_lines, table
from kinesumer.ops.group import status
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.runtime.text import escape_unprintable
from kinesumer.testing import EmbeddedAws
from kinesumer.wire.rows import STATE_STORE
from tests.integration.ops.cli.conftest import (
    Run,
    aws,
    environment,
    report,
    run,
    stopped_app,
)
from tests.support.steps import growth
from tests.support.world import ARN

__all__ = ["aws", "environment", "run", "stopped_app"]


def test_the_commands_name_unreadable_rows_and_show_the_others(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stored = boto3.resource("dynamodb").Table(STATE_STORE)
    rows = stored.scan()["Items"]
    broken_shard, _ = sorted((r for r in rows if "epoch" in r), key=itemgetter("sk"))
    for row in (
        {"pk": "member#a", "sk": "c1", "session": None},
        {"pk": "leader#a", "sk": "leader", "leader_epoch": {"a": 1}},
        {"pk": "group#a", "sk": f"stream#{ARN}", "stream_created_at": b"1"},
        broken_shard | {"epoch": "?"},
    ):
        stored.put_item(Item=row)
    answer = report(run("status", "--app=a", "--json", "--no-lag"))
    problems = " ".join(answer["problems"])
    assert "sk='c1': attribute session '{\"NULL\": true}' can't be read" in problems
    assert "sk='leader': attribute session is missing" in problems
    assert f"sk='stream#{ARN}': attribute stream_created_at" in problems
    assert "shardId-000000000000': attribute epoch '?' can't be read" in problems
    [stream] = answer["streams"]
    assert [s["shard_id"] for s in stream["shards"]] == ["shardId-000000000001"]
    assert "sk='c1'" in run("status", "--app=a", "--no-lag").stdout
    problems = " ".join(report(run("distribution", "--app=a", "--json"))["problems"])
    assert f"sk='stream#{ARN}': attribute stream_created_at" in problems


def test_the_work_of_status_is_linear_in_the_fleet() -> None:
    def work(size: int) -> Callable[[], object]:
        step = HASH_KEYS // size
        bounds = [(n * step, (n + 1) * step - 1) for n in range(size)]
        members = [
            MemberRow(f"c{n:05}", f"s{n}", range=(Interval(ARN, *bounds[n]),))
            for n in range(size)
        ]
        shards = [
            ShardRow(ShardKey(ARN, f"shardId-{n}"), *bounds[n], Start.LATEST)._replace(
                owner=f"s{n}", owner_id=f"c{n:05}", ready=True
            )
            for n in range(size)
        ]
        stream = StreamRow(ARN, 1.0, Start.LATEST, baseline=True)
        leader = LeaderRow("s0", "c00000", 1)
        snapshot = Snapshot(members, leader, [stream], {ARN: shards})

        def report_status() -> None:
            answer = status.report("a", "table", FleetView(snapshot))
            assert answer.streams[0].states == {"owned": size}
            assert {member.shards for member in answer.members} == {1}

        return report_status

    assert growth(work) < 5


@pytest.mark.parametrize("letter", ["x", "店", "\u0301", "\0"])
@pytest.mark.parametrize("wide", [False, True])
def test_a_name_of_any_length_is_measured_a_few_times(
    monkeypatch: pytest.MonkeyPatch, letter: str, wide: bool
) -> None:
    measured = 0

    def count(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return cell_len(text)

    monkeypatch.setattr(console, "cell_len", count)
    size = 100_000
    rows: list[list[str | Names]] = [[Names([letter * size, letter * size]), "1"]]
    escaped = 2 * len(escape_unprintable(letter)) * size
    print_lines(table(("owner", "shards"), rows), wide=wide)
    assert measured < 3 * escaped
