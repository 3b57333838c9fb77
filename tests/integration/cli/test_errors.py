"""Each error is one line: what failed, the value, and what to do."""

from __future__ import annotations

import errno
import json
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.cli.main import one_line
from tests.integration.cli.conftest import error_text, finished, lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process, Run

OTHER = "210987654321"


def test_consume_without_a_table(aws: EmbeddedAws, run: Run) -> None:
    aws.create_stream("orders")
    result = run("consume", "orders", "--app", "a")
    assert result.exit_code == 1
    assert error_text(result) == (
        "error: table kinesumer-state-store doesn't exist in this account and region; "
        "check them, or create it with: kinesumer init --table kinesumer-state-store"
    )


def test_status_without_a_table(aws: EmbeddedAws, run: Run) -> None:
    result = run("status", "--app", "a", "--table", "nowhere")
    assert result.exit_code == 1
    assert "table nowhere doesn't exist" in error_text(result)


def test_a_table_with_other_keys(aws: EmbeddedAws, run: Run) -> None:
    create(aws, keys=("id", "at"))
    result = run("init", "--table", "other")
    assert result.exit_code == 1
    assert "its keys are id / at, not pk / sk" in error_text(result)


def test_a_table_without_the_index(aws: EmbeddedAws, run: Run) -> None:
    create(aws, keys=("pk", "sk"))
    aws.create_stream("orders")
    for command in (
        ["init"],
        ["status", "--app", "a"],
        ["consume", "orders", "--app=a"],
    ):
        result = run(*command, "--table", "other")
        assert result.exit_code == 1
        assert (
            "table other can't be a state store: it has no local secondary index "
            "index-client-key-last-update" in error_text(result)
        )


def test_an_unknown_stream(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    result = run("consume", "nowhere", "--app", "a")
    assert result.exit_code == 1
    assert error_text(result) == (
        "error: stream nowhere doesn't exist; check its name, account and region"
    )


def test_access_denied_on_the_stream(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    arn = aws.create_stream("orders")
    aws.deny("kinesis:DescribeStreamSummary")
    result = run("consume", arn, "--app", "a")
    assert result.exit_code == 1
    assert f"access denied: kinesis:DescribeStreamSummary on {arn}" in error_text(
        result
    )


def test_access_denied_on_the_table(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    aws.create_stream("orders")
    aws.deny("dynamodb:*")
    for command in (
        ["consume", "orders", "--app", "a"],
        ["status", "--app", "a"],
        ["init"],
    ):
        result = run(*command)
        assert result.exit_code == 1
        assert (
            "access denied: dynamodb:DescribeTable on table kinesumer-state-store"
            in error_text(result)
        )


def test_access_denied_on_the_role(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    arn = aws.create_stream("orders", account=OTHER)
    role = aws.create_role("reader", account=OTHER, external_id="right")
    command = ["consume", arn, "--app", "a", "--role", role.arn]
    result = run(*command, "--external-id", "wrong")
    assert result.exit_code == 1
    assert f"access denied: sts:AssumeRole on {role.arn}" in error_text(result)


def test_a_stream_of_another_account_without_its_role(
    aws: EmbeddedAws, run: Run
) -> None:
    aws.create_table()
    arn = aws.create_stream("orders", account=OTHER)
    result = run("consume", arn, "--app", "a")
    assert result.exit_code == 1
    assert f"access denied: kinesis:DescribeStreamSummary on {arn}" in error_text(
        result
    )


@pytest.mark.parametrize("command", [["init"], ["status", "--app=a"]])
def test_no_credentials(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    result = run(*command)
    assert result.exit_code == 1
    assert "no AWS credentials: set AWS_ACCESS_KEY_ID" in error_text(result)


@pytest.mark.parametrize("command", [["init"], ["consume", "orders", "--app=a"]])
def test_no_region(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    result = run(*command)
    assert result.exit_code == 1
    assert "no AWS region" in error_text(result)


def test_a_stream_named_twice(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    arn = aws.create_stream("orders")
    result = run("consume", "orders", arn, "--app", "a")
    assert result.exit_code == 2
    assert error_text(result) == f"error: stream {arn} is named twice"


def test_a_start_in_the_future(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    aws.create_stream("orders")
    moment = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    result = run("consume", "orders", "--app", "a", "--start", moment)
    assert result.exit_code == 2
    assert "stream orders: start lies 3" in error_text(result)
    assert "in the future" in error_text(result)


def test_an_unknown_app(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    result = run("status", "--app", "nobody")
    assert result.exit_code == 1
    assert "table kinesumer-state-store knows no app 'nobody'" in error_text(result)


def test_two_processes_with_one_client_id(
    aws: EmbeddedAws, run: Run, start: Callable[..., Process]
) -> None:
    command = consuming(aws)
    lines(start(*command, "--client-id=pod-0"), 1)
    result = run(*command, "--client-id=pod-0")
    assert result.exit_code == 1
    assert "client id 'pod-0' of app 'a' is in use" in result.stderr


def test_live_go_clients_of_the_same_app(aws: EmbeddedAws, run: Run) -> None:
    command = consuming(aws)
    item = {
        "pk": {"S": "client#a"},
        "sk": {"S": "a client in Go"},
        "last_update": {"S": datetime.now(UTC).isoformat()},
    }
    request = {"TableName": "kinesumer-state-store", "Item": item}
    aws.dynamodb("PutItem", json.dumps(request).encode())
    result = run(*command)
    assert result.exit_code == 1
    assert "clients of Kinesumer for Go are alive under app 'a'" in error_text(result)


def test_a_recreated_stream(
    aws: EmbeddedAws, run: Run, start: Callable[..., Process]
) -> None:
    command = consuming(aws)
    process = start(*command)
    lines(process, 1)
    process.send_signal(signal.SIGTERM)
    finished(process)
    aws.delete_stream("orders")
    aws.advance(10)
    aws.create_stream("orders")
    result = run(*command)
    assert result.exit_code == 1
    assert "created again" in result.stderr.splitlines()[-1]


def test_a_start_older_than_retention_is_a_warning(
    aws: EmbeddedAws, start: Callable[..., Process]
) -> None:
    command = consuming(aws)[:-1]
    process = start(*command, "--start=2020-01-01T00:00:00Z")
    lines(process, 1)
    process.send_signal(signal.SIGTERM)
    _, errors = finished(process)
    assert process.returncode == 0
    assert b"start is older than the retention of 24 h" in errors


def consuming(aws: EmbeddedAws) -> list[str]:
    """Create a table and a stream with a record; return the command to consume it."""
    aws.create_table()
    aws.create_stream("orders")
    aws.put("orders", b"x")
    return ["consume", "orders", "--app=a", "--output=text", "--start=TRIM_HORIZON"]


def create(aws: EmbeddedAws, keys: tuple[str, str]) -> None:
    request: dict[str, Any] = {
        "TableName": "other",
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": key, "AttributeType": "S"} for key in keys
        ],
        "KeySchema": [
            {"AttributeName": keys[0], "KeyType": "HASH"},
            {"AttributeName": keys[1], "KeyType": "RANGE"},
        ],
    }
    aws.dynamodb("CreateTable", json.dumps(request).encode())


def test_a_full_disk_is_not_a_defect_to_report() -> None:
    text = one_line(OSError(errno.ENOSPC, "No space left on device"))
    assert text == "can't write output: No space left on device; check the disk"
    assert "please report it" in one_line(OSError(errno.EBADF, "Bad descriptor"))
