"""Test ``kinesumer fan-out``, and fan-out in the other commands."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.cli import (
    Run,
    Starter,
    consuming,
    error_text,
    finished,
    report,
)

LIST = ("fan-out", "list", "orders")
REGISTER = ("fan-out", "register", "orders", "billing")
DEREGISTER = ("fan-out", "deregister", "orders", "billing")


def registered(run: Run) -> dict[str, Any]:
    """Return the apps that use each registered consumer, by the consumer's name."""
    consumers = report(run(*LIST, "--json"))["consumers"]
    return {one["name"]: one["apps"] for one in consumers}


def test_a_consumer_is_registered_listed_and_deregistered(
    orders: EmbeddedAws, run: Run
) -> None:
    assert run(*LIST).output.endswith("0 registered consumers\n")
    assert "no terminal to confirm on" in run(*REGISTER).stderr
    shown = run(*REGISTER, "--dry-run").output
    assert "isn't registered. AWS bills a registered consumer" in shown
    assert report(run(*REGISTER, "--dry-run", "--json"))["consumer"] is None
    assert registered(run) == {}
    made = report(run(*REGISTER, "--yes", "--json"))
    assert made["registered"] and made["consumer"]["status"] == "ACTIVE"
    assert "exists and can be used" in run(*REGISTER).output
    assert registered(run) == {"billing": {}}
    row = run(*LIST).output.splitlines()[-1].split()
    assert row[:2] == ["billing", "ACTIVE"] and row[-1] == made["consumer"]["arn"]
    assert "nothing was changed" in run(*DEREGISTER, "--dry-run").output
    assert "no live client in table" in run(*DEREGISTER, "--dry-run").output
    assert registered(run) == {"billing": {}}
    assert "deregistered" in run(*DEREGISTER, "--yes").output
    orders.advance(60)
    assert registered(run) == {}
    assert "isn't registered" in error_text(run(*DEREGISTER, "--yes"))


def test_a_new_consumer_gets_tags(orders: EmbeddedAws, run: Run) -> None:
    assert "must be KEY=VALUE" in error_text(run(*REGISTER, "--yes", "--tag=team"))
    made = report(run(*REGISTER, "--yes", "--json", "--tag=team=a=b", "--tag=x="))
    assert made["registered"]
    [consumer] = orders._state.kinesis.streams[made["stream_arn"]].consumers.values()
    assert consumer.tags == {"team": "a=b", "x": ""}


def test_without_the_table_it_is_unknown_who_uses_a_consumer(
    aws: EmbeddedAws, run: Run
) -> None:
    aws.create_stream("orders")
    run(*REGISTER, "--yes")
    assert registered(run) == {"billing": None}
    assert "! who uses them is unknown: table" in run(*LIST).output
    result = run(*DEREGISTER, "--yes")
    assert "who uses it is unknown" in result.output and result.exit_code == 0


@pytest.mark.process
def test_a_consumer_is_used_as_long_as_a_client_reads_with_it(
    orders: EmbeddedAws, run: Run, start: Starter
) -> None:
    process = consuming(start, "--fan-out", "orders=billing")
    assert registered(run) == {"billing": {"a": 1}}
    assert "app a (1 client)" in run(*LIST).output
    refused = error_text(run(*DEREGISTER, "--yes"))
    assert "is used by app a (1 client)" in refused
    assert "fan-out billing (1 client)" in run("status", "--app=a").output
    doctor = ("doctor", "--app=a", "--interval=1", "--json")
    assert report(run(*doctor))["findings"] == []
    process.terminate()
    finished(process)
    assert registered(run) == {"billing": {}}
    [unused] = [
        f for f in report(run(*doctor), 4)["findings"] if f["check"] == "fan-out"
    ]
    assert "stream consumer billing" in unused["text"]


@pytest.mark.process
def test_a_client_that_may_not_register_polls_only_if_it_is_told_to(
    orders: EmbeddedAws, run: Run, start: Starter
) -> None:
    orders.deny("kinesis:RegisterStreamConsumer")
    process = start("consume", "orders", "--app=a", "--fan-out=billing")
    _, errors = finished(process)
    assert b"access denied: kinesis:RegisterStreamConsumer on" in errors
    consuming(start, "--fan-out=billing", "--fan-out-fallback")
    found = report(run("status", "--app=a", "--json"))
    [use] = found["streams"][0]["fan_out"]
    [polling] = use["polling"]
    assert (use["consumer"], use["clients"]) == ("billing", [])
    assert polling["problem"].startswith("access denied: kinesis:RegisterStreamC")
    assert any("one polls instead of fan-out billing" in p for p in found["problems"])
