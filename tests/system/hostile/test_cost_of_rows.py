"""Test that rows cost time and memory in proportion to their size, also for status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter

import boto3
import pytest
from rich.cells import cell_len

from kinesumer.config import STATE_STORE
from kinesumer.coordination.store_queries import MAX_STREAM_QUERIES, read_range
from kinesumer.core import claims, plan
from kinesumer.core.plan import Assignment
from kinesumer.model.rows import LeaderRow, MemberRow, Row, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.ops.cli import console
from kinesumer.ops.cli.console import Names, print_lines, table
from kinesumer.ops.cli.tables import status_tables
from kinesumer.ops.group import status
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.runtime.text import escape_unprintable
from kinesumer.testing import EmbeddedAws
from kinesumer.wire import rows
from kinesumer.wire.reports import MAX_READ_LETTERS, read_loads
from tests.support.cli import (
    Run,
    aws,
    environment,
    run,
    stopped_app,
)
from tests.support.cli import report as report_of
from tests.support.clients import counts, numbers, settled, spread
from tests.support.row_edits import member_key, spoil
from tests.support.steps import growth, peak_bytes
from tests.support.world import ARN, World

ONE = frozenset({ARN})
ENTRY = "AAA!!!!"
MEMBER: Row = {
    "sk": "c1",
    "session": "s1",
    "incarnation": 0,
    "beat": 0,
    "lease_ms": 8000,
    "streams": ONE,
}


def text_of_counts(pairs: int) -> str:
    """Return a text of loads that claims 9,999 shards in each few letters."""
    return "0" + " 0:9999" * pairs + "|"


def parts(count: int) -> str:
    """Return the text of a range of this many intervals of one hash key each."""
    return ",".join(f"0:{2 * n:x}-{2 * n:x}" for n in range(count))


# --- loads ---


def test_counts_of_loads_are_compared_with_the_length_before_they_are_expanded() -> (
    None
):
    text = text_of_counts(500)
    assert len(text) < MAX_READ_LETTERS
    assert peak_bytes(lambda: read_loads(text, ONE)) < 100 * len(text)


def test_a_text_of_loads_that_no_client_writes_is_not_read() -> None:
    def text(entries: int) -> str:
        return f"0 0:{entries}|" + ENTRY * entries

    assert len(read_loads(text(580), ONE)) == 580
    assert read_loads(text(600), ONE) == []


def test_the_work_of_reading_loads_is_linear_and_bounded() -> None:
    def work(entries: int) -> Callable[[], object]:
        text = f"0 0:{entries}|" + ENTRY * entries
        return lambda: read_loads(text, ONE)

    assert growth(work) < 5
    assert growth(work, 20_000) < 2
    assert growth(lambda pairs: lambda: read_loads(text_of_counts(pairs), ONE)) < 5


@pytest.mark.parametrize(
    "load", [text_of_counts(50_000), f"0 0:9999|{ENTRY * 9999}"], ids=["counts", "body"]
)
async def test_a_forged_load_ends_no_client(world: World, load: str) -> None:
    world.kinesis.create_stream("orders", 4)
    clients = [world.client(name, assignor="load") for name in ("c1", "c2")]
    await settled(world, *clients, shards=4)
    await spoil(world, member_key("c2"), load=load)
    spread(world, *numbers(0, 20))
    await world.until(lambda: len(counts(*clients)) == 20)
    await asyncio.sleep(120)
    assert not any(client.task.done() for client in clients)


# --- ranges ---


def test_the_work_of_a_range_is_linear_in_its_parts() -> None:
    def work(count: int) -> Callable[[], object]:
        text = parts(count)
        held = {ShardKey(ARN, f"shard-{n}"): 4 * n for n in range(count)}

        def use() -> None:
            member = rows.read_member({**MEMBER, "range": text})
            assert member.range is not None
            claims.to_release(held, member.range, {}, 0.0, 1.0)
            planned = {"c1": Assignment(0, member.range, frozenset())}
            assert not plan.moves_any(planned, [member])

        return use

    assert growth(work) < 5


async def test_a_range_of_very_many_parts_takes_one_query(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    client = world.client("c1")
    await world.until(lambda: len(client.held) == 4)
    quarter = HASH_KEYS // 4
    hash_keys = [*range(0, 2 * MAX_STREAM_QUERIES, 2), quarter, 3 * quarter]
    range_ = tuple(Interval(ARN, key, key) for key in hash_keys)
    before = world.table.usage.requests["query"]
    found = await read_range(world.context(), range_)
    assert world.table.usage.requests["query"] == before + 1
    assert [row.first_hash for row in found] == [0, quarter, 3 * quarter]
    few = await read_range(world.context(), range_[-MAX_STREAM_QUERIES:])
    assert world.table.usage.requests["query"] == before + 1 + MAX_STREAM_QUERIES
    assert [row.first_hash for row in few] == [quarter, 3 * quarter]


# --- lines of fan-out ---


def test_no_more_lines_of_fan_out_are_read_than_there_are_streams() -> None:
    def work(lines: int) -> Callable[[], object]:
        text = "\n".join(["0:billing"] * lines)
        return lambda: rows.read_member({**MEMBER, "fan_out": text})

    assert growth(work) < 1.1


# --- incidents and failures ---


@pytest.mark.parametrize("attribute", ["incidents", "failures"])
def test_a_forged_report_shows_no_control_characters(
    attribute: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = "kms 1 1 0 \x1b[31mred\r\x07\u202e\n0 1 1 1 1 1 1 \x1b[31m 1 shard 1"
    member = rows.read_member({**MEMBER, attribute: forged})
    stream = StreamRow(ARN, 1.0, Start.LATEST, baseline=True)
    fleet = FleetView(Snapshot([member], None, [stream], {ARN: []}))
    print_lines(status_tables(status.report("app", "table", fleet)))
    shown = capsys.readouterr().out
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert ("KMS key" in shown) is (attribute == "incidents")


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
    answer = report_of(run("status", "--app=a", "--json", "--no-lag"))
    problems = " ".join(answer["problems"])
    assert "sk='c1': attribute session '{\"NULL\": true}' can't be read" in problems
    assert "sk='leader': attribute session is missing" in problems
    assert f"sk='stream#{ARN}': attribute stream_created_at" in problems
    assert "shardId-000000000000': attribute epoch '?' can't be read" in problems
    [stream] = answer["streams"]
    assert [s["shard_id"] for s in stream["shards"]] == ["shardId-000000000001"]
    assert "sk='c1'" in run("status", "--app=a", "--no-lag").stdout
    shown = report_of(run("distribution", "--app=a", "--json"))
    problems = " ".join(shown["problems"])
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
