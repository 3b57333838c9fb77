"""Who only looks at a fleet needs to write nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer import Kinesumer, Start
from kinesumer.wire.table_definition import STATE_STORE
from tests.integration.cli.conftest import error_text
from tests.system.security.conftest import EXTERNAL_ID, QUICK, USER, Accounts
from tests.system.security.documents import grants

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Run

VIEWING = {USER: "viewer", "*:assumed-role/*": "reader-role"}


def begin(accounts: Accounts) -> tuple[str, ...]:
    """Let a group consume all streams, and end; return how the other's is read."""

    async def once() -> None:
        client = Kinesumer("app", table=STATE_STORE, config=QUICK)
        async with client as one:
            async for _ in one.consume(accounts.streams, start=Start.TRIM_HORIZON):
                break

    accounts.put(1)
    asyncio.run(once())
    role = f"{accounts.payments}={accounts.role}"
    return "--app=app", f"--role={role}", f"--external-id={EXTERNAL_ID}"


def test_a_viewer_sees_all_of_a_fleet(
    accounts: Accounts, impatient: None, run: Run
) -> None:
    options = begin(accounts)
    accounts.enforce(VIEWING)
    told = run("metrics", "--once", *options)
    assert told.exit_code == 0, told.stderr
    known = [line for line in told.output.splitlines() if "group_lag_known{" in line]
    assert len(known) == 3
    assert all(line.endswith(" 1.0") for line in known)
    for command in (["status"], ["lag", "--interval=0.5"]):
        result = run(*command, *options)
        assert result.exit_code == 0, result.stderr
        assert "access denied" not in result.output


def test_a_viewer_is_told_of_the_one_action_that_is_missing(
    accounts: Accounts, impatient: None, run: Run
) -> None:
    options = begin(accounts)
    for removed in grants("viewer"):
        accounts.aws.allow()
        accounts.enforce(VIEWING, removed)
        if removed.action.startswith("dynamodb:"):
            refused = run("metrics", "--once", *options)
            assert f"{removed.action} on table {STATE_STORE}" in error_text(refused)
        else:
            command = "verify" if removed.action == "kinesis:ListShards" else "status"
            text = " ".join(run(command, *options).output.split())
            assert f"access denied: {removed.action}" in text, removed


def test_a_viewer_changes_nothing(
    accounts: Accounts, impatient: None, run: Run
) -> None:
    begin(accounts)
    accounts.enforce(VIEWING)
    refused = run("pause", "--app=app", "--all")
    assert "access denied: dynamodb:UpdateItem" in error_text(refused)
