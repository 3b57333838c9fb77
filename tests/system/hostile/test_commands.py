"""Test that wrong arguments, environments and lines cause messages, not tracebacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kinesumer.ops.cli.main import cli
from kinesumer.ops.cli.options import FiniteFloat
from kinesumer.ops.cli.produce import LineSplitter
from kinesumer.ops.group.produce import MAX_LINE_BYTES
from kinesumer.testing import EmbeddedAws, background
from kinesumer.wire.put_records import Entry
from tests.support import lease_table
from tests.support.cli import (
    PYTHON,
    Run,
    aws,
    environment,
    run,
    store_positions,
)
from tests.support.toy_stream import parser
from tests.system.hostile.strategies import json_values

__all__ = ["aws", "environment", "run"]


class Terminal:
    """Runs the command in this process with an environment of its own."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables

    def run(self, *arguments: str, **variables: str | None) -> Result:
        return CliRunner().invoke(cli, arguments, env={**self._variables, **variables})


@pytest.fixture(scope="module")
def empty() -> Iterator[Terminal]:
    with background(EmbeddedAws(table=None)) as embedded:
        yield Terminal(embedded.environment())


@pytest.fixture(scope="module")
def filled() -> Iterator[Terminal]:
    """Return a terminal whose AWS has positions of the app "a" and of a KCL fleet."""
    with background(EmbeddedAws()) as embedded, pytest.MonkeyPatch.context() as patch:
        variables = embedded.environment()
        for name, value in variables.items():
            patch.setenv(name, value)
        embedded.create_table()
        last = store_positions(embedded, "a")
        leases = [lease_table.lease(shard, last[shard]) for shard in SHARDS]
        lease_table.create(embedded, *leases)
        yield Terminal(variables)


@pytest.fixture
def terminal(empty: Terminal, environment: None) -> Terminal:
    """A terminal without the settings of the user who runs the tests."""
    return empty


def check(result: Result) -> None:
    """Fail for an unexpected exception or status, or an error in Python's terms."""
    assert result.exit_code in (0, 1, 2), result.output
    assert "error: unexpected" not in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert not any(map(PYTHON.search, errors)), errors


SHARDS = tuple(f"shardId-{number:012}" for number in range(2))
SHARD = ("--app=a", "--stream=orders", f"--shard={SHARDS[0]}")
KCL = ("kcl", lease_table.LEASES, "--stream=orders", "--look=0")
NINES = "9" * 5000

