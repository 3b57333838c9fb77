"""Test that names in the table can't forge log lines or control a terminal."""

from __future__ import annotations

import json

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from kinesumer.coordination.startup_checks import (
    require_no_go_clients,
    require_no_spark_query,
)
from kinesumer.errors import FatalError, GroupBusyError
from kinesumer.model.rows import (
    QUERY,
    QUERY_ID,
    Key,
    LeaderRow,
    MemberRow,
    ShardRow,
    StreamRow,
)
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
from kinesumer.ops.cli.console import print_lines, safe_on_terminal
from kinesumer.ops.cli.main import one_line
from kinesumer.ops.cli.tables import status_picture, status_tables
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.ops.group.status import report
from kinesumer.ops.migration.positions import decode, encode, positions_of_group
from kinesumer.ports import Compare, Write
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows
from tests.support.members import Fleet, fleet_of, sit
from tests.support.world import APP, ARN, World, in_virtual_time

FORGED = "\x1b[2J\nERROR all is lost\r\x9b1m\u202e"
HARMLESS = "\\x1b[2J\\nERROR all is lost\\r\\x9b1m\\u202e"
MOMENT = "2026-01-31T12:00:00Z"
IN_BRACKETS = ["pod[a]", "pod[/a]", "[red]pod", "[link=http://x]pod"]


def of(client_id: str) -> Snapshot:
    """Return the stored state of an app with one client that owns one shard."""
    member = MemberRow(client_id, "s", range=(), index=0)
    shard = ShardRow(
        ShardKey(ARN, "shardId-0"),
        0,
        HASH_KEYS - 1,
        Start.TRIM_HORIZON,
        owner="s",
        owner_id=client_id,
        ready=True,
    )
    stream = StreamRow(ARN, 1.0, Start.TRIM_HORIZON, baseline=True)
    leader = LeaderRow("s", client_id, 1)
    return Snapshot([member], leader, [stream], {ARN: [shard]})


@pytest.mark.parametrize(
    ("name", "shown"), [*((name, name) for name in IN_BRACKETS), (FORGED, HARMLESS)]
)
def test_status_shows_names_in_brackets_as_they_are_and_moves_no_cursor(
    name: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = report(APP, "table", FleetView(of(name), {"s": 1e9}))
    print_lines(status_tables(answer))
    out = capsys.readouterr().out
    # The name appears as a client, as an owner, and in a problem.
    assert out.count(shown) == 3
    assert all(line.isprintable() for line in out.split("\n"))
    assert json.dumps(msgspec.to_builtins(answer)).isprintable()
    print_lines(status_picture(answer, name))
    assert all(line.isprintable() for line in capsys.readouterr().out.split("\n"))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_metrics_move_no_cursor_and_programs_get_names_unchanged(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("lag", "Lag", ["client"], registry=registry)
    gauge.labels(FORGED).set(1)
    text = generate_latest(registry).decode()
    assert "\x1b[2J" in text
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    shown = safe_on_terminal(text)
    if is_terminal:
        assert "\\x1b[2J" in shown
        assert all(line.isprintable() for line in shown.split("\n"))
        assert len(shown.split("\n")) == len(text.split("\n"))
    else:
        assert shown == text


def test_a_file_of_positions_that_is_shown_moves_no_cursor() -> None:
    arn = f"{ARN}{FORGED}"
    stream = StreamRow(arn, 1.0, Start.TRIM_HORIZON, baseline=True)
    content = encode(positions_of_group(FORGED, MOMENT, [stream], {arn: []}))
    assert all(line.isprintable() for line in content.decode().split("\n"))
    assert decode(content).app == FORGED


def test_the_commands_error_is_one_line() -> None:
    line = one_line(FatalError(f"member {FORGED} is in the way"))
    assert line.isprintable()
    assert escape_unprintable(FORGED) == HARMLESS


@in_virtual_time
async def test_a_death_is_one_line_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = await fleet_of(world, "a", FORGED)
    seat = await sit(fleet, "b")
    await world.until(lambda: seat.leads)
    fleet.silence(FORGED)
    await world.until(lambda: world.members()[FORGED].dead)
    assert f"client {HARMLESS} is dead: no heartbeat for 8.0 s" in caplog.messages


@in_virtual_time
async def test_errors_escape_what_stands_in_the_table(world: World) -> None:
    moment = rows.timestamp_text(world.clock.wall())
    go = Write(
        Key(f"client#{APP}", FORGED), Compare("pk", "absent"), {"last_update": moment}
    )
    await world.table.write(go)
    with pytest.raises(GroupBusyError, match="alive") as alive:
        await require_no_go_clients(world.context())
    await Fleet(world).join(QUERY_ID, session=FORGED, kind=QUERY)
    with pytest.raises(GroupBusyError, match="holds app") as held:
        await require_no_spark_query(world.context())
    for raised in (alive, held):
        assert HARMLESS in str(raised.value)
        assert str(raised.value).isprintable()
