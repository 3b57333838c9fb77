"""Test that the documented policies suffice, and that errors name missing actions.

The embedded AWS enforces the policies of ``schema/iam/`` as they are documented.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from kinesumer import AccessDeniedError, Kinesumer, Start, Stream
from kinesumer.config import STATE_STORE
from tests.support.cli import Run
from tests.system.security.conftest import (
    QUICK,
    READING,
    WRITING,
    Accounts,
    close_connections_of_spark,
)
from tests.system.security.documents import (
    CHECKED_WITHIN_CALLS,
    FAN_OUT,
    Grant,
    grants,
)
from tests.system.security.queries import Query, put

RunProgram = Callable[[Accounts], Coroutine[Any, Any, None]]

PATIENCE_SECONDS = 120  # for machines under load

# --- clients, queries and sinks ------------------------------------------------------


async def consume(client: Kinesumer, accounts: Accounts, data: set[bytes]) -> None:
    async for record in client.consume(accounts.streams, start=Start.TRIM_HORIZON):
        data.add(record.data)


def client(accounts: Accounts, client_id: str) -> Kinesumer:
    app = accounts.app
    return Kinesumer(app, table=STATE_STORE, client_id=client_id, config=QUICK)


async def run_group(accounts: Accounts) -> None:
    """Let two clients read a split, and hand over when one of them leaves."""
    data: set[bytes] = set()

    async def until_all_read() -> None:
        accounts.put(10)
        while len(data) != accounts.count:
            for task in tasks:
                if task.done():
                    await task
            await asyncio.sleep(0.02)

    async with client(accounts, "one") as one, client(accounts, "two") as two:
        tasks = [asyncio.create_task(consume(c, accounts, data)) for c in (one, two)]
        await until_all_read()
        accounts.aws.split("orders", accounts.aws.open_shards("orders")[0])
        await until_all_read()
        await one.leave()
        await until_all_read()
        await two.leave()
        await asyncio.gather(*tasks)


async def run_client(accounts: Accounts) -> None:
    async with client(accounts, "one") as one:
        await consume(one, accounts, set())


async def run_query(accounts: Accounts) -> None:
    """Let a query read a split."""
    query = await asyncio.to_thread(Query, accounts)
    accounts.put(5)
    try:
        rows = await asyncio.to_thread(query.batches, accounts.count)
        accounts.aws.split("orders", accounts.aws.open_shards("orders")[0])
        accounts.put(5)
        rows += await asyncio.to_thread(query.batches, accounts.count - len(rows))
    finally:
        accounts.aws.allow()
        await asyncio.to_thread(query.reader.stop)
    assert sorted(map(int, rows)) == list(range(1, accounts.count + 1))


async def run_sink(accounts: Accounts) -> None:
    for stream in accounts.streams:
        await asyncio.to_thread(put, stream)


class Program(NamedTuple):
    """A program, its policies, the grants that it needs, and a short run that fails."""

    run: RunProgram
    policies: tuple[str, ...]
    needs: list[Grant]
    fails: RunProgram


READ_GRANTS, WRITE_GRANTS = grants(*READING), grants(*WRITING)
INDEX = "${TABLE_ARN}/index/index-client-key-last-update"
NOT_CALLED_BY_QUERIES = {
    # This index serves to prune rows of dead clients, which a query doesn't do, since
    # it is the only client of its app.
    Grant("consumer", "dynamodb:Query", INDEX),
    # A query deletes only rows of shards that Kinesis no longer lists.
    Grant("consumer", "dynamodb:DeleteItem", "${TABLE_ARN}"),
}
# The grants of the role aren't tried with queries, since the runs of sinks show that
# errors in Spark name what a role lacks.
QUERY_GRANTS = [one for one in grants("consumer") if one not in NOT_CALLED_BY_QUERIES]
PROGRAMS = {
    "group": Program(run_group, READING, READ_GRANTS, run_client),
    "query": Program(run_query, READING, QUERY_GRANTS, run_query),
    "sink": Program(run_sink, WRITING, WRITE_GRANTS, run_sink),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
async def test_a_program_works_with_exactly_its_policies_and_names_what_it_lacks(
    accounts: Accounts, program: Program
) -> None:
    accounts.enforce(*program.policies)
    await run_once(program.run, accounts)
    called, denied = accounts.calls()
    assert called == {grant.action for grant in program.needs}
    assert not denied
    for number, removed in enumerate(program.needs):
        accounts.app = f"without-{number}"
        accounts.enforce(*program.policies, removed=removed)
        accounts.put(1)
        with pytest.raises(AccessDeniedError) as raised:
            await run_once(program.fails, accounts)
        assert accounts.named(removed, raised.value), removed


async def run_once(run: RunProgram, accounts: Accounts) -> None:
    """Run a program with new connections, in an app with the row of a dead client."""
    accounts.bury("one that died long ago")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await run(accounts)
    finally:
        await asyncio.to_thread(close_connections_of_spark)


# --- fan-out -------------------------------------------------------------------------


async def read_by_fan_out(accounts: Accounts, consumer: str) -> None:
    accounts.put(1)
    stream = Stream("orders", fan_out=consumer)
    async with client(accounts, "one") as one:
        async for _ in one.consume(stream, start=Start.TRIM_HORIZON):
            break


async def test_fan_out_needs_exactly_its_policies_and_names_what_it_lacks(
    accounts: Accounts,
) -> None:
    for number, removed in enumerate([None, *grants(*FAN_OUT)]):
        accounts.enforce("consumer", *FAN_OUT, removed=removed)
        accounts.app, consumer = f"app-{number}", f"consumer-{number}"
        if removed is None:
            await read_by_fan_out(accounts, consumer)
            continue
        with pytest.raises(AccessDeniedError) as raised:
            await read_by_fan_out(accounts, consumer)
        assert accounts.named(removed, raised.value), removed


async def test_a_consumer_registered_beforehand_needs_fewer_permissions(
    accounts: Accounts, run: Run
) -> None:
    accounts.enforce("consumer", *FAN_OUT)
    await read_by_fan_out(accounts, "billing")
    accounts.app = "by-name"
    accounts.enforce("consumer", "fan-out", "fan-out-by-name")
    await read_by_fan_out(accounts, "billing")
    accounts.app = "by-arn"
    accounts.aws.allow()
    listed = await asyncio.to_thread(run, "fan-out", "list", "orders", "--json")
    [consumer] = json.loads(listed.output)["consumers"]
    accounts.enforce("consumer", "fan-out")
    await read_by_fan_out(accounts, consumer["arn"])


def run_fan_out(run: Run, new: str, old: str) -> str:
    """Register a consumer, list all, and deregister one. Return the outputs."""
    results = [
        run("fan-out", "register", "orders", new, "--yes", "--tag=team=billing"),
        run("fan-out", "list", "orders"),
        run("fan-out", "deregister", "orders", old, "--yes"),
    ]
    return " ".join(" ".join((r.output + r.stderr).split()) for r in results)


def test_the_command_fan_out_needs_exactly_its_policy_and_names_what_it_lacks(
    accounts: Accounts, run: Run
) -> None:
    needs = grants("fan-out-operator")
    accounts.enforce("fan-out-operator")
    assert "access denied" not in run_fan_out(run, "first", "first")
    called, denied = accounts.calls()
    assert called == {grant.action for grant in needs} - CHECKED_WITHIN_CALLS
    assert not denied
    for number, removed in enumerate(needs):
        accounts.enforce("fan-out-operator")
        run("fan-out", "register", "orders", f"old-{number}", "--yes")
        accounts.enforce("fan-out-operator", removed=removed)
        text = run_fan_out(run, f"new-{number}", f"old-{number}")
        assert f"access denied: {removed.action} on" in text, removed


# --- one app's rows ------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_a_policy_restricts_clients_to_the_rows_of_their_app(
    accounts: Accounts,
) -> None:
    accounts.app = "billing"
    accounts.enforce("consumer-of-app", "reader-role")
    await run_once(run_group, accounts)
    assert not accounts.calls()[1]
    for stranger in ("audit", "billing2", "bill"):
        accounts.app = stranger
        with pytest.raises(AccessDeniedError, match="dynamodb:"):
            await run_client(accounts)
