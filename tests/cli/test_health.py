"""``kinesumer health``: exit status, text and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.conftest import words

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from kinesumer.local import EmbeddedAws
    from tests.cli.conftest import Process, Run

ONE = ("--app", "billing", "--client-id", "one")


def test_a_client_that_consumes_is_alive_and_ready(
    aws: EmbeddedAws,
    run: Run,
    start: Callable[..., Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aws.create_table()
    aws.create_stream("orders", shards=1)
    before = len(aws.journal.latest)
    assert run("health", *ONE).exit_code == 1
    # It reads one row: no listing, no look at the table or at Kinesis.
    assert [e.operation for e in list(aws.journal.latest)[before:]] == ["GetItem"]
    monkeypatch.setenv("KINESUMER_APP", "billing")
    monkeypatch.setenv("KINESUMER_CLIENT_ID", "one")
    process = start("consume", "orders")
    while (result := run("health", "--ready")).exit_code:
        assert process.poll() is None
    assert result.stdout == (
        "one of billing: alive, ready: it beats, and has its part of the plan\n"
    )
    result = run("health", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        {
            "app": "billing",
            "client_id": "one",
            "alive": True,
            "ready": True,
            "state": "up",
            "why": "it beats, and has its part of the plan",
        },
    )


def test_a_state_store_that_does_not_answer_kills_nobody(
    aws: EmbeddedAws, run: Run
) -> None:
    aws.create_table()
    aws.fault("error", service="dynamodb")
    result = run("health", *ONE)
    assert result.exit_code == 0
    assert result.stdout.startswith("one of billing: unknown: the state store didn't")
    result = run("health", *ONE, "--ready", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["alive"] is None


def test_a_table_that_is_not_there_is_an_error(aws: EmbeddedAws, run: Run) -> None:
    result = run("health", *ONE)
    assert result.exit_code == 1
    assert "kinesumer init" in words(result)


def test_no_client_id_is_wrong_use(run: Run) -> None:
    assert run("health", "--app", "billing").exit_code == 2