WRONG = [
    ("status", "--app=\ud800"),
    ("status", "--app=a", "--table=\ud800"),
    ("init", "--table="),
    ("init", "--region=" + "r" * 5000),
    ("consume", "s", "--app=a", "--role=admin"),
    ("consume", "s\x00", "--app=a"),
    ("consume", "\udcff", "--app=a"),
    ("consume", "orders", "--app=b", "--start=2999-01-01T00:00:00Z"),
    ("consume", "arn:aws:kinesis::1:stream/s", "--app=a"),
    ("consume", "arn:aws:kinesis:eu-west-1:1:stream/", "--app=a"),
    ("consume", "s", "--app=a", "--client-id=spark-query"),
    ("local", "--port=99999"),
    ("pause", "--app=a", "--all", "--reason=\udcff"),
    ("pause", "--app=a", "--all", "--reason=two\nlines"),
    ("pause", "--app=a", "--stream="),
    ("pause", "--app=a", "--stream=arn:"),
    ("pause", "--app=a", "--stream=orders", "--shard=\udcff"),
    ("drain", "\udcff", "--app=a"),
    ("drain", "", "--app=a"),
    ("seek", *SHARD, "--yes", f"--to={NINES}"),
    ("seek", *SHARD, "--yes", f"--to=49:{NINES}"),
    ("seek", *SHARD, "--yes", "--to=00"),
    ("seek", *SHARD, "--yes", "--to=1969-12-31T23:59:59Z"),
    ("seek", "--app=a", "--all", "--yes", "--to=0001-01-01T00:00:00+14:00"),
    ("seek", *SHARD, "--yes", "--to=2999-01-01T00:00:00Z"),
    ("seek", *SHARD, "--yes", "--to=9999-12-31T23:59:59-14:00"),
    ("seek", *SHARD, "--yes", f"--to={NINES}d"),
    ("seek", "--app=a", "--stream=\x1b[2J", "--to=LATEST", "--yes"),
    ("reset", "--app=a#b", "--yes"),
    ("distribution", "--app=a", "--by=prefix:" + NINES),
    ("distribution", "--kcl=\udcff"),
    ("tail", "\udcff"),
    ("tail", "orders", "--until=\udcff"),
    ("tail", "orders", f"--until={NINES}d"),
    ("consume", "s", "--app=a", "--until=0001-01-01T00:00:00+14:00"),
    ("consume", "s", "--app=a", "--until=tomorrow"),
    ("apps", "--table=\ud800"),
    ("dashboard", "--app=a", "--browse-records", "--dead-letters=file:\ud800"),
    ("produce", "\udcff"),
    ("produce", "orders", "--key=constant:\udcff"),
    ("produce", "orders", "/"),
    ("produce", "orders", "/nowhere/at/all"),
    ("export", "--app=a", "--stream=payments"),
    ("import", "/", "--app=b"),
    ("import", "/dev/zero", "--app=b"),
    ("import", *KCL, "--app=b", "--stream=arn:"),
    ("import", "kcl", "\udcff", "--stream=orders", "--app=b"),
    ("export", "kcl", "\udcff", "--app=a"),
    ("dlq", "list", "file:/"),
    ("dlq", "list", "sqs:http://"),
    ("dlq", "list", "sqs:http://[::1"),
    ("dlq", "list", "s3://"),
    ("dlq", "list", "kinesis:\udcff"),
    ("dlq", "list", "file:x", f"--since={NINES}d"),
    ("dlq", "show", "file:/nowhere/at/all", "\udcff"),
    ("health", "--app=a", "--client-id=\udcff"),
]


def test_every_fractional_option_refuses_nan_and_infinity() -> None:
    context = click.Context(cli)
    commands: list[click.Command | None] = [cli]
    for command in commands:
        assert command is not None
        if isinstance(command, click.Group):
            names = command.list_commands(context)
            commands += [command.get_command(context, name) for name in names]
        for option in command.params:
            if isinstance(option.type, click.types.FloatParamType):
                assert isinstance(option.type, FiniteFloat), (command, option)
    assert len(commands) > 20
    for value in ("nan", "inf"):
        with pytest.raises(click.BadParameter, match="finite"):
            FiniteFloat(min=0).convert(value, None, None)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    "arguments", WRONG, ids=lambda arguments: ascii(" ".join(arguments))[1:60]
)
def test_impossible_arguments_end_with_a_message(
    filled: Terminal, arguments: tuple[str, ...]
) -> None:
    result = filled.run(*arguments)
    check(result)
    assert result.exit_code != 0


@pytest.mark.parametrize(
    "variables",
    [
        {"AWS_ENDPOINT_URL": "nowhere"},
        {"AWS_ENDPOINT_URL": "http://["},
        {"AWS_ENDPOINT_URL": "http://host:port"},
        {"AWS_ENDPOINT_URL_DYNAMODB": "ftp://host"},
        {"AWS_DEFAULT_REGION": "eu west"},
        {"AWS_DEFAULT_REGION": None},
        {"AWS_PROFILE": "nobody"},
        {"AWS_CONFIG_FILE": __file__},
        {"AWS_SHARED_CREDENTIALS_FILE": __file__},
        {"AWS_CONFIG_FILE": "/nowhere/at/all"},
        {"AWS_CA_BUNDLE": "/nowhere/at/all"},
        {"AWS_MAX_ATTEMPTS": "many"},
        {"AWS_DEFAULTS_MODE": "fast"},
        {"AWS_USE_FIPS_ENDPOINT": "perhaps"},
        {"AWS_SESSION_TOKEN": "a\nb"},
        {"AWS_ACCESS_KEY_ID": "ключ"},
        {"AWS_ACCESS_KEY_ID": None},
        {"KINESUMER_TABLE": ""},
        {"KINESUMER_TABLE": "a#b"},
    ],
    ids=str,
)
def test_an_impossible_environment_ends_with_a_message(
    terminal: Terminal, variables: dict[str, str | None]
) -> None:
    result = terminal.run("status", "--app=a", **variables)
    check(result)
    assert result.exit_code != 0


