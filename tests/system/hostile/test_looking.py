"""Whatever stands in the rows, who only looks at them tells it and doesn't fail."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from kinesumer.admin.distribution import Consumer, Distribution, ShardLoad
from kinesumer.admin.distribution import report as distribution
from kinesumer.admin.doctor import runner
from kinesumer.admin.doctor.observation import AppObservation as Examined
from kinesumer.admin.lag import Lags
from kinesumer.admin.observation import observe
from kinesumer.admin.snapshot import Snapshot, read_snapshot
from kinesumer.admin.status import report
from kinesumer.dashboard.events import find_events
from kinesumer.dashboard.layout import assign_lanes
from kinesumer.dashboard.view_model import DashboardInfo, ViewInput, build_state
from kinesumer.errors import ConfigurationError
from kinesumer.exporter.metrics import (
    AppMetrics,
    AppReading,
    build_metrics,
)
from kinesumer.migration import positions
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import ShardKey, Start
from kinesumer.wire.rows import timestamp_text
from tests.support.world import APP, ARN, World, in_virtual_time
from tests.system.hostile.hands import put
from tests.system.hostile.test_random_hands import meddle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric


ABOUT = DashboardInfo(APP, "table", "eu-central-1", control=True)


@given(st.integers(0, 1 << 32))
@settings(max_examples=settings().max_examples // 5)
def test_no_command_that_looks_fails_at_rows(seed: int) -> None:
    in_virtual_time(looked_at)(seed=seed)


async def looked_at(world: World, seed: int) -> None:
    chance = random.Random(seed)
    world.kinesis.create_stream("orders", 3)
    world.kinesis.create_stream("payments", 2)
    clients = [world.client(name, "orders", "payments") for name in ("c1", "c2")]
    await world.until(lambda: sum(len(c.held) for c in clients) == 5)
    for client in clients:
        client.kill()
    before = await read_snapshot(world.table, APP)
    for _ in range(chance.choice([1, 3, 10, 30])):
        meddle(world, chance) if chance.random() < 0.8 else misplace(world, chance)
    after = await read_snapshot(world.table, APP)
    look(before, after)
    look(after, before)
    look(after, after)


@pytest.mark.parametrize("step", [-1, 1], ids=["upwards", "downwards"])
def test_many_generations_that_wait_are_shown(step: int) -> None:
    ids = [f"shardId-{number:012}" for number in range(1500)]
    beside = [{ids[at]} if 0 <= at < 1500 else set() for at in range(step, 1500 + step)]
    chain = [
        ShardRow(ShardKey(ARN, id_), 0, 9, Start.LATEST, frozenset(parents))
        for id_, parents in zip(ids, beside, strict=True)
    ]
    stream = StreamRow(ARN, 1.0, Start.LATEST, baseline=True)
    found = Snapshot([], None, [stream], {ARN: chain})
    look(found, found)
    assert max(lane for _, lane in assign_lanes(chain)) == 1499


def misplace(world: World, chance: random.Random) -> None:
    """Put a copy of a row under another row's key, or under one that is no key."""
    row, other = (chance.choice(world.table.snapshot()) for _ in range(2))
    sk = chance.choice([other["sk"], "stream#", "stream#orders", "stream#a:b", "x"])
    pk = chance.choice([row["pk"], other["pk"]])
    put(world, {**row, "pk": pk, "sk": sk})


def look(first: Snapshot, second: Snapshot) -> None:
    rows = [row for page in second.shards.values() for row in page]
    lags = Lags({row.key: 20_000 for row in rows}, {})
    was = observe(None, first, {}, 0.0)
    now = observe(was, second, lags.millis, 100.0)
    ages = {member.session: 1e6 for member in second.alive}
    json.dumps(report(APP, "table", second, lags, ages))
    msgspec.json.encode(
        build_state(ABOUT, ViewInput(now, 1.0, 2.0, lags, events=find_events(was, now)))
    )
    since = {key: 0.0 for arn in second.shards for key in second.unconsumed(arn)}
    account = AppMetrics(APP, 1, 0, AppReading(now, lags, since, 1.0, 1.0))
    generate_latest(Collected(build_metrics([account])))
    told(first, second)
    saved(second)


class Collected:
    """Metrics as a registry gives them."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def told(first: Snapshot, second: Snapshot) -> None:
    ages = {member.session: 1e6 for member in second.alive}
    seen = Examined(
        app=APP, first=first, second=second, seconds=100.0, heartbeat_ages=ages
    )
    for check in runner.APP_CHECK_FUNCTIONS:
        list(check(seen))
    members = [Consumer(m.client_id, m.label, m.weight) for m in second.alive]
    held = [ShardLoad(row.owner_id) for page in second.shards.values() for row in page]
    for way in ("label", "zone", "prefix:3"):
        distribution(Distribution(members, held), way)


def saved(found: Snapshot) -> None:
    """What is exported can be imported."""
    try:
        made = positions.of_group(APP, timestamp_text(1), found.streams, found.shards)
    except ConfigurationError as error:
        assert "a shard is named twice" in str(error)
        return
    content = positions.encode(made)
    for stream in positions.decode(content).streams:
        stream.marks()
