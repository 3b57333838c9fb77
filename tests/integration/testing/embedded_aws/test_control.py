"""Test ways to run the embedded AWS, and the path by which processes control it."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from click.testing import CliRunner

from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli.main import cli
from kinesumer.testing import EmbeddedAws, background
from kinesumer.testing.embedded_aws.server import serve
from tests.integration.testing.embedded_aws.conftest import refused

Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest_asyncio.fixture(loop_scope="module")
async def ask(aws: EmbeddedAws) -> AsyncIterator[Ask]:
    """Send a control request; return status and content."""
    async with aiohttp.ClientSession() as session:

        async def send(method: str, name: str, content: Any = None) -> tuple[int, Any]:
            url = f"{aws.url}/_kinesumer/{name}"
            async with session.request(method, url, json=content) as answer:
                return answer.status, await answer.json()

        yield send


async def test_faults_are_set_listed_and_cleared(ask: Ask, kinesis: Any) -> None:
    fault = {"kind": "throttle", "operation": "ListStreams", "seconds": 5}
    assert await ask("POST", "faults", fault) == (200, {"number": 1})
    _, listed = await ask("GET", "faults")
    assert listed["faults"]["1"]["operation"] == "ListStreams"
    assert (await refused(kinesis.list_streams())).code == "LimitExceededException"
    await ask("DELETE", "faults")
    await kinesis.list_streams()


@pytest.mark.parametrize(
    "fault", [{}, {"kind": "sabotage"}, {"kind": "throttle", "sevice": "kinesis"}]
)
async def test_a_misspelt_fault_is_refused(ask: Ask, fault: dict[str, str]) -> None:
    status, answer = await ask("POST", "faults", fault)
    assert status == 400
    assert answer["error"]


async def test_requests_are_counted_by_caller_action_and_resource(
    aws: EmbeddedAws, ask: Ask, kinesis: Any
) -> None:
    arn = aws.create_stream("orders")
    for _ in range(3):
        await kinesis.list_shards(StreamName="orders")
    _, answer = await ask("GET", "requests")
    (count,) = answer["counts"]
    assert count == {
        "service": "kinesis",
        "operation": "ListShards",
        "resource": arn,
        "caller": "arn:aws:iam::000000000000:user/kinesumer",
        "error": None,
        "requests": 3,
        "read_units": 0.0,
        "write_units": 0.0,
    }
    assert len(answer["latest"]) == 3
    assert answer["latest"][0]["status"] == 200
    await ask("DELETE", "requests")
    _, answer = await ask("GET", "requests")
    assert answer == {"counts": [], "latest": []}


async def test_accounts_roles_and_denials_are_made(
    aws: EmbeddedAws, ask: Ask, connect: Any
) -> None:
    _, account = await ask("POST", "accounts", {"account": "111122223333"})
    assert account["access_key_id"] == aws.account("111122223333").access_key_id
    _, role = await ask("POST", "roles", {"name": "reader", "account": "111122223333"})
    assume = partial((await connect("sts")).assume_role, RoleSessionName="billing")
    await ask("POST", "denials", {"action": "sts:AssumeRole"})
    assert (await refused(assume(RoleArn=role["arn"]))).code == "AccessDenied"
    await ask("DELETE", "denials")
    await assume(RoleArn=role["arn"])
    status, answer = await ask("POST", "accounts", {"account": "12"})
    assert (status, "12 digits" in answer["error"]) == (400, True)


async def test_an_accounts_keys_are_replaced(
    aws: EmbeddedAws, ask: Ask, connect: Any
) -> None:
    account = "222233334444"
    old = await connect("kinesis", aws.account(account))
    await old.list_streams()
    _, keys = await ask("POST", "keys", {"account": account, "lifetime_seconds": 60})
    assert (await refused(old.list_streams())).code == "UnrecognizedClientException"
    assert keys["access_key_id"] == aws.account(account).access_key_id
    new = await connect("kinesis", aws.account(account))
    await new.list_streams()
    aws.advance(60)
    assert (await refused(new.list_streams())).code == "ExpiredTokenException"
    lasting = await connect("kinesis", aws.replace_keys(account))
    aws.advance(3600)
    await lasting.list_streams()


async def test_the_clock_goes_forward_only(ask: Ask) -> None:
    _, before = await ask("GET", "clock")
    await ask("POST", "clock", {"seconds": 60})
    _, after = await ask("GET", "clock")
    assert after["now"] - before["now"] == pytest.approx(60, abs=0.01)
    status, _ = await ask("POST", "clock", {"seconds": -1})
    assert status == 400


async def test_other_paths_are_not_there(ask: Ask) -> None:
    status, answer = await ask("GET", "nothing")
    assert status == 404
    assert "nothing" in answer["error"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serving_stops_on_a_signal(number: signal.Signals) -> None:
    out = io.StringIO()
    serving = asyncio.create_task(serve(EmbeddedAws(), out))
    while "unset" not in out.getvalue():
        await asyncio.sleep(0.001)
    signal.raise_signal(number)
    await serving


def test_the_command_prints_exports_and_serves() -> None:
    command = [sys.executable, "-m", "kinesumer.ops.cli", "local", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(7)]
        exported = dict(
            line.removeprefix("export ").strip().split("=", 1) for line in lines[:6]
        )
        url = exported["AWS_ENDPOINT_URL"] + "/_kinesumer/health"
        with urllib.request.urlopen(url) as answer:
            assert answer.status == 200
        process.terminate()
        assert process.wait(10) == 0
    assert exported["AWS_ACCESS_KEY_ID"] == "test"
    assert lines[6] == "unset AWS_PROFILE AWS_SESSION_TOKEN\n"


def test_a_port_in_use_is_an_error_of_the_block() -> None:
    with (
        background(EmbeddedAws()) as aws,
        pytest.raises(ConfigurationError, match="choose another port"),
        background(EmbeddedAws(port=aws.port)),
    ):
        pass


def test_without_moto_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kinesumer.testing.embedded_aws.server.find_spec", lambda _: None
    )
    with (
        pytest.raises(ConfigurationError, match=r"kinesumer\[local\]"),
        background(EmbeddedAws()),
    ):
        pass


def test_imports_load_nothing_heavy() -> None:
    program = (
        "import sys, kinesumer.testing.embedded_aws, kinesumer.testing.plugin;"
        "heavy = {'aiohttp', 'aiobotocore', 'botocore', 'moto'};"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "\n"


@pytest.mark.parametrize(
    ("named", "shards"), [(["a:3", "b"], {"a": 3, "b": 1}), ([], {})]
)
def test_streams_and_the_table_are_there_from_the_start(
    monkeypatch: pytest.MonkeyPatch, named: list[str], shards: dict[str, int]
) -> None:
    served: list[EmbeddedAws] = []

    async def serve(aws: EmbeddedAws, _: object) -> None:
        served.append(aws)

    monkeypatch.setattr("kinesumer.testing.embedded_aws.command.serve", serve)
    arguments = [f"--stream={text}" for text in named]
    assert CliRunner().invoke(cli, ["local", *arguments]).exit_code == 0
    [aws] = served
    assert {name: len(aws.open_shards(name)) for name in shards} == shards
    listed = aws.dynamodb("ListTables", b"{}")
    assert listed["TableNames"] == ["kinesumer-state-store"]


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("a:", "--stream a:: give a name"),
        (":3", "--stream :3: give a name"),
        ("a:0", "--stream a:0: give a name"),
        ("a:x", "--stream a:x: give a name"),
        ("a=3", "--stream a=3: give a name"),
        ("a/b", "--stream a/b: give a name"),
        ("a:99999", "--stream a:99999: This request would exceed the shard limit"),
    ],
)
def test_streams_that_cannot_be_made_are_refused(
    monkeypatch: pytest.MonkeyPatch, named: str, why: str
) -> None:
    monkeypatch.setattr("kinesumer.testing.embedded_aws.command.serve", None)
    result = CliRunner().invoke(cli, ["local", f"--stream={named}"])
    assert result.exit_code == 2
    assert why in result.stderr
    result = CliRunner().invoke(cli, ["local", "--stream=a", "--stream=a"])
    assert "already exists" in result.stderr


@pytest.mark.parametrize("turns", range(5))
async def test_who_connects_while_it_stops_is_not_left_waiting(turns: int) -> None:
    async with EmbeddedAws() as aws:
        caller = socket.create_connection(("127.0.0.1", aws.port), timeout=5)
        for _ in range(turns):
            await asyncio.sleep(0)
    with caller, suppress(ConnectionResetError):
        assert await asyncio.to_thread(caller.recv, 1) == b""


USERS_TEST = """
import asyncio
import os

