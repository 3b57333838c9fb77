"""Test that an error is one line with the failure, the wrong value and a remedy."""

from __future__ import annotations

import builtins
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kinesumer.ops.cli.main import cli, one_line
from kinesumer.testing import EmbeddedAws
from tests.support.cli import Run, error_text, report
from tests.support.clock import PATIENCE_SECONDS

OTHER = "210987654321"
TABLE = "kinesumer-state-store"
ORDERS = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
ME = "arn:aws:iam::000000000000:user/kinesumer"
THEIRS = f"arn:aws:kinesis:us-east-1:{OTHER}:stream/orders"


def test_init_creates_the_table_and_then_verifies_it(
    aws: EmbeddedAws, run: Run
) -> None:
    first = report(run("init", "--json"))
    assert first == {
        "table": TABLE,
        "region": "us-east-1",
        "table_id": first["table_id"],
        "created": True,
    }
    assert report(run("init", "--json")) == {**first, "created": False}
    assert "exists and can be used" in run("init").output


# --- missing extras -------------------------------------------------------------------


def test_telemetry_without_its_extra_names_the_extra(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(module: str, *arguments: Any, **named: Any) -> Any:
        if module.startswith("opentelemetry.sdk"):
            raise ModuleNotFoundError(name=module)
        return real(module, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    result = run("consume", "s", "--app=a", "--metrics-console")
    assert "pip install 'kinesumer[otel]'" in error_text(result, 2)


@pytest.mark.parametrize("command", ["local", "demo"])
def test_the_embedded_aws_without_its_extra_names_the_extra(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for module in (
        "kinesumer.testing.embedded_aws.server",
        "kinesumer.testing.trial.demo",
    ):
        monkeypatch.setattr(f"{module}.find_spec", lambda _: None)
    assert "pip install 'kinesumer[local]'" in error_text(run(command), 2)


# --- streams, tables and permissions --------------------------------------------------


MISSING = [
    (
        "status --app=a --table=nowhere",
        "table nowhere doesn't exist in this account, us-east-1; check both, or create "
        "it with: kinesumer init --table nowhere",
    ),
    ("consume orders --app=a --table=nowhere", "table nowhere doesn't exist"),
    ("metrics --app=a --once --table=nowhere", "table nowhere doesn't exist"),
    (
        "consume nowhere --app=a",
        "No stream 'nowhere' in account 000000000000, us-east-1. Check the name, the "
        "region and the credentials.",
    ),
    (
        "consume ordrs --app=a",
        "No stream 'ordrs' in account 000000000000, us-east-1. Did you mean 'orders'?",
    ),
    (
        "produce orders --region=eu-west-1",
        "No stream 'orders' in account 000000000000, eu-west-1. It has no streams "
        "there: check the region and the credentials.",
    ),
    (
        f"tail {ORDERS.replace('us-east-1', 'eu-west-1')}",
        "No stream 'orders' in account 000000000000, eu-west-1. Check the name, the "
        "account and the region in its ARN.",
    ),
    *(
        (f"{command} --app=nobody", f"table {TABLE} knows no app 'nobody'")
        for command in (
            *("status", "status --watch", "lag", "export"),
            "doctor --interval=1",
        )
    ),
    ("distribution --app=nobody", "the state store knows no app 'nobody'"),
    (
        f"consume {THEIRS} --app=a",
        f"access denied: kinesis:DescribeStreamSummary on {THEIRS}",
    ),
    (
        f"consume {THEIRS} --app=a --role=ROLE --external-id=wrong",
        f"access denied: sts:AssumeRole on ROLE: {ME} is not authorized because "
        "no identity-based policy allows the sts:AssumeRole action; check the given "
        "external id",
    ),
    (
        f"consume {THEIRS} --app=a --role=ROLE",
        f"access denied: sts:AssumeRole on ROLE: {ME} is not authorized because "
        "no identity-based policy allows the sts:AssumeRole action; no external id "
        "was given",
    ),
]


def test_a_missing_resource_is_named(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    aws.create_stream("orders")
    aws.create_stream("orders", account=OTHER)
    role = aws.create_role("reader", account=OTHER, external_id="right").arn
    for arguments, error in MISSING:
        result = run(*arguments.replace("ROLE", role).split())
        expected = f"error: {error.replace('ROLE', role)}"
        assert error_text(result, 1).startswith(expected)


def test_a_table_that_cannot_be_a_state_store(aws: EmbeddedAws, run: Run) -> None:
    keys = {"id": "HASH", "at": "RANGE"}
    request: dict[str, Any] = {
        "TableName": "other",
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": key, "AttributeType": "S"} for key in keys
        ],
        "KeySchema": [
            {"AttributeName": k, "KeyType": kind} for k, kind in keys.items()
        ],
    }
    aws.dynamodb("CreateTable", json.dumps(request).encode())
    error = "table other can't be a state store: its keys are id / at, not pk / sk"
    advice = "to consume this table's stream, name it table/other"
    for command in ("init", "status --app=a"):
        text = error_text(run(*command.split(), "--table=other"), 1)
        assert error in text
        assert advice not in text
    view = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    update = {"TableName": "other", "StreamSpecification": view}
    aws.dynamodb("UpdateTable", json.dumps(update).encode())
    assert advice in error_text(run("status", "--app=a", "--table=other"), 1)


def test_missing_credentials_and_a_missing_region(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        result = run("consume", "s", "--app=a")
        assert "no AWS credentials: set AWS_ACCESS_KEY_ID" in error_text(result, 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    assert "no AWS region" in error_text(run("status", "--app=a"), 1)


def test_a_stream_named_twice(orders: EmbeddedAws, run: Run) -> None:
    result = run("consume", "orders", ORDERS, "--app", "a")
    assert f"error: stream {ORDERS} is named twice" in error_text(result, 2)


@pytest.mark.parametrize(
    ("command", "call", "is_silent"),
    [
        ("status --app=a", f"dynamodb:DescribeTable on table {TABLE}", False),
        ("metrics --app=a --once", "dynamodb:DescribeTable on table", False),
        ("tail orders", "kinesis:DescribeStreamSummary on orders", False),
        ("status --app=a", f"dynamodb:DescribeTable on table {TABLE}", True),
    ],
)
def test_a_service_that_cannot_be_reached_is_named_with_its_endpoint(
    aws: EmbeddedAws,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    call: str,
    is_silent: bool,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        if not is_silent:
            silent.close()
        result = run(*command.split())
    error = error_text(result, 1)
    assert error.startswith(f"error: {call}")
    assert url in error
    assert error.endswith("; check the endpoint, the region and the network")
    assert "TimeoutError: " not in error.replace("ReadTimeoutError", "")


def test_a_seek_into_the_future_says_both_times(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    future = (datetime.now(UTC) + timedelta(days=35)).replace(microsecond=0)
    result = run("seek", "--app=a", "--all", "--yes", "--to", future.isoformat())
    error = error_text(result, 2)
    assert f"the start {future:%Y-%m-%dT%H:%M:%SZ} is in the future" in error
    assert "because Kinesis's time is 2" in error


# --- output ---------------------------------------------------------------------------


# The status that a shell reports for `cat` or `ls` in this case.
CLOSED_PIPE = 128 + signal.SIGPIPE


def test_a_print_into_a_closed_pipe_ends_the_command_quietly(
    stopped_app: EmbeddedAws,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for arguments in (
        "export --app=a",
        "status --app=a",
        "lag --app=a --interval=0.5 --json",
        "metrics --app=a --once",
        "doctor --app=a --interval=1",
        "init",
        "local",
    ):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w") as stdout:
            with monkeypatch.context() as patched, pytest.raises(SystemExit) as ended:
                patched.setattr("sys.stdout", stdout)
                cli.main(arguments.split())
        assert (ended.value.code, capfd.readouterr().err) == (CLOSED_PIPE, ""), (
            arguments
        )


def test_a_full_disk_is_not_a_defect_to_report() -> None:
    text = one_line(OSError(errno.ENOSPC, "No space left on device"))
    assert text == "can't write output: No space left on device; check the disk"
    text = one_line(RuntimeError("two\nlines"))
    assert text.startswith("unexpected RuntimeError: two lines; run")
    assert "please report it" in text


# --- a handler that fails on every record ---------------------------------------------

PROGRAM = """
import asyncio
from kinesumer import Kinesumer, Record, RetryPolicy, Start
from tests.support.clock import PATIENCE_SECONDS

class PaymentError(Exception):
    pass

async def handle(record: Record):
    raise PaymentError("a secret")

async def main():
    async with Kinesumer("a", client_id="one") as client:
        await client.run(
            "orders", handle, start=Start.TRIM_HORIZON, dead_letters="file:letters",
            retries=RetryPolicy(max_attempts=1),
        )

asyncio.run(main())
"""


def statuses(run: Run) -> Iterator[Any]:
    """Yield reports of ``status`` once the app has rows, until the time is over."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        result = run("status", "--app=a", "--json")
        if result.exit_code == 0:
            yield report(result)
        time.sleep(0.5)


def test_every_report_shows_a_handler_that_fails_on_every_record(
    aws: EmbeddedAws, run: Run, tmp_path: Path
) -> None:
    aws.create_table()
    aws.create_stream("orders")
    for number in range(50):
        aws.put("orders", b"a secret", f"{number}")
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            found = next(
                failures
                for status in statuses(run)
                for stream in status["streams"]
                if (failures := stream["failures"]) and failures["dead_letters"] == 50
            )
            assert (found["calls"], found["failed_calls"]) == (50, 50)
            assert found["clients"] == ["one"]
            assert found["last_error"]["type"] == "PaymentError"
            text = run("status", "--app=a").output
            assert "100 % of 50 calls fail, 50 dead letters" in " ".join(text.split())
            doctor = run("doctor", "--app=a", "--json", "--interval=1")
            shown = report(doctor, 4)["findings"]
            assert "failures" in [finding["check"] for finding in shown]
            metrics = run("metrics", "--app=a", "--once").output
            assert "kinesumer_group_dead_letters{" in metrics
            assert not any("secret" in one for one in (text, doctor.output, metrics))
        finally:
            process.kill()
