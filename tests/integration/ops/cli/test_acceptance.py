"""Test the acceptance run on emulators, as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws, background
from kinesumer.testing.trial.acceptance.account import PREFIX, policy
from kinesumer.testing.trial.acceptance.run import (
    CLIENTS,
    CONSUMERS,
    STORE,
    STREAMS,
    TABLES,
)
from tests.support import servers
from tests.support.cli import COMMAND, Run
from tests.support.clock import PATIENCE_SECONDS, wait_until
from tests.support.deviations import DEVIATIONS

RUN_SECONDS = 390
OTHER = "210987654321"
EXTERNAL_ID = "agreed-between-two-accounts"
REGION = "us-east-1"
TEST_KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": REGION,
}
NO_SPARK = "--skip=group: a Spark*"


@pytest.fixture
def aws(environment: None) -> Iterator[EmbeddedAws]:
    """Serve an embedded AWS that enforces the limits of the real one."""
    with background(EmbeddedAws(table=None)) as embedded:
        yield embedded


def acceptance(
    variables: dict[str, str], directory: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, "acceptance", "--yes", "--region", REGION, *options],
        env=os.environ | variables | {"TMPDIR": str(directory)},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )


def report(directory: Path) -> Any:
    """Return the report in JSON. Check that there is one in Markdown."""
    [markdown] = directory.glob(f"{PREFIX}-*.md")
    [path] = directory.glob(f"{PREFIX}-*.json")
    found = json.loads(path.read_text())
    assert ("**GOOD" in markdown.read_text()) is found["good"]
    return found


def leftovers(aws: EmbeddedAws) -> list[str]:
    """Return the streams and tables that are still there."""
    streams = [stream.name for stream in aws._state.kinesis.streams.values()]
    tables = aws.dynamodb("ListTables", b"{}")["TableNames"]
    return [name for name in [*streams, *tables] if name.startswith(PREFIX)]


@pytest.mark.process
@pytest.mark.slow
def test_everything_passes_with_exactly_the_printed_policy(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    role = aws.create_role("partner", account=OTHER, external_id=EXTERNAL_ID)
    printed = policy(fan_out=True, tables=True, role_arn=role.arn)
    aws.restrict(printed, "*:user/*")
    of_role = [s for s in printed["Statement"] if s["Sid"] in ("Streams", "Lists")]
    aws.restrict(printed | {"Statement": of_role}, "*:assumed-role/*")

    done = acceptance(
        aws.environment(),
        tmp_path,
        "--fan-out",
        "--tables",
        f"--role-arn={role.arn}",
        f"--external-id={EXTERNAL_ID}",
        NO_SPARK,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = report(tmp_path)
    skipped = {c["reason"] for c in found["checks"] if c["verdict"] == "skipped"}
    assert skipped == {
        "the service's clock can't be advanced",
        "the service's shards can't be rolled over or split on demand",
        "the service deletes expired items within days",
        "by --skip",
    }
    assert found["counts"]["failed"] == 0
    assert OTHER not in json.dumps(found)
    assert leftovers(aws) == []
    # Actions that AWS checks when tags are part of another call, or for --clean only.
    others = {"dynamodb:TagResource", "dynamodb:ListTagsOfResource"}
    others |= {"dynamodb:ListTables", "kinesis:ListTagsForStream"}
    counts = aws.journal.counts()
    # DynamoDB Streams is a service of its own, but not in policies.
    called = {f"{c.service.removesuffix('streams')}:{c.operation}" for c in counts}
    granted = {a for s in printed["Statement"] for a in s["Action"]}
    assert granted - called == others
    denied = [call for call in counts if "AccessDenied" in (call.error or "")]
    assert denied == []


@pytest.mark.process
@pytest.mark.slow
def test_everything_passes_on_another_emulator_but_its_known_deviations(
    environment: None, tmp_path: Path
) -> None:
    skips = [f"--skip={pattern}" for pattern in DEVIATIONS["ministack"]]
    with servers.ministack() as url:
        variables = TEST_KEYS | {"AWS_ENDPOINT_URL": url}
        done = acceptance(variables, tmp_path, NO_SPARK, *skips)
        left = acceptance(variables, tmp_path, "--clean")

    assert done.returncode == 0, done.stdout + done.stderr
    found = report(tmp_path)
    assert found["endpoint"] == "an endpoint that isn't AWS"
    assert found["counts"]["passed"] > found["counts"]["skipped"]
    assert left.stdout == "nothing is left\n"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.spark
def test_a_spark_query_has_each_record_once(aws: EmbeddedAws, tmp_path: Path) -> None:
    parts = STORE, STREAMS, TABLES, CONSUMERS, CLIENTS
    skips = [f"--skip={part}: *" for part in parts]
    done = acceptance(aws.environment(), tmp_path, "--tables", *skips)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {c["name"]: c["verdict"] for c in report(tmp_path)["checks"]}
    assert verdicts["a Spark query has each record once and in order"] == "passed"


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_leaves_nothing_and_a_killed_one_is_cleaned(
    aws: EmbeddedAws, tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "acceptance", "--yes", "--skip=state store: *"],
        env=os.environ | aws.environment(),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        wait_until(lambda: len(leftovers(aws)) > 2)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    aws.create_stream(f"{PREFIX}-without-a-tag")
    assert process.returncode == {2: 130, 15: 143, 9: -9}[number]
    assert b"Traceback" not in errors
    if number == signal.SIGKILL:
        assert len(leftovers(aws)) > 2
        done = acceptance(aws.environment(), tmp_path, "--clean")
        assert done.returncode == 0, done.stderr
        assert "removed" in done.stdout
    assert leftovers(aws) == [f"{PREFIX}-without-a-tag"]


def test_a_run_asks_and_creates_nothing_without_an_answer(
    aws: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    result = run("acceptance")
    assert result.exit_code == 2
    assert "no terminal to confirm on; pass --yes" in result.stderr
    assert "costs at most $0." in result.stderr
    assert leftovers(aws) == []


def test_the_policy_is_printed_without_credentials(run: Run) -> None:
    printed = json.loads(run("acceptance", "--policy").output)
    assert printed == policy()
