"""A client takes over the table, app and positions of Kinesumer for Go."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.wire.table_definition import STATE_STORE
from tests.integration.cli.conftest import finished, lines
from tests.unit.migration import go_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process

P, LOW, HIGH = (f"shardId-00000000000{number}" for number in range(3))
MINUTES_AGO = 600.0
CONSUME = ("consume", "orders", "--app=billing")

pytestmark = pytest.mark.process


def leave(aws: EmbeddedAws, *rows: dict[str, Any]) -> None:
    for row in rows:
        request = {"TableName": STATE_STORE, "Item": row}
        aws.dynamodb("PutItem", json.dumps(request).encode())


@pytest.fixture
def table(aws: EmbeddedAws) -> EmbeddedAws:
    """Create the table and the stream that Go clients used."""
    aws.create_table()
    aws.create_stream("orders")
    return aws


def test_a_client_continues_from_a_stopped_go_fleet(
    table: EmbeddedAws, start: Callable[..., Process]
) -> None:
    numbers = [table.put("orders", text.encode())[1] for text in "abc"]
    table.split("orders", P)
    then = time.time() - MINUTES_AGO
    first = table.put("orders", b"d", explicit_hash_key=0)[1]
    leave(
        table,
        go_rows.client("billing", "host-7kQxZt", then),
        go_rows.shard_cache("billing", "orders", LOW, HIGH),
        # Go left what the parent still held, and began with the child's newest.
        go_rows.checkpoint("billing", "orders", P, numbers[1], then),
        go_rows.checkpoint("billing", "orders", LOW, first, then),
        go_rows.checkpoint("another", "orders", HIGH, "9", then),
    )
    table.put("orders", b"e", explicit_hash_key=0)
    table.put("orders", b"f", explicit_hash_key=1 << 127)
    process = start(*CONSUME, "--start=LATEST")
    found = [json.loads(line) for line in lines(process, 3)]
    assert found[0]["data"] == "c"
    assert {record["data"] for record in found} == {"c", "e", "f"}


def test_a_live_go_fleet_is_refused_and_named(
    table: EmbeddedAws, start: Callable[..., Process]
) -> None:
    row = go_rows.client("billing", "host-7kQxZt", time.time())
    leave(table, row, go_rows.shard_cache("billing", "orders", P))
    process = start(*CONSUME)
    _, errors = finished(process)
    assert process.returncode == 1
    assert b"clients of Kinesumer for Go are alive under app 'billing'" in errors
    assert b"host-7kQxZt; stop them, wait a minute and start again" in errors
