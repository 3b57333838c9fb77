"""Test commands and ``consume`` with shards whose end is odd."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.aws.kinesis import open_source
from kinesumer.core.lineage import find
from kinesumer.model.streams import Stream
from kinesumer.ops.group.connect import connect
from kinesumer.testing import EmbeddedAws
from kinesumer.wire.rows import STATE_STORE
from tests.integration.ops.cli.conftest import CONSUME, Run, Starter, lines, report
from tests.support import lease_table
from tests.support.lease_table import LEASES, lease

S0 = "shardId-000000000000"


def ending_number() -> str:
    """Return the ending sequence number of the first shard, which is closed."""

    async def listed() -> str | None:
        async with connect(STATE_STORE, None) as (clients, _):
            source = await open_source(clients, Stream("orders"))
            shard = find(await source.list_shards(), S0)
        assert shard is not None
        return shard.ending_sequence_number

    number = asyncio.run(listed())
    assert number is not None
    return number


@pytest.fixture
def closed(aws: EmbeddedAws) -> str:
    """Split the only shard, put a record after it, and return its ending number."""
    aws.create_table()
    aws.create_stream("orders")
    aws.put("orders", b"parent's")
    aws.split("orders", S0)
    aws.put("orders", b"child's")
    return ending_number()


def test_a_seek_to_the_ending_number_lets_the_children_be_read(
    closed: str, aws: EmbeddedAws, run: Run, start: Starter
) -> None:
    lease_table.create(aws, lease(S0, "TRIM_HORIZON"))
    kcl = ("kcl", LEASES, "--stream=orders", "--look=0")
    assert run("import", *kcl, "--app=a", "--yes").exit_code == 0
    shard = ("--stream=orders", f"--shard={S0}")
    moved = run("seek", "--app=a", *shard, "--to", closed, "--yes")
    assert moved.exit_code == 0, moved.output
    [stream] = report(run("verify", "--app=a", "--json"))["streams"]
    verdicts = {shard["shard_id"]: shard["verdict"] for shard in stream["shards"]}
    assert verdicts[S0] == "at the end"
    assert b"child's" in lines(start(*CONSUME), 1)[0]


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "--app=a", "--verbose"),
        ("seek", "--app=a", "--all", "--to=TRIM_HORIZON", "--dry-run"),
        ("tail", "orders", "--start=TRIM_HORIZON", "--limit=10", "--output=count"),
    ],
    ids=lambda command: command[0],
)
def test_commands_report_the_same_if_no_answer_has_an_iterator(
    stopped_app: EmbeddedAws, run: Run, command: tuple[str, ...]
) -> None:
    expected = run(*command)
    assert expected.exit_code == 0, expected.output
    stopped_app.fault("no_iterator", operation="GetRecords")
    found = run(*command)
    assert (found.exit_code, found.stdout) == (0, expected.stdout)
