"""Test ways to run the embedded AWS: the command, a thread, and the pytest plugin."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli.main import cli
from kinesumer.testing import EmbeddedAws, background
from kinesumer.testing.embedded_aws.server import serve


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
