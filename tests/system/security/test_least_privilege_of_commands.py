"""What each command needs: with it all works, and without one action it names that.

The embedded AWS enforces the policies that ``schema/README.md`` names for a command.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kinesumer import AccessDeniedError, Kinesumer, Start
from kinesumer.admin.connect import Roles, connect
from kinesumer.dashboard.actions import ActionHandler, Pause, Resume, Seek
from kinesumer.dashboard.poller import Poller, StoreFleetSource
from kinesumer.dashboard.view_model import DashboardInfo
from kinesumer.runtime.clock import SystemClock
from kinesumer.wire.table_definition import STATE_STORE
from tests.system.security.conftest import QUICK, USER, Accounts
from tests.system.security.documents import grants

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer.dashboard.actions import Action
    from tests.integration.cli.conftest import Run

ROW = {"dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query"}
CHANGED = {*ROW, "dynamodb:UpdateItem"}
DELETED = CHANGED - {"dynamodb:GetItem"} | {"dynamodb:DeleteItem"}
LISTED = {"kinesis:DescribeStreamSummary", "kinesis:ListShards"}
READ = {"kinesis:GetShardIterator", "kinesis:GetRecords"}
LAG = {*ROW, *READ, "kinesis:DescribeStreamSummary"}


class Command(NamedTuple):
    """A command line, the policy for it, and the actions that it calls."""

    line: str
    policy: str
    actions: set[str]


COMMANDS = [
    Command("health --app=app --client-id=one", "viewer", {"dynamodb:GetItem"}),
    Command("lag --app=app --interval=0.5", "viewer", LAG),
    Command("distribution --app=app", "viewer", LAG),
    Command("export --app=app -o positions", "viewer", ROW),
    Command("verify --app=app", "viewer", ROW | LISTED),
    Command("tail orders --start=TRIM_HORIZON --limit=1", "viewer", LISTED | READ),
    Command("pause --app=app --all", "consumer", CHANGED),
    Command("resume --app=app --all", "consumer", CHANGED),
    Command(
        "seek --app=app --to=LATEST --yes --all",
        "consumer",
        CHANGED | LISTED | {"kinesis:GetShardIterator"},
    ),
    Command("drain one --app=app --wait=0 --yes", "consumer", CHANGED),
    Command("import positions --app=other --yes", "consumer", CHANGED | LISTED),
    Command("reset --app=other --yes", "consumer", DELETED),
    Command(
        "produce orders lines --aggregate", "producer", LISTED | {"kinesis:PutRecords"}
    ),
]
FIRST = ROW
"""Most commands begin with these, in the same place: asked of one."""


@pytest.fixture
def begun(accounts: Accounts, impatient: None) -> Accounts:
    """Accounts in which a group has read a stream, and with a client that lives."""

    async def once() -> None:
        client = Kinesumer("app", table=STATE_STORE, config=QUICK)
        async with client as one:
            async for _ in one.consume(["orders"], start=Start.TRIM_HORIZON):
                break

    accounts.put(1)
    asyncio.run(once())
    accounts.bury("one", dead=False)
    return accounts


def test_commands_work_with_exactly_their_policies_and_name_what_is_missing(
    begun: Accounts, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("a\n")
    told_of: set[str] = set()
    for line, policy, actions in COMMANDS:
        for action in sorted(actions - (told_of & FIRST)):
            begun.aws.allow()
            begun.enforce({USER: policy})
            begun.aws.deny(action)
            told = run(*line.split())
            text = " ".join((told.output + told.stderr).split())
            assert f"access denied: {action} on" in text, line
            told_of.add(action)
        begun.aws.allow()
        begun.enforce({USER: policy})
        begun.aws.journal.latest.clear()
        told = run(*line.split())
        assert "access denied" not in told.output + told.stderr
        assert told.exit_code == (1 if line.startswith("health") else 0), line
        latest = begun.aws.journal.latest
        assert {f"{one.service}:{one.operation}" for one in latest} == actions, line


# --- the dashboard -------------------------------------------------------------------


async def one_state(accounts: Accounts) -> dict[str, Any]:
    """Return what the page is told at its first look that has the lags."""
    clock = SystemClock()
    async with connect(STATE_STORE, None) as (clients, store):
        fleet = StoreFleetSource("app", clients, store, clock, Roles())
        poller = Poller(DashboardInfo("app", STATE_STORE), fleet, clock)
        looking = asyncio.create_task(poller.run())
        states = poller.states()
        state: dict[str, Any] = json.loads(await anext(states))
        await states.aclose()
        looking.cancel()
        await asyncio.wait({looking})
        return state


async def test_the_dashboard_shows_all_to_a_viewer_and_names_what_is_missing(
    accounts: Accounts, impatient: None
) -> None:
    async with Kinesumer("app", table=STATE_STORE, config=QUICK) as client:
        accounts.put(1)
        async for _ in client.consume(["orders"], start=Start.TRIM_HORIZON):
            break
    for removed in [None, *grants("viewer")]:
        if removed and removed.action not in LAG - {"dynamodb:DescribeTable"}:
            continue
        accounts.aws.allow()
        accounts.enforce({USER: "viewer"}, removed)
        state = await one_state(accounts)
        [stream] = state["streams"] or [{"lag_problem": None}]
        said = f"{state['trouble']} {stream['lag_problem']}"
        assert (removed.action if removed else "None None") in said


async def test_its_changes_need_what_a_consumer_may(
    accounts: Accounts, impatient: None
) -> None:
    async with Kinesumer("app", table=STATE_STORE, config=QUICK) as client:
        accounts.put(1)
        async for _ in client.consume(["orders"], start=Start.TRIM_HORIZON):
            break
    changes: list[Action] = [Pause(), Seek(to="LATEST"), Resume()]
    async with connect(STATE_STORE, None) as (clients, store):
        desk = ActionHandler("app", clients, store, Roles())
        accounts.enforce({USER: "viewer"})
        for change in changes:
            with pytest.raises(AccessDeniedError, match="dynamodb:UpdateItem"):
                await desk.apply(change)
        accounts.aws.allow()
        accounts.enforce({USER: "consumer"})
        for change in changes:
            await desk.apply(change)
