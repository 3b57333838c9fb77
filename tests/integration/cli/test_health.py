"""``kinesumer health``: exit status, text and JSON.

The recipes' tests under ``tests/integration/examples`` run it beside real clients.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.integration.cli.conftest import error_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Run

ONE = ("--app", "billing", "--client-id", "one")
TABLE = "kinesumer-state-store"


@contextmanager
def beating(aws: EmbeddedAws) -> Iterator[None]:
    """Write heartbeats of client one while the block runs."""
    over = threading.Event()

    def beat() -> None:
        number = 0
        while not over.wait(0.01):
            number += 1
            row = {
                "pk": {"S": "member#billing"},
                "sk": {"S": "one"},
                "session": {"S": "s1"},
                "incarnation": {"N": "0"},
                "beat": {"N": str(number)},
                "lease_ms": {"N": "800"},
                "range": {"S": ""},
            }
            request = {"TableName": TABLE, "Item": row}
            aws.dynamodb("PutItem", json.dumps(request).encode())

    thread = threading.Thread(target=beat)
    thread.start()
    yield
    over.set()
    thread.join()


def test_a_client_with_heartbeats_is_alive_and_ready(
    aws: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.create_table()
    before = len(aws.journal.latest)
    assert run("health", *ONE).exit_code == 1
    # It reads one row: no listing, no look at the table or at Kinesis.
    assert [e.operation for e in list(aws.journal.latest)[before:]] == ["GetItem"]
    monkeypatch.setenv("KINESUMER_APP", "billing")
    monkeypatch.setenv("KINESUMER_CLIENT_ID", "one")
    with beating(aws):
        while run("health").exit_code:
            pass
        result = run("health", "--ready")
        assert (result.exit_code, result.stdout) == (
            0,
            "one of billing: alive, ready: its heartbeat advances, and it has its "
            "part of the plan\n",
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
            "why": "its heartbeat advances, and it has its part of the plan",
        },
    )
    result = run("health")
    assert (result.exit_code, result.stdout) == (
        1,
        "one of billing: dead: no heartbeat for its lease of 0.8 s\n",
    )


@pytest.mark.parametrize("options", [(), ("--ready", "--json")])
def test_health_without_a_state_store_counts_as_alive(
    aws: EmbeddedAws, run: Run, options: tuple[str, ...]
) -> None:
    aws.create_table()
    aws.fault("error", service="dynamodb")
    result = run("health", *ONE, *options)
    if options:
        assert result.exit_code == 1
        assert json.loads(result.stdout)["alive"] is None
    else:
        assert result.exit_code == 0
        assert result.stdout.startswith("one of billing: unknown: the state store")


def test_health_without_a_table_is_an_error(aws: EmbeddedAws, run: Run) -> None:
    result = run("health", *ONE)
    assert result.exit_code == 1
    assert "kinesumer init" in error_text(result)


def test_a_missing_client_id_is_wrong_use(run: Run) -> None:
    assert run("health", "--app", "billing").exit_code == 2
