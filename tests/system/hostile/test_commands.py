"""The command with any arguments and environment: it says what is wrong, in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kinesumer.cli.main import cli
from kinesumer.local import EmbeddedAws, background
from tests.integration.cli.conftest import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

__all__ = ["environment"]


class Terminal:
    """Runs the command against an AWS without streams: consuming ends with that."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables

    def run(self, *arguments: str, **variables: str | None) -> Result:
        return CliRunner().invoke(cli, arguments, env={**self._variables, **variables})


@pytest.fixture(scope="module")
def aws() -> Iterator[Terminal]:
    with background(EmbeddedAws()) as embedded:
        yield Terminal(embedded.environment())


@pytest.fixture
def terminal(aws: Terminal, environment: None) -> Terminal:
    """A terminal without any settings of whoever runs the tests."""
    return aws


def check(result: Result) -> None:
    """Fail unless the command ended by itself, with words of its own."""
    assert result.exit_code in (0, 1, 2), result.output
    assert "error: unexpected" not in result.stderr, result.stderr
    assert "Traceback" not in result.stderr


WRONG = [
    ("status", "--app=\ud800"),
    ("status", "--app=a", "--table=\ud800"),
    ("status", "--app=a#b"),
    ("status", "--app=a", "--table=t#b"),
    ("status", "--app=a", "--region=\n"),
    ("status", "--app=a", "--region=eu west"),
    ("init", "--table="),
    ("init", "--region=" + "r" * 5000),
    ("consume", "s", "--app=a", "--start=0001-01-01T00:00:00+14:00"),
    ("consume", "s", "--app=a", "--start=9999-12-31T23:59:59-14:00"),
    ("consume", "s", "--app=a", "--start=1e300"),
    ("consume", "s", "--app=a", "--role=admin"),
    ("consume", "s", "--app=a", "--role=arn:aws:iam::1:role/x", "--external-id="),
    ("consume", "s", "--app=a", "--region=\x00"),
    ("consume", "s\x00", "--app=a"),
    ("consume", "s", "s", "--app=a"),
    ("consume", "arn:aws:kinesis::1:stream/s", "--app=a"),
    ("consume", "arn:aws:kinesis:x y:1:stream/s", "--app=a"),
    ("consume", "arn:aws:kinesis:eu-west-1:1:stream/", "--app=a"),
    ("consume", "s", "--app=a", "--client-id=spark-query"),
    ("consume", "s", "--app=a", "--output=xml"),
    ("local", "--port=99999"),
    ("--log-level=LOUD", "status"),
]


@pytest.mark.parametrize("arguments", WRONG, ids=lambda given: " ".join(given)[:60])
def test_what_cannot_work_is_refused_in_words(
    terminal: Terminal, arguments: tuple[str, ...]
) -> None:
    result = terminal.run(*arguments)
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
        {"AWS_RETRY_MODE": "never"},
        {"AWS_DEFAULTS_MODE": "fast"},
        {"AWS_USE_FIPS_ENDPOINT": "perhaps"},
        {"AWS_STS_REGIONAL_ENDPOINTS": "all"},
        {"AWS_SESSION_TOKEN": "a\nb"},
        {"AWS_ACCESS_KEY_ID": "ключ"},
        {"AWS_ACCESS_KEY_ID": None},
        {"KINESUMER_TABLE": ""},
        {"KINESUMER_TABLE": "a#b"},
    ],
    ids=str,
)
def test_an_environment_that_cannot_work_is_refused_in_words(
    terminal: Terminal, variables: dict[str, str | None]
) -> None:
    result = terminal.run("status", "--app=a", **variables)
    check(result)
    assert result.exit_code != 0


words = st.text(max_size=8) | st.sampled_from(
    ["--app", "--table", "--json", "--start", "--region", "-h", "--", "orders", "-"]
)


@example(["status", "--app", "\ud800"])
@given(st.lists(words, max_size=4))
@settings(
    max_examples=30,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)
def test_any_arguments_end_in_words(terminal: Terminal, arguments: list[str]) -> None:
    for command in ("init", "status", "consume"):
        check(terminal.run(command, *arguments))