from aiobotocore.session import get_session

async def shards():
    async with get_session().create_client("kinesis") as client:
        return len((await client.list_shards(StreamName="orders"))["Shards"])

async def tables():
    async with get_session().create_client("dynamodb") as client:
        return (await client.list_tables())["TableNames"]

def test_streams_and_state_store(kinesumer_aws):
    kinesumer_aws.create_stream("orders", shards=2)
    kinesumer_aws.put("orders", b"data", "key")
    assert asyncio.run(shards()) == 2
    assert asyncio.run(tables()) == ["kinesumer-state-store"]

def test_each_test_has_its_own(kinesumer_aws):
    kinesumer_aws.create_stream("orders", shards=1)
    assert asyncio.run(shards()) == 1

def test_the_environment_is_as_before():
    assert os.environ["AWS_PROFILE"] == "production"
    assert "AWS_ENDPOINT_URL" not in os.environ
"""


def test_a_users_test_gets_an_embedded_aws(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:asyncio"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={"PATH": "", "AWS_PROFILE": "production"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


CUSTOMERS = {
    "TableName": "customers",
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    "BillingMode": "PAY_PER_REQUEST",
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
}


async def test_shards_of_a_tables_stream_roll_over_and_split(
    aws: EmbeddedAws, ask: Ask, dynamodb: Any
) -> None:
    await dynamodb.create_table(**CUSTOMERS)
    table = {"table": "customers"}
    (first,) = aws.table_streams.open_shards("customers")
    status, rolled = await ask("POST", "table-rollovers", table)
    assert (status, len(rolled["open"])) == (200, 1)
    assert rolled["open"] != [first]
    _, split = await ask(
        "POST", "table-splits", table | {"shard_id": rolled["open"][0]}
    )
    assert split["open"] == aws.table_streams.open_shards("customers")
    assert len(split["open"]) == 2
    status, answer = await ask("POST", "table-splits", table | {"shard_id": first})
    assert (status, "closed" in answer["error"]) == (400, True)
    status, answer = await ask("POST", "table-rollovers", {"table": "absent"})
    assert (status, "absent" in answer["error"]) == (400, True)


async def test_expired_items_of_a_table_are_deleted(ask: Ask, dynamodb: Any) -> None:
    await dynamodb.create_table(**CUSTOMERS)
    table = {"table": "customers"}
    status, answer = await ask("POST", "table-expiries", table)
    assert (status, "TimeToLive" in answer["error"]) == (400, True)
    await dynamodb.update_time_to_live(
        TableName="customers",
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "until"},
    )
    item = {"id": {"S": "a"}, "until": {"N": "1"}}
    await dynamodb.put_item(TableName="customers", Item=item)
    assert await ask("POST", "table-expiries", table) == (200, {"deleted": 1})


def test_the_command_shortens_rollovers_and_gives_tables_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[EmbeddedAws] = []

    async def serve(aws: EmbeddedAws, _: object) -> None:
        served.append(aws)

    monkeypatch.setattr("kinesumer.testing.embedded_aws.command.serve", serve)
    arguments = ["--table-partitions=3", "--table-rollover-seconds=2.5"]
    assert CliRunner().invoke(cli, ["local", *arguments]).exit_code == 0
    assert CliRunner().invoke(cli, ["local"]).exit_code == 0
    chosen, default = (aws.table_streams.settings for aws in served)
    assert (chosen.partitions, chosen.rollover_seconds) == (3, 2.5)
    assert (default.partitions, default.rollover_seconds) == (1, 14_400)


@pytest.mark.parametrize(
    "option", ["--table-partitions=0", "--table-rollover-seconds=inf"]
)
def test_the_command_refuses_settings_that_make_no_sense(option: str) -> None:
    result = CliRunner().invoke(cli, ["local", option])
    assert result.exit_code == 2
    assert option.partition("=")[0] in result.stderr
