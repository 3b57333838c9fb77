"""The commands that look at a group and change it, with arguments of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kinesumer.local import EmbeddedAws, background
from tests.integration.cli import lease_table
from tests.integration.cli.conftest import environment, store_positions
from tests.system.hostile.test_commands import Terminal, check

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["environment"]

SHARDS = tuple(f"shardId-{number:012}" for number in range(2))
SHARD = ("--app=a", "--stream=orders", f"--shard={SHARDS[0]}")
KCL = ("kcl", lease_table.LEASES, "--stream=orders", "--look=0")
NINES = "9" * 5000


@pytest.fixture(scope="module")
def aws() -> Iterator[Terminal]:
    """App a has read two shards, and so has a KCL fleet."""
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
def terminal(aws: Terminal, environment: None) -> Terminal:
    """A terminal without any settings of whoever runs the tests."""
    return aws


WRONG = [
    ("pause", "--app=a", "--all", "--wait=nan"),
    ("pause", "--app=a", "--all", "--reason=\udcff"),
    ("pause", "--app=a", "--all", "--reason=two\nlines"),
    ("pause", "--app=a", "--stream="),
    ("pause", "--app=a", "--stream=arn:"),
    ("pause", "--app=a", "--stream=orders", "--shard=\udcff"),
    ("resume", "--app=a\udcff", "--all"),
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
    ("lag", "--app=a", "--interval=nan"),
    ("lag", "--app=\udcff"),
    ("doctor", "--app=a", "--interval=inf"),
    ("verify", "--app=\udcff"),
    ("metrics", "--app=\udcff", "--once"),
    ("metrics", "--app=a", "--every=nan", "--once"),
    ("metrics", "--app=a", "--once", "--listen=host:99999"),
    ("distribution", "--app=a", "--by=prefix:" + NINES),
    ("distribution", "--kcl=\udcff"),
    ("tail", "orders", "--seconds=nan"),
    ("tail", "\udcff"),
    ("produce", "orders", "--rate=nan"),
    ("produce", "orders", "--give-up=nan"),
    ("produce", "\udcff"),
    ("produce", "orders", "/"),
    ("produce", "orders", "/nowhere/at/all"),
    ("export", "--app=\udcff"),
    ("export", "--app=a", "--stream=payments"),
    ("import", "/", "--app=b"),
    ("import", "/dev/zero", "--app=b"),
    ("import", *KCL, "--app=b", "--look=nan"),
    ("import", *KCL, "--app=b", "--look=inf"),
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


@pytest.mark.parametrize(
    "arguments", WRONG, ids=lambda given: ascii(" ".join(given))[1:60]
)
def test_what_cannot_work_is_refused_in_words(
    terminal: Terminal, arguments: tuple[str, ...]
) -> None:
    result = terminal.run(*arguments)
    check(result)
    assert result.exit_code != 0


COMMANDS = (
    *("lag", "verify", "doctor", "distribution", "health", "metrics --once"),
    *("pause", "resume", "drain", "seek", "reset", "tail", "produce", "export"),
    *("export kcl", "import", "import kcl", "dlq list", "dlq show", "dlq redrive"),
)
OPTIONS = (
    *("--app=b", "--table=t", "--json", "--to=LATEST", "--all", "-h", "--", "orders"),
    *("--stream", "--shard", "--reason", "--role", "--by", "--kcl", "file:", "s3://a"),
)
words = st.text(max_size=8) | st.sampled_from(OPTIONS)


@example("verify", ["--role=\ud800"])
@given(st.sampled_from(COMMANDS), st.lists(words, max_size=4))
@settings(
    max_examples=settings().max_examples // 8,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)
def test_any_arguments_end_in_words(
    terminal: Terminal, command: str, arguments: list[str]
) -> None:
    check(terminal.run(*command.split(), *arguments, KINESUMER_APP="nobody"))
