"""Test that names and streams of others can't mislead commands or terminals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from kinesumer.coordination.startup_checks import (
    require_no_go_clients,
    require_no_spark_query,
)
from kinesumer.errors import FatalError, GroupBusyError
from kinesumer.handlers.dead_letters.letter import encode_letter
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
from kinesumer.ops.group.connect import parse_roles
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.ops.group.status import report
from kinesumer.ops.migration.positions import decode, encode, positions_of_group
from kinesumer.ports import Compare, Write
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows
from kinesumer.wire.rows import STREAM_PREFIX
from tests.support.cli import Run
from tests.support.letters import LETTER
from tests.support.members import Fleet, fleet_of, sit
from tests.support.world import APP, ARN, World, in_virtual_time
from tests.system.security.conftest import Accounts

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


SECRET = "the secret of another team"
TELL = (
    "status",
    "lag --interval=0.5",
    "metrics --once",
    "distribution",
    "verify",
    "seek --all --to=LATEST --dry-run",
)
DO_NOT_ASK = "export", "pause --all", "resume --all", "reset --yes"


@pytest.fixture
def named(accounts: Accounts, impatient: None) -> str:
    """Return a stream without consumers that is mentioned only in a row of the app."""

    asyncio.run(accounts.consume_once("orders"))
    arn = accounts.aws.create_stream("secrets")
    accounts.aws.put("secrets", SECRET.encode(), "key")
    row = {
        "pk": {"S": "group#app"},
        "sk": {"S": STREAM_PREFIX + arn},
        "stream_created_at": {"S": "1.0"},
        "start": {"S": "TRIM_HORIZON"},
        "baseline": {"BOOL": True},
    }
    shard = {
        "pk": {"S": f"shard#app#{arn}"},
        "sk": {"S": f"{0:032x}/shardId-000000000000"},
        "last_hash": {"S": 32 * "f"},
        "start": {"S": "TRIM_HORIZON"},
        "ready": {"BOOL": True},
    }
    accounts.store(row)
    accounts.store(shard)
    return arn


def was_read(accounts: Accounts, arn: str) -> bool:
    """Return whether a stream was requested since this function was last called."""
    latest = accounts.aws.journal.latest
    found = any(one.resource == arn for one in latest)
    latest.clear()
    return found


def test_commands_ask_about_streams_of_the_table_and_show_nothing_of_their_data(
    accounts: Accounts, named: str, run: Run
) -> None:
    was_read(accounts, named)
    for line in TELL:
        result = run(*line.split(), "--app=app")
        assert was_read(accounts, named), line
        assert SECRET not in result.output + result.stderr
    for line in DO_NOT_ASK:
        result = run(*line.split(), "--app=app")
        assert not was_read(accounts, named), line


def test_a_role_for_an_arn_reads_no_other_stream_of_its_name() -> None:
    ours, theirs = (f"arn:aws:kinesis:eu-west-1:{n:012d}:stream/orders" for n in (1, 2))
    role = "arn:aws:iam::000000000001:role/reader"
    by_name, by_arn, for_all = (
        parse_roles([text], None) for text in (f"orders={role}", f"{ours}={role}", role)
    )
    assert by_arn.stream(ours).role_arn == role
    assert by_arn.stream(theirs).role_arn is None
    assert by_name.stream(theirs).role_arn == for_all.stream(theirs).role_arn == role


def test_a_letter_of_others_is_put_where_it_says_only_if_somebody_agrees(
    accounts: Accounts, run: Run, tmp_path: Path
) -> None:
    arn = accounts.aws.create_stream("secrets")
    forged = msgspec.structs.replace(LETTER, stream_arn=arn, app="app")
    target = f"file:{tmp_path / 'letters'}"
    (tmp_path / "letters").write_bytes(encode_letter(forged))
    every = "dlq", "redrive", target, "--all"
    refused = run(*every)
    assert refused.exit_code == 2
    assert f"1 to stream {arn}" in refused.stderr
    assert not accounts.aws.journal.latest
    assert "1 put back" in run(*every, "--to-stream=orders", "--yes").output
    asked_of = {one.resource for one in accounts.aws.journal.latest}
    assert asked_of == {accounts.orders}
