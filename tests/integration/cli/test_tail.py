"""``kinesumer tail`` against the embedded AWS."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.integration.cli.conftest import finished, lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process, Run

pytestmark = pytest.mark.process
BEGIN = "--start=TRIM_HORIZON"


@pytest.fixture
def orders(aws: EmbeddedAws) -> EmbeddedAws:
    """Create a stream of two shards with ten records, and no table."""
    aws.create_stream("orders", 2)
    for number in range(10):
        aws.put("orders", b"order %d" % number, f"customer {number}")
    return aws


def test_tail_prints_like_consume(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    process = start("tail", "orders", BEGIN, "--limit=10")
    output, errors = finished(process)
    assert (process.returncode, errors) == (0, b"")
    records = [json.loads(line) for line in output.splitlines()]
    assert {r["data"] for r in records} == {f"order {n}" for n in range(10)}
    assert {(r["stream"], r["epoch"]) for r in records} == {("orders", 0)}


def test_a_limit_within_a_page(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    process = start("tail", "orders", BEGIN, "--limit=3", "--output=text")
    assert len(finished(process)[0].splitlines()) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_tail_with_status_0(
    orders: EmbeddedAws, start: Callable[..., Process], number: signal.Signals
) -> None:
    process = start("tail", "orders", BEGIN, "--output=count")
    assert b" records, " in lines(process, 1)[0]
    process.send_signal(number)
    output, errors = finished(process)
    assert (process.returncode, errors) == (0, b"")
    assert output.splitlines()[-1].startswith(b"10 records in ")


def test_tail_ends_after_its_seconds(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    process = start("tail", "orders", "--seconds=0.5")
    assert finished(process) == (b"", b"")
    assert process.returncode == 0


def test_tail_follows_a_split_with_a_role(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    account = "210987654321"
    arn = orders.create_stream("payments", account=account)
    role = orders.create_role("reader", account=account, external_id="agreed")
    orders.put(arn, b"before", "key")
    process = start(
        "tail",
        arn,
        f"--role=payments={role.arn}",
        "--external-id=agreed",
        "--output=text",
        BEGIN,
    )
    assert lines(process, 1) == [b"before\n"]
    orders.split(arn, orders.open_shards(arn)[0])
    orders.put(arn, b"after", "key")
    assert lines(process, 1) == [b"after\n"]


def test_consume_takes_a_role_for_each_stream(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    account = "210987654321"
    orders.create_table()
    arn = orders.create_stream("payments", account=account)
    role = orders.create_role("reader", account=account, external_id="agreed")
    orders.put(arn, b"theirs", "key")
    process = start(
        "consume",
        "orders",
        arn,
        "--app=a",
        f"--role=payments={role.arn}",
        "--external-id=agreed",
        "--output=text",
        BEGIN,
    )
    found = lines(process, 11)
    assert found.count(b"theirs\n") == 1
    process.terminate()
    finished(process)


def test_a_closed_pipe_ends_the_command_quietly(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    process = start("tail", "orders", BEGIN, "--output=text")
    lines(process, 1)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_an_unreadable_stream_is_one_line(orders: EmbeddedAws, run: Run) -> None:
    missing = run("tail", "nothing")
    assert missing.exit_code == 1
    assert "stream nothing doesn't exist" in missing.stderr
    assert run("tail", "orders", "--start=yesterday").exit_code == 2
    orders.deny("kinesis:GetRecords")
    denied = run("tail", "orders")
    assert denied.exit_code == 1
    assert "access denied: kinesis:GetRecords" in denied.stderr
