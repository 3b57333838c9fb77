"""With exactly the documented policies all works; without one action an error names it.

The embedded AWS enforces the policies of ``schema/iam/`` as they are documented.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

from kinesumer import AccessDeniedError, Kinesumer, Start
from kinesumer.wire.table_definition import STATE_STORE
from tests.integration.cli.conftest import error_text
from tests.system.security.conftest import (
    EXTERNAL_ID,
    INITIALIZING,
    QUICK,
    READING,
    USER,
    Accounts,
)
from tests.system.security.documents import Grant, document, grants

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.cli.conftest import Run

PATIENCE_SECONDS = 120
"""For machines that do something else meanwhile."""
CALLED_BY_STATUS = {
    "dynamodb:DescribeTable",
    "dynamodb:GetItem",
    "dynamodb:Query",
    "kinesis:DescribeStreamSummary",
    "kinesis:GetRecords",
    "kinesis:GetShardIterator",
}


def client(client_id: str) -> Kinesumer:
    return Kinesumer("app", table=STATE_STORE, client_id=client_id, config=QUICK)


async def consume(client: Kinesumer, accounts: Accounts, seen: set[bytes]) -> None:
    async for record in client.consume(accounts.streams, start=Start.TRIM_HORIZON):
        seen.add(record.data)


async def until(is_true: Callable[[], bool], tasks: list[asyncio.Task[None]]) -> None:
    """Wait, unless one of the tasks fails."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_true():
            for task in tasks:
                if task.done():
                    await task
            await asyncio.sleep(0.02)


# --- the client and the command ------------------------------------------------------


async def test_a_group_works_with_exactly_the_documented_policies(
    accounts: Accounts, impatient: None
) -> None:
    accounts.enforce(READING)
    accounts.bury("nobody")
    seen: set[bytes] = set()
    async with client("one") as one, client("two") as two:
        tasks = [asyncio.create_task(consume(c, accounts, seen)) for c in (one, two)]
        accounts.put(10)
        await until(lambda: len(seen) == accounts.count, tasks)
        accounts.aws.split("orders", accounts.aws.open_shards("orders")[0])
        accounts.put(10)
        await until(lambda: len(seen) == accounts.count, tasks)
        await one.leave()
        accounts.put(10)
        await until(lambda: len(seen) == accounts.count, tasks)
        await two.leave()
        await asyncio.gather(*tasks)
    called, denied = accounts.calls()
    assert called == {grant.action for grant in grants(*READING.values())}
    assert not denied


@pytest.mark.parametrize("removed", grants(*READING.values()), ids=str)
async def test_a_consumer_names_the_one_action_that_it_lacks(
    accounts: Accounts, impatient: None, removed: Grant
) -> None:
    accounts.enforce(READING, removed)
    accounts.put(1)
    accounts.bury("nobody")
    with pytest.raises(AccessDeniedError) as raised:
        async with asyncio.timeout(PATIENCE_SECONDS), client("one") as one:
            await consume(one, accounts, set())
    assert accounts.named(removed, raised.value)


def test_status_works_with_what_a_consumer_may(
    accounts: Accounts, impatient: None, run: Run
) -> None:
    accounts.enforce(READING)
    begin(accounts)
    result = run("status", "--app", "app", "--json")
    assert result.exit_code == 0
    shown = {
        stream["stream_arn"]: stream["lag_problem"]
        for stream in json.loads(result.output)["streams"]
    }
    # Which role reads a stream isn't stored: its lag isn't known.
    theirs = shown.pop(accounts.payments)
    assert (
        f"access denied: kinesis:DescribeStreamSummary on {accounts.payments}" in theirs
    )
    assert set(shown.values()) == {None}


def test_status_names_the_one_action_that_it_lacks(
    accounts: Accounts, impatient: None, run: Run
) -> None:
    begin(accounts)
    for removed in grants("consumer"):
        if removed.action not in CALLED_BY_STATUS or "/index/" in removed.resource:
            continue
        accounts.aws.allow()
        accounts.enforce(READING, removed)
        result = run("status", "--app", "app", "--json")
        if removed.action.startswith("dynamodb:"):
            assert result.exit_code == 1
            assert f"{removed.action} on table {STATE_STORE}" in error_text(result)
            continue
        for stream in json.loads(result.output)["streams"]:
            if stream["stream_arn"] != accounts.payments:
                on_it = f"{removed.action} on {stream['stream_arn']}"
                assert on_it in stream["lag_problem"]


def test_operators_change_groups_with_what_a_consumer_may(
    accounts: Accounts, impatient: None, run: Run
) -> None:
    accounts.enforce(READING)
    begin(accounts)
    for command in (
        ["pause", "--all"],
        ["seek", "--stream=orders", "--to=TRIM_HORIZON", "--yes"],
        ["resume", "--all"],
        ["reset", "--yes"],
    ):
        result = run(*command, "--app=app")
        assert result.exit_code == 0, result.stderr


def test_the_doctor_finds_nothing_with_what_consumers_and_operators_may(
    accounts: Accounts, run: Run
) -> None:
    accounts.enforce(READING)
    accounts.enforce({USER: "operator"})
    roles = f"--role=payments={accounts.role}", f"--external-id={EXTERNAL_ID}"
    streams = "orders", "clicks", accounts.payments
    result = run("doctor", *streams, *roles, "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["findings"] == []


def test_the_doctor_names_each_action_that_is_missing(
    accounts: Accounts, run: Run
) -> None:
    for removed in [*grants("consumer"), *grants("operator")]:
        if removed.action == "sts:AssumeRole":
            continue
        accounts.aws.allow()
        accounts.enforce({USER: "consumer"}, removed)
        accounts.enforce({USER: "operator"}, removed)
        if removed.policy == "operator":
            time.sleep(1.0)
        result = run("doctor", "orders", "--json")
        # DescribeLimits is answered once a second.
        found = [
            finding
            for finding in json.loads(result.output)["findings"]
            if "couldn't be tried" not in finding["text"]
        ]
        assert len(found) == 1, removed
        assert removed.action in found[0]["subject"]
        optional = removed.policy == "operator"
        assert found[0]["severity"] == ("note" if optional else "critical")
        assert result.exit_code == (0 if optional else 4)


def begin(accounts: Accounts) -> None:
    """Let a group begin with all streams, and end."""

    async def once() -> None:
        async with client("one") as one:
            async for _ in one.consume(accounts.streams, start=Start.TRIM_HORIZON):
                break

    accounts.put(1)
    asyncio.run(once())


def test_init_works_with_exactly_its_documented_policy(
    accounts: Accounts, run: Run
) -> None:
    accounts.enforce(INITIALIZING)
    for created in (False, True):
        result = run("init", "--table", "other" if created else STATE_STORE, "--json")
        assert json.loads(result.output)["created"] is created


@pytest.mark.parametrize("removed", grants("init"), ids=str)
def test_init_names_the_one_action_that_it_lacks(
    accounts: Accounts, run: Run, removed: Grant
) -> None:
    accounts.enforce(INITIALIZING, removed)
    result = run("init", "--table", "other")
    assert result.exit_code == 1
    assert f"access denied: {removed.action} on table other" in error_text(result)


def test_a_consumer_may_not_create_the_table(accounts: Accounts, run: Run) -> None:
    accounts.enforce(READING)
    assert "dynamodb:DescribeTable on table other" in error_text(
        run("init", "--table", "other")
    )
    assert "dynamodb:CreateTable" not in json.dumps(document("consumer"))
