"""Test that read-only commands report any rows without failing."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import Metric

from kinesumer.errors import ConfigurationError
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import ShardKey, Start
from kinesumer.ops.dashboard.events import find_events
from kinesumer.ops.dashboard.model import DashboardInfo, assign_lanes, build_state
from kinesumer.ops.exporter.collector import DEFAULT_OPTIONS, ScaleObserver
from kinesumer.ops.exporter.metrics import AppMetrics, AppReading, build_metrics
from kinesumer.ops.group import distribution, status
from kinesumer.ops.group.distribution import Consumer, Distribution, ShardLoad
from kinesumer.ops.group.doctor import APP_CHECK_FUNCTIONS
from kinesumer.ops.group.doctor.observation import AppObservation
from kinesumer.ops.group.lag import NO_LAGS, Lags
from kinesumer.ops.group.observation import FleetView, observe
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.ops.migration import positions
from kinesumer.wire.rows import timestamp_text
from tests.support.row_edits import put
from tests.support.world import APP, ARN, World, in_virtual_time
from tests.system.hostile.test_random_row_changes import change_row

INFO = DashboardInfo(APP, "table", "eu-central-1", control=True)


@given(st.integers(0, 1 << 32))
@settings(max_examples=settings().max_examples // 8)
def test_read_only_commands_report_any_rows(seed: int) -> None:
    in_virtual_time(read_changed_rows)(seed=seed)


async def read_changed_rows(world: World, seed: int) -> None:
    chance = random.Random(seed)
    world.kinesis.create_stream("orders", 3)
    world.kinesis.create_stream("payments", 2)
    clients = [world.client(name, "orders", "payments") for name in ("c1", "c2")]
    await world.until(lambda: sum(len(c.held) for c in clients) == 5)
    for client in clients:
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
    account = AppMetrics(APP, 1, 0, AppReading(found, now, True, 1.0, 1.0, scale))
    generate_latest(Metrics(build_metrics([account])))
    app = AppObservation(
        app=APP, first=first, second=second, seconds=100.0, heartbeat_ages=ages
    )
    for check in APP_CHECK_FUNCTIONS:
        list(check(app))
    members = [Consumer(m.client_id, m.label, m.weight) for m in second.alive]
    loads = [ShardLoad(row.owner_id) for row in rows]
    for kind in ("label", "zone", "prefix:3"):
        distribution.report(Distribution(members, loads), kind)
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
