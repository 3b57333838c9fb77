"""Test ``pause``, ``resume``, ``drain``, ``seek`` and ``reset``."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import Start
from kinesumer.ops.group import seek as control
from kinesumer.runtime.context import ClientContext
from kinesumer.testing import EmbeddedAws
from tests.support.cli import Process, Run, Starter, consuming, report

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
SHARDS = [f"shardId-{number:012}" for number in range(2)]

pytestmark = pytest.mark.process


@pytest.fixture
def one(orders: EmbeddedAws, start: Starter) -> Process:
    """Start a client that has consumed a stream of two shards."""
    return consuming(start)


def test_pause_seek_and_reset_without_clients(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    at = ("--app=a", "--stream=orders")
    paused = report(run("pause", *at, "--reason=bad", "--json"))
    same = {"version": 1, "app": "a", "table": "kinesumer-state-store"}
    assert paused == {
        **same,
        "stream_arn": ARN,
        "shard_id": None,
        "paused": True,
        "reason": "bad",
        "was_paused": False,
        "was_reason": None,
        "still_consumed": [],
    }
    both = run("resume", "--app=a", "--all")
    assert both.output.startswith("all streams are not paused\n")
    assert "! still paused otherwise: stream orders (bad)" in both.stderr
    resumed = report(run("resume", *at, "--json"))
    assert (resumed["was_paused"], resumed["was_reason"]) == (True, "bad")
    assert resumed["still_paused"] == []

    tried = report(run("seek", *at, "--to=TRIM_HORIZON", "--dry-run", "--json"))
    assert {**tried, "streams": []} == {
        **same,
        "dry_run": True,
        "streams": [],
        "seeked": 0,
        "still_consumed": [],
        "overtaken": [],
    }
    [stream] = tried["streams"]
    assert (stream["stream_arn"], stream["to"]) == (ARN, "TRIM_HORIZON")
    assert [shard["shard_id"] for shard in stream["shards"]] == SHARDS
    place = stream["shards"][0]["from"]
    refused = run("seek", *at, "--to=2h")
    assert (refused.exit_code, "pass --yes" in refused.stderr) == (2, True)
    asked = run("seek", *at, "--to=TRIM_HORIZON").stdout
    assert "2 shards to TRIM_HORIZON\n  now at the tip; re-reads 10 records" in asked
    again = report(run("seek", *at, "--to=LATEST", "--dry-run", "--json"))
    assert again["streams"][0]["shards"] == stream["shards"]

    seeked = run("seek", *at, "--to=TRIM_HORIZON", "--yes")
    assert "moved 2 shards\nno client reads from the old positions\n" in seeked.output
    shard = (*at, f"--shard={SHARDS[0]}")
    back = run("seek", *shard, f"--to={place}", "--yes", "--wait=0").output
    assert f"  {SHARDS[0]}\n" in back
    assert back.endswith("moved 1 shard\n")
    _reset(run, same)


def _reset(run: Run, same: dict[str, Any]) -> None:
    asked = run("reset", "--app=a")
    assert (asked.exit_code, "pass --yes" in asked.stderr) == (2, True)
    assert f"stream {ARN}: 2 shards, 1 with positions" in asked.stderr
    assert report(run("reset", "--app=a", "--yes", "--json")) == {
        **same,
        "deleted_rows": 4,
        "members": 0,
        "streams": [
            {"stream_arn": ARN, "shards": 2, "positions": 1, "go_positions": 0}
        ],
        "go_positions_deleted": False,
    }
    gone = run("reset", "--app=a", "--yes")
    assert (gone.exit_code, "holds nothing of app 'a'" in gone.stderr) == (2, True)


def test_pause_and_drain_wait_for_a_live_client(one: Process, run: Run) -> None:
    one.send_signal(signal.SIGSTOP)
    late = run("pause", "--app=a", "--all", "--wait=0.1", "--json")
    shown = report(run("status", "--app=a", "--json"))
    one.send_signal(signal.SIGCONT)
    assert shown["members"][0]["stalled"] is True
    assert any(
        "client one: its heartbeat has been unchanged" in text
        for text in shown["problems"]
    )
    assert (late.exit_code, "still consumed though paused" in late.stderr) == (1, True)
    held = {"stream_arn": ARN, "owner": "one"}
    assert json.loads(late.stdout)["still_consumed"] == [
        {**held, "shard_id": shard_id} for shard_id in SHARDS
    ]
    assert run("resume", "--app=a", "--all").exit_code == 0

    last = run("drain", "one", "--app=a")
    assert last.exit_code == 2
    assert "one is the last client that takes shards" in last.stderr
    drained = report(run("drain", "one", "--app=a", "--yes", "--json"))
    assert drained == {
        "version": 1,
        "app": "a",
        "table": "kinesumer-state-store",
        "client_id": "one",
        "drained": True,
        "was_drained": False,
        "still_consumed": [],
    }
    [member] = report(run("status", "--app=a", "--json"))["members"]
    assert (member["drained"], member["shards"]) == (True, 0)
    undone = run("drain", "one", "--app=a", "--undo")
    assert undone.output == "one may have shards again\n"
    alive = run("reset", "--app=a", "--yes")
    assert alive.exit_code == 1
    assert "clients of app 'a' are alive: one; stop them first" in alive.stderr


def test_a_concurrent_seek_is_reported(
    one: Process, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.send_signal(signal.SIGKILL)
    seek = control.seek

    async def beside(
        context: ClientContext, planned: control.SeekPlan
    ) -> list[ShardRow]:
        seeked = await seek(context, planned)
        other = planned._replace(to=Start(type="AT_TIMESTAMP", timestamp=1.0))
        await seek(context, other._replace(generations=[other.generations[0][:1]]))
        return seeked

    monkeypatch.setattr(control, "seek", beside)
    place = ["--app=a", "--all", "--to=TRIM_HORIZON", "--yes"]
    result = run("seek", *place, "--wait=0", "--json")
    assert result.exit_code == 1
    assert "! another seek has moved 1 shard since: shardId-00" in result.stderr
    moved = {"stream_arn": ARN, "shard_id": SHARDS[0], "owner": "one"}
    assert json.loads(result.stdout)["overtaken"] == [moved]


def test_changes_of_an_unknown_app_are_refused(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    for command, said in (
        ("seek --all --to=LATEST", "knows no app 'b'"),
        ("pause --all", "knows no app 'b'"),
        ("drain one", "is alive; name a live one (none)"),
        ("reset", "holds nothing of app 'b'"),
    ):
        result = run(*command.split(), "--app=b")
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
