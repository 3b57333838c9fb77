"""``python -m kinesumer.local``, the thread, and what imports cost."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from kinesumer.cli.main import cli
from kinesumer.errors import ConfigurationError
from kinesumer.local import EmbeddedAws, background


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_exports_serves_and_stops_on_a_signal(
    number: signal.Signals,
) -> None:
    command = [sys.executable, "-m", "kinesumer.local", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(7)]
        exported = dict(
            line.removeprefix("export ").strip().split("=", 1) for line in lines[:6]
        )
        url = exported["AWS_ENDPOINT_URL"] + "/_kinesumer/health"
        with urllib.request.urlopen(url) as answer:
            assert answer.status == 200
        process.send_signal(number)
        assert process.wait(10) == 0
    assert exported["AWS_ACCESS_KEY_ID"] == "test"
    assert lines[6] == "unset AWS_PROFILE AWS_SESSION_TOKEN\n"


def test_a_thread_serves_while_its_block_runs() -> None:
    with background(EmbeddedAws()) as aws:
        url = aws.url + "/_kinesumer/health"
        with urllib.request.urlopen(url) as answer:
            assert answer.status == 200
    with pytest.raises(OSError):
        urllib.request.urlopen(url)


def test_a_port_in_use_is_an_error_of_the_block() -> None:
    with (
        background(EmbeddedAws()) as aws,
        pytest.raises(ConfigurationError, match="choose another port"),
        background(EmbeddedAws(port=aws.port)),
    ):
        pass


def test_without_moto_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinesumer.local.server.find_spec", lambda _: None)
    with (
        pytest.raises(ConfigurationError, match=r"kinesumer\[local\]"),
        background(EmbeddedAws()),
    ):
        pass


@pytest.mark.parametrize("module", ["kinesumer.local", "kinesumer.testing.plugin"])
def test_imports_load_nothing_heavy(module: str) -> None:
    program = (
        f"import sys, {module};"
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
    ("named", "shards"), [(["a=3", "b"], {"a": 3, "b": 1}), ([], {})]
)
def test_streams_are_there_from_the_start(
    monkeypatch: pytest.MonkeyPatch, named: list[str], shards: dict[str, int]
) -> None:
    served: list[EmbeddedAws] = []

    async def serve(aws: EmbeddedAws, _: object) -> None:
        served.append(aws)

    monkeypatch.setattr("kinesumer.local.server.serve", serve)
    arguments = [f"--stream={text}" for text in named]
    assert CliRunner().invoke(cli, ["local", *arguments]).exit_code == 0
    [aws] = served
    assert {name: len(aws.open_shards(name)) for name in shards} == shards


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("a=", "--stream a=: give a name"),
        ("=3", "--stream =3: give a name"),
        ("a=0", "--stream a=0: give a name"),
        ("a=x", "--stream a=x: give a name"),
        ("a/b", "--stream a/b: give a name"),
        ("a=99999", "--stream a: This request would exceed the shard limit"),
    ],
)
def test_streams_that_cannot_be_made_are_refused(
    monkeypatch: pytest.MonkeyPatch, named: str, why: str
) -> None:
    monkeypatch.setattr("kinesumer.local.server.serve", None)
    result = CliRunner().invoke(cli, ["local", f"--stream={named}"])
    assert result.exit_code == 2
    assert why in result.stderr
    result = CliRunner().invoke(cli, ["local", "--stream=a", "--stream=a"])
    assert "already exists" in result.stderr