COMMANDS = (
    *("init", "status", "consume", "lag", "verify", "doctor", "distribution", "health"),
    *("metrics --once", "pause", "resume", "drain", "seek", "reset", "tail", "produce"),
    *("export", "export kcl", "import", "import kcl"),
    *("dlq list", "dlq show", "dlq redrive"),
)
OPTIONS = (
    *("--app=b", "--table=t", "--json", "--to=LATEST", "--all", "-h", "--", "orders"),
    *("--stream", "--shard", "--reason", "--role", "--by", "--kcl", "file:", "s3://a"),
    *("--app", "--table", "--start", "--region", "-"),
)
options = st.text(max_size=8) | st.sampled_from(OPTIONS)


@example("status", ["--app", "\ud800"])
@example("verify", ["--role=\ud800"])
@given(st.sampled_from(COMMANDS), st.lists(options, max_size=4))
@settings(
    max_examples=settings().max_examples // 3,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_arguments_end_with_a_message(
    terminal: Terminal, filled: Terminal, command: str, arguments: list[str]
) -> None:
    # In an AWS without streams, ``consume`` and ``tail`` end at once.
    used = terminal if command in ("consume", "tail") else filled
    check(used.run(*command.split(), *arguments, KINESUMER_APP="nobody"))


@given(st.lists(st.binary(max_size=9)), st.lists(st.integers(1, 9)))
def test_chunks_of_any_length_are_split_into_the_same_lines(
    lines: list[bytes], lengths: list[int]
) -> None:
    whole = b"\n".join(lines)
    splitter, split, start = LineSplitter(), [], 0
    for length in [*lengths, len(whole) or 1]:
        if chunk := whole[start : start + length]:
            split += splitter.lines(chunk)
        start += length
    split += splitter.lines(b"")
    expected = whole.split(b"\n")
    assert split == (expected if expected[-1] else expected[:-1])


any_lines = st.binary(max_size=40) | st.builds(
    lambda fields: json.dumps(fields).encode(),
    st.dictionaries(
        st.sampled_from(["partition_key", "data", "data_base64", "explicit_hash_key"]),
        json_values,
    ),
)


@example(b'{"x":' + b"[" * 100_000, True, None)
@example(b'{"partition_key":"k","data":' + b"[" * 100_000, True, None)
@example(b'{"x":' + b"[" * 100_000, False, "field:x")
@example(b'{"x":"\\ud800"}', False, "field:x")
@example(b'{"x":"\xff"}', False, "field:x")
@example(b'{"partition_key":"\\ud800","data":1}', True, None)
@example(b'{"partition_key":"k","data":"\\ud800"}', True, None)
@example(b'{"partition_key":"k","data_base64":"\xc3\xa9"}', True, None)
@given(
    any_lines, st.booleans(), st.sampled_from([None, "random", "field:x", "field:é"])
)
@settings(max_examples=settings().max_examples // 2)
def test_a_line_is_a_record_or_has_a_reason(
    line: bytes, jsonl: bool, key: str | None
) -> None:
    parsed = parser(jsonl=jsonl, key=key).parse(line)
    assert parsed is None or isinstance(parsed, Entry | str)


def test_the_memory_for_an_endless_line_is_bounded() -> None:
    splitter = LineSplitter()
    for _ in range(40):
        splitter.lines(b"x" * (1 << 20))
    [line, other] = splitter.lines(b"y\nz\n")
    assert (len(line), other) == (MAX_LINE_BYTES + 1, b"z")


def test_a_line_that_is_too_long_is_named_and_the_next_is_put(
    aws: EmbeddedAws, run: Run, tmp_path: Path
) -> None:
    aws.create_stream("orders")
    path = tmp_path / "lines"
    path.write_bytes(b"a\n%b\n\xff\x00\nlast" % (b"x" * (MAX_LINE_BYTES + 99)))
    result = run("produce", "orders", str(path))
    assert result.exit_code == 1
    assert (
        result.stderr == "not put: line 2: the line is longer than 16,777,216 bytes\n"
    )
    assert result.stdout.startswith("3 of 4 lines put as 3 records")
