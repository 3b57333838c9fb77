"""Test that commands, pages, metrics, dead letters and watchdogs show no secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from kinesumer import Kinesumer, Record, RetryPolicy, Start, blocking
from kinesumer.config import STATE_STORE
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.handlers.dead_letters.targets import check_target
from kinesumer.ops.dashboard.actions import ActionHandler
from kinesumer.ops.dashboard.model import DashboardInfo
from kinesumer.ops.dashboard.poller import Poller, StoreFleetSource
from kinesumer.ops.dashboard.records import RecordBrowser
from kinesumer.ops.dashboard.server import (
    TOKEN_HEADER,
    Guard,
    Server,
    listen,
    page_files,
    serving,
)
from kinesumer.ops.group.connect import connect, parse_roles
from kinesumer.runtime.clock import SystemClock
from kinesumer.testing.embedded_aws.identity import Credentials
from tests.support.cli import Run
from tests.system.security.conftest import EXTERNAL_ID, QUICK, Accounts
from tests.system.security.evidence import Evidence
from tests.system.security.test_secrets import evidence, keys, secrets, stored  # noqa: F401

# ruff: noqa: F811  fixtures are imported
LOUD = "--debug", "--log-level", "DEBUG"
WITHOUT_ROLES = (
    "health --app=app --client-id=one --json",
    "export --app=app",
    "pause --app=app --all --json",
    "resume --app=app --all",
    "dlq list {letters} --json",
)
WITH_ROLES = (
    "status --app=app",
    "lag --app=app --interval=0.5",
    "distribution --app=app --json",
    "metrics --app=app --once",
    "verify --app=app",
    "doctor {payments} --json",
    "seek --app=app --all --to=LATEST --yes",
    "tail {payments} --limit=1 --start=TRIM_HORIZON",
    "produce {payments} lines",
    "dlq redrive {letters} --all --yes",
)


async def handle_until(accounts: Accounts, letters: Path, evidence: Evidence) -> None:
    """Let a handler fail and hang until the watchdog acts, then deny all calls."""
    hung, reported = asyncio.Event(), asyncio.Event()

    async def handle(record: Record) -> None:
        if record.data == b"2":
            hung.set()
            await reported.wait()
        raise ValueError(f"{client!r} {record!r} {accounts.streams!r}")

    config = replace(QUICK, max_processing_seconds=0.3)
    client = Kinesumer("app", table=STATE_STORE, config=config)
    accounts.put(3)
    with pytest.raises(KinesumerError) as raised:
        async with client:
            running = asyncio.create_task(
                client.run(
                    accounts.streams,
                    handle,
                    start=Start.TRIM_HORIZON,
                    retries=RetryPolicy(max_attempts=1),
                    dead_letters=f"file:{letters}",
                )
            )
            async with asyncio.timeout(30):
                await hung.wait()
                while not any(b"at:\n" in text for text in evidence.texts("logs")):
                    await asyncio.sleep(0.05)
            reported.set()
            evidence.add_objects(client)
            accounts.aws.deny("*")
            await running
    evidence.add_error(raised.value)


async def test_handlers_that_fail_and_hang_keep_their_clients_secrets(
    accounts: Accounts,
    keys: Credentials,
    evidence: Evidence,
    impatient: None,
    tmp_path: Path,
) -> None:
    letters = tmp_path / "letters"
    await handle_until(accounts, letters, evidence)
    assert letters.stat().st_mode & 0o077 == 0
    evidence.add("letters", letters.read_bytes())
    evidence.add("table", stored(accounts))
    evidence.add_telemetry()
    assert {"logs", "errors", "reprs", "letters", "spans"} <= evidence.places
    assert not evidence.leaks(secrets(accounts))


def test_a_client_without_asyncio_keeps_its_secrets(
    accounts: Accounts, keys: Credentials, evidence: Evidence, impatient: None
) -> None:
    accounts.put(1)
    with (
        pytest.raises(KinesumerError) as raised,
        blocking.Kinesumer("app", table=STATE_STORE, config=QUICK) as client,
    ):
        records = client.consume(accounts.streams, start=Start.TRIM_HORIZON)
        for _ in records:
            evidence.add_objects(client, records)
            accounts.aws.deny("*")
    evidence.add_error(raised.value)
    evidence.add_objects(client)
    assert not evidence.leaks(secrets(accounts))


# --- commands ------------------------------------------------------------------------


def test_commands_keep_their_secrets(
    accounts: Accounts,
    keys: Credentials,
    evidence: Evidence,
    impatient: None,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("a\n")
    asyncio.run(accounts.consume_once())
    names = {
        "payments": accounts.payments,
        "letters": f"kinesis:{accounts.aws.create_stream('letters')}",
    }
    role = f"--role=payments={accounts.role}", f"--external-id={EXTERNAL_ID}"
    lines = {**dict.fromkeys(WITHOUT_ROLES, ()), **dict.fromkeys(WITH_ROLES, role)}
    faults: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "denied role": lambda: accounts.aws.deny("sts:*"),
        "denied": lambda: accounts.aws.deny("*"),
        "lost answers": lambda: accounts.aws.fault("drop", seconds=0.4),
        "throttled": lambda: accounts.aws.fault("throttle", seconds=0.4),
    }
    for number, (line, options) in enumerate(lines.items()):
        # Each command runs without a fault, and with one of the faults in turn.
        for fault in ("nothing", list(faults)[1 + number % 4]):
            faults[fault]()
            words = line.format(**names).split()
            shown = run(*LOUD, *words, *options)
            evidence.add("commands", shown.output, shown.stderr)
            last = shown.stderr.strip().splitlines()[-1:]
            is_own_error = bool(last) and last[0].startswith("kinesumer.")
            assert "Traceback" not in shown.stderr or is_own_error, (line, fault, last)
            assert "Usage:" not in shown.stderr, line
            accounts.aws.allow()
    assert not evidence.leaks(secrets(accounts))


@pytest.mark.parametrize("kind", ["sqs:", "", "s3:", "kinesis:"])
@pytest.mark.parametrize("mark", ["", "x/", "x#", "x?", "x@"])
def test_a_password_in_a_target_of_letters_is_refused_and_not_repeated(
    environment: None, evidence: Evidence, run: Run, kind: str, mark: str
) -> None:
    target = f"{kind}https://user:{mark}hunter2@127.0.0.1/1/letters"
    for command in (["list", target], ["redrive", target, "--all"]):
        shown = run(*LOUD, "dlq", *command)
        assert "remove them" in shown.stderr
        evidence.add("commands", shown.output, shown.stderr)
    with pytest.raises(ConfigurationError) as raised:
        check_target(target)
    evidence.add_error(raised.value)
    assert not evidence.leaks({"password": "hunter2"})


# --- the dashboard and the metrics ---------------------------------------------------


async def observe_dashboard(accounts: Accounts, evidence: Evidence) -> None:
    """Add all answers of the dashboard, before and after all its calls are denied."""
    clock, roles = (
        SystemClock(),
        parse_roles([f"payments={accounts.role}"], EXTERNAL_ID),
    )
    async with (
        connect(STATE_STORE, None) as (clients, store),
        aiohttp.ClientSession() as http,
    ):
        fleet = StoreFleetSource("app", clients, store, roles)
        poller = Poller(DashboardInfo("app", STATE_STORE, control=True), fleet, clock)
        with listen(0) as opened:
            guard = Guard(opened.getsockname()[1])
            url, _, invitation = guard.link(invites=True).partition("#token=")
            token = guard.exchange(invitation)
            headers = {"Origin": url.rstrip("/"), TOKEN_HEADER: token or ""}
            server = Server(
                poller,
                guard,
                ActionHandler("app", clients, store, roles),
                RecordBrowser("app", clients, store, roles),
            )
            async with serving(server, poller, opened):
                for denied in ([], ["sts:*", "kinesis:*"], ["*"]):
                    for action in denied:
                        accounts.aws.deny(action)
                    poller.wake()
                    states = poller.states()
                    for _ in range(2):
                        poller.wake()
                        evidence.add("states", await anext(states))
                    await states.aclose()
                    seek = {"do": "seek", "to": "LATEST"}
                    wanted = {"stream": "payments", "shard": "shardId-000000000000"}
                    for path, body in (
                        ("preview", seek),
                        ("change", seek),
                        ("records", wanted),
                    ):
                        request = http.post(url + path, json=body, headers=headers)
                        async with request as answer:
                            evidence.add("answers", await answer.read())
                            evidence.add("answers", str(answer.headers))
                for name in ("", *page_files()):
                    async with http.get(url + name) as answer:
                        evidence.add("pages", await answer.read())
        evidence.add_objects(server, poller, clients)
        assert not evidence.leaks({"token": token or "", "invitation": invitation})


def test_the_dashboard_keeps_its_secrets(
    accounts: Accounts, keys: Credentials, evidence: Evidence, impatient: None
) -> None:
    asyncio.run(accounts.consume_once())
    asyncio.run(observe_dashboard(accounts, evidence))
    assert {"states", "answers", "pages"} <= evidence.places
    assert not evidence.leaks(secrets(accounts))
