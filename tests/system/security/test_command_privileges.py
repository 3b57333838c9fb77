"""Test that commands and the dashboard work with exactly their documented policies."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from kinesumer import AccessDeniedError, Kinesumer, Start, Stream
from kinesumer.config import STATE_STORE
from kinesumer.ops.dashboard.actions import Action, ActionHandler, Pause, Resume, Seek
from kinesumer.ops.dashboard.model import DashboardInfo
from kinesumer.ops.dashboard.poller import Poller, StoreFleetSource
from kinesumer.ops.dashboard.records import RecordBrowser, RecordsRequest
from kinesumer.ops.group.connect import Roles, connect
from kinesumer.runtime.clock import SystemClock
from tests.support import lease_table
from tests.support.cli import Run, error_text, report
from tests.support.lease_table import LEASES
from tests.system.security.conftest import (
    EXTERNAL_ID,
    READING,
    Accounts,
)
from tests.system.security.documents import FAN_OUT, document, grants

# --- commands ------------------------------------------------------------------------

ROW = {"dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query"}
CHANGED = {*ROW, "dynamodb:UpdateItem"}
DELETED = CHANGED - {"dynamodb:GetItem"} | {"dynamodb:DeleteItem"}
LISTED = {"kinesis:DescribeStreamSummary", "kinesis:ListShards"}
READ = {"kinesis:GetShardIterator", "kinesis:GetRecords"}
LAG = {*ROW, *READ, "kinesis:DescribeStreamSummary"}
SEEKED = CHANGED | LISTED | {"kinesis:GetShardIterator"}


class Command(NamedTuple):
    """A command line, the policies for it, and the actions that it calls."""

    line: str
    policies: str  # separated by spaces
    actions: set[str]


VIEWING = "viewer", "viewer-records"
RECORDS = " ".join(VIEWING)
COMMANDS = [
    Command("health --app=app --client-id=one", "viewer", {"dynamodb:GetItem"}),
    Command("status --app=app", RECORDS, LAG),
    Command("status --app=app --no-lag", "viewer", ROW),
    Command("metrics --app=app --once --no-lag", "viewer", ROW),
    Command("lag --app=app --interval=0.5", RECORDS, LAG),
    Command("distribution --app=app", RECORDS, LAG),
    Command("export --app=app -o positions", "viewer", ROW),
    Command("verify --app=app", "viewer", ROW | LISTED),
    Command("tail orders --start=TRIM_HORIZON --limit=1", RECORDS, LISTED | READ),
    Command("pause --app=app --all", "consumer", CHANGED),
    Command("resume --app=app --all", "consumer", CHANGED),
    Command("seek --app=app --to=LATEST --yes --all", "consumer", SEEKED),
    Command("drain one --app=app --wait=0 --yes", "consumer", CHANGED),
    Command("import positions --app=other --yes", "consumer", CHANGED | LISTED),
    Command("reset --app=other --yes", "consumer", DELETED),
    Command(
        "produce orders lines --aggregate", "producer", LISTED | {"kinesis:PutRecords"}
    ),
    # Each run creates a table with another name.
    Command(
        "init --table=other{} --point-in-time-recovery --deletion-protection",
        "init",
        {g.action for g in grants("init")},
    ),
]


@pytest.fixture
def group(accounts: Accounts, impatient: None) -> Accounts:
    """Accounts with a group that has read a stream, and with a living client."""
    asyncio.run(accounts.consume_once("orders"))
    accounts.bury("one", dead=False)
    return accounts


def test_commands_work_with_exactly_their_policies_and_name_what_is_missing(
    group: Accounts, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("a\n")
    # All commands share the function for each of these calls, so it suffices to deny
    # each call to one command.
    shared = {*CHANGED, "kinesis:ListShards"}
    named: set[str] = set()
    numbers = count()
    for line, policies, actions in COMMANDS:
        for action in sorted(actions - (named & shared)):
            group.enforce(*policies.split())
            group.aws.deny(action)
            result = run(*line.format(next(numbers)).split())
            text = " ".join((result.output + result.stderr).split())
            assert f"access denied: {action} on" in text, line
            named.add(action)
        group.enforce(*policies.split())
        group.aws.journal.latest.clear()
        result = run(*line.format(next(numbers)).split())
        assert "access denied" not in result.output + result.stderr
        assert result.exit_code == (1 if line.startswith("health") else 0), line
        latest = group.aws.journal.latest
        assert {f"{one.service}:{one.operation}" for one in latest} == actions, line


def test_init_needs_its_policy_even_if_the_table_exists(
    accounts: Accounts, run: Run
) -> None:
    accounts.enforce("init")
    assert json.loads(run("init", "--json").output)["created"] is False
    accounts.enforce(*READING)
    text = error_text(run("init", "--table", "other"))
    assert "dynamodb:DescribeTable on table other" in text
    assert "dynamodb:CreateTable" not in json.dumps(document("consumer"))


def test_a_viewer_sees_all_streams_and_needs_the_role_of_another_accounts(
    accounts: Accounts, impatient: None, run: Run
) -> None:
    asyncio.run(accounts.consume_once())
    accounts.enforce(*VIEWING, "reader-role")
    role = f"--role={accounts.payments}={accounts.role}"
    options = "--app=app", role, f"--external-id={EXTERNAL_ID}"
    output = run("metrics", "--once", *options).output
    known = [line for line in output.splitlines() if "group_lag_known{" in line]
    assert [line[-4:] for line in known] == [" 1.0"] * 3
    for command in (["status"], ["lag", "--interval=0.5"]):
        result = run(*command, *options)
        assert result.exit_code == 0, result.stderr
        assert "access denied" not in result.output
    # Without --role, the other account's stream can't be read, since the table doesn't
    # contain the role.
    result = run("status", "--app=app", "--json")
    problems = {
        stream["stream_arn"]: stream["lag_problem"]
        for stream in json.loads(result.output)["streams"]
    }
    denied = f"access denied: kinesis:DescribeStreamSummary on {accounts.payments}"
    assert denied in problems.pop(accounts.payments)
    assert set(problems.values()) == {None}


def test_apps_are_listed_with_a_viewers_policy_and_the_right_to_scan(
    accounts: Accounts, run: Run
) -> None:
    asyncio.run(accounts.consume_once("orders"))
    accounts.enforce("viewer", "operator")
    assert [app["app"] for app in report(run("apps", "--json"))["apps"]] == ["app"]
    [scan] = [grant for grant in grants("operator") if "Scan" in grant.action]
    accounts.enforce("viewer", "operator", removed=scan)
    assert "dynamodb:Scan" in error_text(run("apps"))


# --- the doctor ----------------------------------------------------------------------


def test_the_doctor_finds_nothing_with_its_policies_and_names_what_is_missing(
    accounts: Accounts, run: Run
) -> None:
    accounts.enforce(*READING, "operator")
    roles = f"--role=payments={accounts.role}", f"--external-id={EXTERNAL_ID}"
    streams = "orders", "clicks", accounts.payments
    result = run("doctor", *streams, *roles, "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["findings"] == []
    for removed in [*grants("consumer"), *grants("operator")]:
        if removed.action == "sts:AssumeRole":
            continue
        optional = removed.policy == "operator"
        accounts.enforce("consumer", "operator", removed=removed)
        result = run("doctor", "orders", "--json")
        [finding] = [
            finding
            for finding in json.loads(result.output)["findings"]
            if "couldn't be tested" not in finding["text"]
        ]
        assert removed.action in finding["subject"]
        assert finding["severity"] == ("note" if optional else "critical")
        assert result.exit_code == (0 if optional else 4)


def test_the_doctor_proves_the_right_to_put_without_a_put(
    accounts: Accounts, run: Run
) -> None:
    accounts.enforce("consumer", "operator", "producer")
    assert report(run("doctor", "orders", "--probe=put", "--json"))["findings"] == []
    [put] = [grant for grant in grants("producer") if "PutRecords" in grant.action]
    accounts.enforce("consumer", "operator", "producer", removed=put)
    found = report(run("doctor", "orders", "--probe=put", "--json"), 4)["findings"]
    [subject] = [finding["subject"] for finding in found]
    assert subject == f"kinesis:PutRecords on {accounts.orders}"
    stream = accounts.aws._state.kinesis.streams[accounts.orders]
    assert not any(len(shard.log) for shard in stream.shards.values())


async def test_the_doctor_proves_the_right_to_subscribe_without_a_subscription(
    accounts: Accounts, run: Run
) -> None:
    accounts.enforce("consumer", *FAN_OUT, "fan-out-operator", "operator")
    options = "--app=app", "--interval=1", "--probe=fan-out", "--json"
    accounts.put(1)
    stream = Stream("orders", fan_out="billing")
    async with Kinesumer("app", table=STATE_STORE, client_id="one") as one:
        async for _ in one.consume(stream, start=Start.TRIM_HORIZON):
            break
        found = await asyncio.to_thread(run, "doctor", *options)
        assert "SubscribeToShard" not in found.output
        counts = accounts.aws.journal.counts()
        dry = [c.operation for c in counts if c.error == "DryRunOperationException"]
        assert sorted(set(dry)) == ["GetRecords", "SubscribeToShard"]
        accounts.aws.deny("kinesis:SubscribeToShard", caller="*:user/*")
        found = await asyncio.to_thread(run, "doctor", *options)
        assert f"kinesis:SubscribeToShard on {accounts.orders}" in found.output


# --- a move from a KCL fleet, and back -----------------------------------------------

SHARDS = ("shardId-000000000000", "shardId-000000000001")
KCL = ("kcl", LEASES, "--app=a", "--stream=orders", "--look=0", "--yes")


def test_a_kcl_fleet_is_imported_and_exported_with_exactly_its_policies(
    accounts: Accounts, run: Run
) -> None:
    leases = [lease_table.lease(key, "TRIM_HORIZON") for key in SHARDS]
    lease_table.create(accounts.aws, *leases)
    accounts.enforce(*READING, "kcl-migration")
    for command in (["import", *KCL], ["distribution", "--kcl", LEASES]):
        assert run(*command).exit_code == 0
    # Delete a lease, so that the export has to create one.
    lease_table.delete(accounts.aws, SHARDS[1])
    for removed in grants("kcl-migration"):
        accounts.enforce(*READING, "kcl-migration", removed=removed)
        text = error_text(run("export", *KCL))
        assert f"{removed.action} on table {LEASES}" in text
    accounts.enforce(*READING, "kcl-migration")
    accounts.aws.split("orders", SHARDS[0])
    result = run("export", *KCL)
    assert result.exit_code == 0, result.stderr


# --- the dashboard -------------------------------------------------------------------


async def problems_shown() -> str:
    """Wait until the lags were read; return the problems that the page shows."""
    clock = SystemClock()
    async with connect(STATE_STORE, None) as (clients, store):
        fleet = StoreFleetSource("app", clients, store, Roles())
        poller = Poller(DashboardInfo("app", STATE_STORE), fleet, clock)
        polling = asyncio.create_task(poller.run())
        states = poller.states()
        async for text in states:
            state = json.loads(text)
            streams = state["report"]["streams"]
            problems = [state["trouble"], *(s["lag_problem"] for s in streams)]
            lags = [s["millis_behind_latest"] for s in streams]
            if any(problems) or None not in lags:
                break
        await states.aclose()
        polling.cancel()
        await asyncio.wait({polling})
        return " ".join(filter(None, problems))


async def test_the_dashboard_shows_all_to_a_viewer_and_names_what_is_missing(
    accounts: Accounts, impatient: None
) -> None:
    await accounts.consume_once("orders")
    for removed in [None, *grants(*VIEWING)]:
        if removed and removed.action not in LAG - {"dynamodb:DescribeTable"}:
            continue
        accounts.enforce(*VIEWING, removed=removed)
        problems = await problems_shown()
        assert removed.action in problems if removed else problems == ""


async def test_records_on_the_dashboard_need_what_a_viewer_may(
    accounts: Accounts, impatient: None
) -> None:
    await accounts.consume_once("orders")
    request = RecordsRequest("orders", "shardId-000000000000")
    async with connect(STATE_STORE, None) as (clients, store):
        records = RecordBrowser("app", clients, store, Roles())
        accounts.enforce(*VIEWING)
        answer = await records.find(request)
        assert answer["scanned"] == len(answer["records"])
        for action in ("GetRecords", "GetShardIterator", "ListShards"):
            found = (g for g in grants(*VIEWING) if g.action.endswith(action))
            accounts.enforce(*VIEWING, removed=next(found))
            with pytest.raises(AccessDeniedError, match=action):
                await records.find(request)


async def test_changes_from_the_dashboard_need_what_a_consumer_may(
    accounts: Accounts, impatient: None
) -> None:
    await accounts.consume_once("orders")
    changes: list[Action] = [Pause(), Seek(to="LATEST"), Resume()]
    async with connect(STATE_STORE, None) as (clients, store):
        actions = ActionHandler("app", clients, store, Roles())
        accounts.enforce(*VIEWING)
        for change in changes:
            with pytest.raises(AccessDeniedError, match="dynamodb:UpdateItem"):
                await actions.apply(change)
        accounts.enforce("consumer")
        for change in changes:
            await actions.apply(change)
