"""A stream's rows in step with Kinesis: baselines, repairs, two syncers at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.core import lineage
from kinesumer.core.liveness import MAX_REQUEST_DELAY_SECONDS
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, StreamRow
from kinesumer.model.streams import HASH_KEYS, Start
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows, writes
from tests.support.world import APP, FaultySource, FaultyStore, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.model.rows import ShardRow

P, LOW, HIGH = (f"shardId-{n:012}" for n in range(3))


class SyncedStream:
    """One client that syncs the rows of the stream "orders"."""

    def __init__(self, world: World, start: Start = Start.TRIM_HORIZON) -> None:
        self.world = world
        self.store = FaultyStore(world.table)
        self.source = FaultySource(world.kinesis.source("orders"))
        self.stream: OpenStream = world.open(self.source, start=start)
        self.context = world.context(store=self.store)

    async def sync(self) -> bool:
        return await sync_shards(self.context, self.stream)

    @property
    def row(self) -> StreamRow:
        (row,) = self.world.table.rows(f"group#{APP}")
        return rows.read_stream(row)


def shards(world: World) -> dict[str, ShardRow]:
    return world.shard_rows()


async def change(world: World, shard_id: str, **values: Any) -> None:
    """Change a shard's row as its owner would."""
    row = shards(world)[shard_id]
    key = rows.shard_key(APP, row.key, row.first_hash)
    await world.table.write(Write(key, Compare("pk", "exists"), values))


# --- baselines ---


@in_virtual_time
async def test_trim_horizon_begins_with_every_listed_shard(world: World) -> None:
    world.kinesis.split("orders", P)
    syncer = SyncedStream(world)
    assert await syncer.sync()
    assert syncer.row.start == Start.TRIM_HORIZON
    assert syncer.row.baseline
    found = shards(world)
    assert {name: row.ready for name, row in found.items()} == {
        P: True,
        LOW: False,
        HIGH: False,
    }
    assert not any(row.ended for row in found.values())
    assert {row.start for row in found.values()} == {Start.TRIM_HORIZON}
    assert found[LOW].parents == {P}
    assert (found[HIGH].first_hash, found[HIGH].last_hash) == (
        HASH_KEYS // 2,
        HASH_KEYS - 1,
    )


@in_virtual_time
async def test_latest_becomes_the_time_of_the_first_look(world: World) -> None:
    world.kinesis.split("orders", P)
    await asyncio.sleep(5)
    syncer = SyncedStream(world, Start.LATEST)
    await syncer.sync()
    now = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())
    assert syncer.row.start.type == "AT_TIMESTAMP"
    assert syncer.row.start.timestamp == pytest.approx(now.timestamp, abs=0.1)
    found = shards(world)
    assert (found[P].ended, found[LOW].ended, found[HIGH].ended) == (True, False, False)
    assert found[LOW].ready
    assert found[HIGH].ready
    assert found[LOW].start == syncer.row.start


@in_virtual_time
async def test_a_shard_closed_just_after_the_listing_is_still_read(
    world: World,
) -> None:
    syncer = SyncedStream(world, Start.LATEST)
    syncer.source.listing = syncer.source.source.list_shards_now()
    world.kinesis.split("orders", P)
    await syncer.sync()
    assert not shards(world)[P].ended
    syncer.source.listing = None
    await syncer.sync()
    assert {n: r.ready for n, r in shards(world).items()} == {
        P: True,
        LOW: False,
        HIGH: False,
    }


@in_virtual_time
async def test_a_start_by_time_reads_closed_shards_from_that_time_too(
    world: World,
) -> None:
    world.kinesis.split("orders", P)
    start = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())
    syncer = SyncedStream(world, start)
    await syncer.sync()
    found = shards(world)
    assert not found[P].ended
    assert not found[LOW].ready
    assert {row.start for row in found.values()} == {start}


@in_virtual_time
async def test_the_start_is_resolved_once_whatever_later_clients_ask(
    world: World,
) -> None:
    await SyncedStream(world, Start.TRIM_HORIZON).sync()
    before = world.table.snapshot()
    await SyncedStream(world, Start.LATEST).sync()
    assert world.table.snapshot() == before


@in_virtual_time
async def test_no_shard_can_be_claimed_before_all_have_rows(world: World) -> None:
    """The rows are made first, and the baseline is declared last."""
    world.kinesis.create_stream("orders", 4)
    syncer = SyncedStream(world)
    await syncer.sync()
    assert [sorted(write.set)[0] for write in syncer.store.sent] == [
        "baseline",
        *["ended"] * 4,
        "baseline",
    ]
    assert syncer.store.sent[0].set["baseline"] is False
    assert syncer.store.sent[-1].set == {"baseline": True}


