"""Test what an app in a KCL fleet keeps in its own table, and what it refuses."""

from __future__ import annotations

from random import Random

import pytest

from kinesumer.errors import ConfigurationError, CorruptRowError
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
from kinesumer.ports import Compare, Write
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire import admin_writes, rows, writes
from tests.support.fleet import Fleet
from tests.support.world import APP, ARN

ME = MemberRow("c1", "s1", streams=frozenset({ARN}))
STREAM = StreamRow(ARN, 5.0, Start.LATEST)
PARTITION = rows.shard_partition(APP, ARN)
S0 = "shardId-000000000000"


@pytest.fixture
def world() -> Fleet:
    return Fleet(VirtualLoop(Random(0)), shards=2)


async def test_all_but_shards_is_kept_in_the_app_s_own_table(world: Fleet) -> None:
    store, _ = world.store()
    await store.write(writes.register(APP, ME, None, "2026-01-01T00:00:00Z"))
    assert (await store.get(rows.member_key(APP, "c1"))) is not None
    assert [row["sk"] for row in world.table.rows(f"member#{APP}")] == ["c1"]
    assert [row["sk"] for row in await store.query(f"member#{APP}")] == ["c1"]
    assert await store.verify() == "table-1"
    assert await store.query_not_updated_since(f"member#{APP}", "2027") != []
    assert world.table.rows(PARTITION) == []


async def test_the_group_row_names_the_lease_table(world: Fleet) -> None:
    store, _ = world.store()
    written = await store.write(writes.create_group(APP, "g"))
    assert written.row is not None and rows.read_group(written.row).group_id == "g"
    row = await store.get(rows.group_key(APP))
    assert row is not None and rows.read_group(row).group_id == "g"
    (row,) = await store.query(f"group#{APP}", consistent=True)
    assert rows.read_group(row).group_id == "g"
    (stored,) = world.table.rows(f"group#{APP}")
    # Clients without kcl_table, and those of earlier versions, refuse the app.
    assert stored["version"] == 2
    with pytest.raises(CorruptRowError, match="--kcl-table"):
        rows.read_group(stored)


@pytest.mark.parametrize("table", [None, "another"])
async def test_an_app_with_positions_elsewhere_is_refused(
    world: Fleet, table: str | None
) -> None:
    values = {"kcl_table": table} if table else {}
    own = Write(rows.group_key(APP), Compare("pk", "absent"), {"group_id": "g"})
    await world.table.write(own._replace(set={**own.set, **values}))
    store, _ = world.store()
    with pytest.raises(ConfigurationError, match="positions in"):
        await store.write(writes.create_group(APP, "g"))
    assert await store.get(rows.group_key("b")) is None


async def test_a_stream_of_the_fleet_has_its_first_shards_already(world: Fleet) -> None:
    store, _ = world.store()
    written = await store.write(writes.create_stream(APP, STREAM))
    assert written.row is not None and rows.read_stream(written.row).baseline


# --- what isn't possible ---

SHARD = ShardRow(ShardKey(ARN, S0), 0, HASH_KEYS - 1, Start.TRIM_HORIZON)


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (admin_writes.pause(rows.group_key(APP), ""), "pauses"),
        (admin_writes.pause(rows.stream_key(APP, ARN), ""), "pauses"),
        (admin_writes.seek(APP, SHARD, Position("49"), waits=False), "seeks"),
        (admin_writes.replace(APP, SHARD, SHARD), "imports"),
        (admin_writes.begin_reset(APP), "resets"),
        (admin_writes.delete(Key(PARTITION, "x")), "resets"),
    ],
)
async def test_what_kcl_s_workers_would_not_follow_is_refused(
    world: Fleet, write: Write, what: str
) -> None:
    store, _ = world.store()
    before = {key: dict(row) for key, row in world.leases.rows.items()}
    with pytest.raises(ConfigurationError, match=f"can't have .*{what}"):
        await store.write(write)
    assert world.leases.rows == before
