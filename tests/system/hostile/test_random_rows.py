"""Test that clients and read-only commands outlast random changes of rows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import Metric

from kinesumer.errors import (
    ConfigurationError,
    CorruptRowError,
    StateStoreRecreatedError,
    StreamRecreatedError,
)
from kinesumer.model.rows import Key, ShardRow, StreamRow, UnsupportedValue
from kinesumer.model.streams import ShardKey, Start
from kinesumer.ops.dashboard.events import find_events
from kinesumer.ops.dashboard.model import DashboardInfo, assign_lanes, build_state
from kinesumer.ops.exporter.collector import DEFAULT_OPTIONS, ScaleObserver
from kinesumer.ops.exporter.metrics import AppMetrics, AppReading, build_metrics
from kinesumer.ops.group import distribution, status
from kinesumer.ops.group.doctor import APP_CHECK_FUNCTIONS
from kinesumer.ops.group.doctor.observation import AppObservation
from kinesumer.ops.group.lag import NO_LAGS, Lags
from kinesumer.ops.group.observation import FleetView, observe
from kinesumer.ops.group.shard_reads import Samples
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.ops.migration import positions
from kinesumer.wire.rows import timestamp_text
from tests.support.clients import spread
from tests.support.row_edits import put
from tests.support.world import APP, ARN, Client, World, in_virtual_time

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


async def fleet(world: World, *names: str) -> dict[str, Client]:
    """Start clients that share the five shards of two streams."""
    world.kinesis.create_stream("orders", 3)
    world.kinesis.create_stream("payments", 2)
    clients = {name: world.client(name, "orders", "payments") for name in names}
    await world.until(lambda: sum(len(c.held) for c in clients.values()) == 5)
    return clients


async def change_rows_of_a_fleet(world: World, seed: int) -> None:
    """Change rows of three clients, then start a fourth client."""
    chance = random.Random(seed)
    clients = await fleet(world, "c1", "c2", "c3")
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


INFO = DashboardInfo(APP, "table", "eu-central-1", control=True)


@given(st.integers(0, 1 << 32))
@settings(max_examples=settings().max_examples // 8)
def test_read_only_commands_report_any_rows(seed: int) -> None:
    in_virtual_time(read_changed_rows)(seed=seed)


async def read_changed_rows(world: World, seed: int) -> None:
    chance = random.Random(seed)
    for client in (await fleet(world, "c1", "c2")).values():
        client.kill()
    before = await read_snapshot(world.table, APP)
    for _ in range(chance.choice([1, 3, 10, 30])):
        change_row(world, chance) if chance.random() < 0.8 else misplace(world, chance)
    after = await read_snapshot(world.table, APP)
    build_all(before, after)
    build_all(after, before)
    build_all(after, after)


@pytest.mark.parametrize("step", [-1, 1], ids=["upwards", "downwards"])
def test_many_generations_of_waiting_shards_are_shown(step: int) -> None:
    ids = [f"shardId-{number:012}" for number in range(1500)]
    parents = [{ids[n]} if 0 <= n < 1500 else set() for n in range(step, 1500 + step)]
    chain = [
        ShardRow(ShardKey(ARN, shard_id), 0, 9, Start.LATEST, frozenset(own))
        for shard_id, own in zip(ids, parents, strict=True)
    ]
    stream = StreamRow(ARN, 1.0, Start.LATEST, baseline=True)
    snapshot = Snapshot([], None, [stream], {ARN: chain})
    build_all(snapshot, snapshot)
    [shown] = status.report(APP, "table", FleetView(snapshot)).streams
    assert max(assign_lanes(shown.shards).values()) == 1499


def misplace(world: World, chance: random.Random) -> None:
    """Put a copy of a row under another row's key or under an invalid key."""
    row, other = (chance.choice(world.table.snapshot()) for _ in range(2))
    sk = chance.choice([other["sk"], "stream#", "stream#orders", "stream#a:b", "x"])
    pk = chance.choice([row["pk"], other["pk"]])
    put(world, {**row, "pk": pk, "sk": sk})


class Metrics(NamedTuple):
    """A registry of Prometheus that returns given metrics."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def build_all(first: Snapshot, second: Snapshot) -> None:
    """Build the reports of all read-only commands, and import what was exported."""
    rows = [row for page in second.shards.values() for row in page]
    lags = Lags({row.key: 20_000 for row in rows}, {})
    before = observe(None, first, NO_LAGS, 0.0)
    now = observe(before, second, lags, 100.0)
    ages = {member.session: 1e6 for member in second.alive}
    msgspec.json.encode(status.report(APP, "table", FleetView(second, ages, lags)))
    events = find_events(before, now)
    found = status.report(APP, "table", now)
    page = build_state(found, info=INFO, at=1.0, every_seconds=2.0, events=events)
    msgspec.json.encode(page)
    scale = ScaleObserver(DEFAULT_OPTIONS).observe(now, 100.0, has_lags=True)
    account = AppMetrics(APP, 1, 0, AppReading(found, True, 1.0, 1.0, scale))
    generate_latest(Metrics(build_metrics([account])))
    app = AppObservation(
        app=APP, first=first, second=second, seconds=100.0, heartbeat_ages=ages
    )
    for check in APP_CHECK_FUNCTIONS:
        list(check(app))
    shares = distribution.of_group(found, Samples({}, {}, {}))
    for kind in ("label", "zone", "prefix:3"):
        msgspec.json.encode(distribution.report(shares, kind))
    export_and_import(second)


def export_and_import(snapshot: Snapshot) -> None:
    try:
        exported = positions.positions_of_group(
            APP, timestamp_text(1), snapshot.streams, snapshot.shards
        )
    except ConfigurationError as error:
        assert "a shard is named twice" in str(error)
        return
    for stream in positions.decode(positions.encode(exported)).streams:
        stream.resume_points()