@in_virtual_time
async def test_two_keepers_at_once_lay_one_baseline(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    one, other = (
        SyncedStream(world, Start.LATEST),
        SyncedStream(world, Start.TRIM_HORIZON),
    )
    other.store.latency = 0.0015
    await asyncio.gather(one.sync(), other.sync())
    found = shards(world)
    assert len(found) == 8
    assert {row.start for row in found.values()} == {one.row.start}
    assert one.row.baseline


@in_virtual_time
async def test_a_baseline_left_half_way_is_finished_by_another(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    one = SyncedStream(world, Start.LATEST)
    one.store.latency = 0.05
    task = world.loop.create_task(one.sync())
    await world.until(lambda: world.table.rows(f"group#{APP}"))
    task.cancel()
    await asyncio.sleep(5)
    assert not one.row.baseline
    start = one.row.start
    assert await SyncedStream(world, Start.TRIM_HORIZON).sync()
    assert one.row == one.row._replace(start=start, baseline=True)
    assert len(shards(world)) == 8
    assert {row.start for row in shards(world).values()} == {start}


@in_virtual_time
async def test_who_takes_a_latest_over_reads_closed_shards_too(world: World) -> None:
    """It can't know which were closed before the time was taken."""
    syncer = SyncedStream(world, Start.LATEST)
    start = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())
    stream = StreamRow(syncer.stream.arn, syncer.stream.info.created_at, start)
    await world.table.write(writes.create_stream(APP, stream))
    world.kinesis.split("orders", P)
    await syncer.sync()
    assert not shards(world)[P].ended
    assert not shards(world)[LOW].ready


@in_virtual_time
async def test_whose_start_was_not_the_first_reads_closed_shards_too(
    world: World,
) -> None:
    world.kinesis.split("orders", P)
    syncer = SyncedStream(world, Start.LATEST)
    syncer.store.spoil("unanswered", "start")
    await syncer.sync()
    assert not shards(world)[P].ended
    assert not shards(world)[LOW].ready


@in_virtual_time
async def test_a_truncated_listing_lays_no_baseline(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    syncer = SyncedStream(world)
    syncer.source.listing = syncer.source.source.list_shards_now()[:3]
    assert not await syncer.sync()
    assert world.table.snapshot() == []
    syncer.source.listing = None
    assert await syncer.sync()


# --- migration from Go ---


@in_virtual_time
async def test_checkpoints_of_go_become_the_first_positions(world: World) -> None:
    world.kinesis.split("orders", P)
    checkpoints = Key(f"check_point#{APP}#orders", P)
    for key, number in (
        (checkpoints, "123"),
        (checkpoints._replace(sk=LOW), ""),
        (checkpoints._replace(pk=f"check_point#{APP}#others", sk=HIGH), "9"),
    ):
        await world.table.write(
            Write(key, Compare("pk", "absent"), {"sequence_number": number})
        )
    await SyncedStream(world, Start.LATEST).sync()
    found = shards(world)
    assert found[P].position == Position("123")
    assert (found[P].ended, found[LOW].ready) == (False, False)
    assert found[LOW].position is None
    assert found[HIGH].position is None
    assert found[LOW].start == Start.TRIM_HORIZON


# --- keeping in step ---


@in_virtual_time
async def test_nothing_new_is_nothing_to_write(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    sent = len(syncer.store.sent)
    assert not await syncer.sync()
    assert len(syncer.store.sent) == sent


@in_virtual_time
async def test_a_crash_before_the_children_were_made_is_repaired(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    await change(world, P, ended=True)
    world.kinesis.split("orders", P)
    assert await syncer.sync()
    found = shards(world)
    assert found[LOW].ready
    assert found[HIGH].ready
    assert found[LOW].start == Start.TRIM_HORIZON


@in_virtual_time
async def test_a_crash_between_children_and_end_is_nothing_to_repair(
    world: World,
) -> None:
    """The parent has no end yet: its next owner will write it."""
    syncer = SyncedStream(world)
    await syncer.sync()
    world.kinesis.split("orders", P)
    await syncer.sync()
    assert not await syncer.sync()
    assert not shards(world)[LOW].ready


@in_virtual_time
async def test_rows_that_owners_made_are_told_of_once(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    await syncer.sync()
    world.kinesis.split("orders", P)
    for child in syncer.source.source.list_shards_now()[1:]:
        made = lineage.child_row(syncer.stream.arn, child)
        await world.table.write(writes.create_shard(APP, made))
    assert await syncer.sync()
    assert not await syncer.sync()


@in_virtual_time
async def test_what_a_keeper_sees_first_is_told_for_its_leader_may_have_read_before(
    world: World,
) -> None:
    await SyncedStream(world).sync()
    later = SyncedStream(world)
    assert await later.sync()
    assert not await later.sync()


@in_virtual_time
async def test_a_crash_between_end_and_ready_is_repaired(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    world.kinesis.split("orders", P)
    await syncer.sync()
    await change(world, P, ended=True)
    assert await syncer.sync()
    assert shards(world)[LOW].ready
    assert shards(world)[HIGH].ready


@in_virtual_time
async def test_a_shard_expired_for_long_is_pruned_and_not_made_again(
    world: World,
) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    world.kinesis.split("orders", P)
    before = syncer.source.source.list_shards_now()
    await syncer.sync()
    await change(world, P, ended=True)
    await syncer.sync()
    await asyncio.sleep(10)
    world.kinesis.expire("orders", world.clock.wall())
    for _ in range(2):
        await syncer.sync()
        assert sorted(shards(world)) == [P, LOW, HIGH]
        await asyncio.sleep(MAX_REQUEST_DELAY_SECONDS - 1)
    await asyncio.sleep(MAX_REQUEST_DELAY_SECONDS)
    await syncer.sync()
    assert sorted(shards(world)) == [LOW, HIGH]
    syncer.source.listing = before
    assert not await syncer.sync()
    assert sorted(shards(world)) == [LOW, HIGH]


@in_virtual_time
async def test_a_truncated_listing_changes_nothing(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    world.kinesis.split("orders", P)
    await change(world, P, ended=True)
    syncer.source.listing = syncer.source.source.list_shards_now()[:2]
    before = world.table.snapshot()
    assert not await syncer.sync()
    assert world.table.snapshot() == before


@in_virtual_time
async def test_two_keepers_repair_the_same_without_harm(world: World) -> None:
    one, other = SyncedStream(world), SyncedStream(world)
    await one.sync()
    world.kinesis.split("orders", P)
    await change(world, P, ended=True)
    other.store.latency = 0.0015
    await asyncio.gather(one.sync(), other.sync())
    assert sorted(shards(world)) == [P, LOW, HIGH]
    assert shards(world)[LOW].ready
