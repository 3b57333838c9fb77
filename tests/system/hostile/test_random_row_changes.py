"""Test that a client that ends after random changes of rows names a changed row."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.errors import (
    CorruptRowError,
    StateStoreRecreatedError,
    StreamRecreatedError,
)
from kinesumer.model.rows import Key, UnsupportedValue
from tests.support.clients import spread
from tests.support.row_edits import put
from tests.support.world import Client, World, in_virtual_time

VALUES: list[Any] = [
    *(
        UnsupportedValue('{"NULL": true}'),
        UnsupportedValue('{"N": "1.5"}'),
        UnsupportedValue('{"M": {}}'),
    ),
    *("", "text", "1" * 200, "0", "9" * 40, "LATEST", "AT_TIMESTAMP 4e9", "0:0-,0:0-"),
    # Values that claim more than they hold, or hold far more than clients write.
    "0" + " 0:9999" * 500 + "|",
    ",".join(f"0:{2 * n:x}-{2 * n:x}" for n in range(4000)),
    "\n".join(["0:billing a problem"] * 4000),
    "\n".join(["repeated-claim 1 1 0/shardId-0 error"] * 4000),
    "\n".join(["0 1 1 1 1 1 1 Error 1 shardId-0 1"] * 4000),
    *(-1, 0, 1, 7, 10**17, 10**37, True, False),
    *(frozenset({"x"}), frozenset({"a" * 5000})),
]
OPERATOR_ATTRIBUTES = ("paused", "pause_reason", "drained", "notice")
REPORTED_ATTRIBUTES = ("load", "incidents", "failures")
# The errors with which a client may end after a change of its own row, of its group's
# row or of a stream's row.
ENDS = (CorruptRowError, StateStoreRecreatedError, StreamRecreatedError)


def change_row(world: World, chance: random.Random) -> Key:
    """Change or remove one attribute of a random row."""
    row = chance.choice(world.table.snapshot())
    names = sorted(row.keys() - {"pk", "sk"})
    if not names:
        return Key(str(row["pk"]), str(row["sk"]))
    name, changed = chance.choice(names), row.copy()
    if chance.random() < 0.2:
        added = (*OPERATOR_ATTRIBUTES, *REPORTED_ATTRIBUTES)
        changed[chance.choice(added)] = chance.choice(VALUES)
    elif chance.random() < 0.2:
        del changed[name]
    else:
        value = chance.choice(VALUES)
        if name == "last_update" and not (type(value) is str and value):
            value = "text"  # the key of an index must be text
        changed[name] = value
    put(world, changed)
    return Key(str(row["pk"]), str(row["sk"]))


@given(st.integers(0, 1 << 32))
@settings(max_examples=settings().max_examples // 20)
def test_only_an_affected_client_may_end_and_names_the_row(seed: int) -> None:
    in_virtual_time(change_rows_of_a_fleet)(seed=seed)


async def change_rows_of_a_fleet(world: World, seed: int) -> None:
    """Change rows of three clients, then start a fourth client."""
    chance = random.Random(seed)
    world.kinesis.create_stream("orders", 3)
    world.kinesis.create_stream("payments", 2)
    clients = {n: world.client(n, "orders", "payments") for n in ("c1", "c2", "c3")}
    await world.until(lambda: sum(len(c.held) for c in clients.values()) == 5)
    touched: set[Key] = set()
    for _ in range(chance.choice([1, 1, 3, 8])):
        touched.add(change_row(world, chance))
        spread(world, "a", "b", "c")
        spread(world, "d", stream="payments")
        await asyncio.sleep(chance.choice([0.1, 1, 10]))
    await asyncio.sleep(60)
    for name, client in clients.items():
        check(name, client, touched)
    late = world.client("c4", "orders", "payments")
    await asyncio.sleep(90)
    check("c4", late, touched)


def check(name: str, client: Client, touched: set[Key]) -> None:
    """Fail if an unaffected client ended, or if an unexpected exception was raised."""
    if not client.task.done():
        return
    error = client.task.exception()
    assert isinstance(error, ENDS), (name, error)
    if isinstance(error, CorruptRowError):
        own = {Key(k.pk, k.sk) for k in touched if k.sk == name or k.sk == "group"}
        assert any(f"sk={key.sk!r}" in str(error) for key in own), (name, error)
