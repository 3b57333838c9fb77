"""Test shard sync: initial rows, repairs, pruning, and two clients at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.shard_sync import (
    MAX_AGE_SECONDS,
    create_rows,
    sync_shards,
    write_all,
)
from kinesumer.coordination.store_queries import REREAD_SECONDS
from kinesumer.core import lineage
from kinesumer.core.liveness import MAX_REQUEST_DELAY_SECONDS
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    StreamRecreatedError,
)
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, Row, StreamRow
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import Compare, Write, WriteResult
from kinesumer.wire import rows, shard_writes
from tests.support.clock import ClockAhead
from tests.support.faulty import DateAhead, FaultySource, FaultyStore
from tests.support.lease_owner import HIGH, LOW, P, change
from tests.support.world import APP, World


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


# --- baselines ---


async def test_trim_horizon_begins_with_every_listed_shard(world: World) -> None:
    world.kinesis.split("orders", P)
    syncer = SyncedStream(world)
    assert await syncer.sync()
    assert syncer.row.start == Start.TRIM_HORIZON
    assert syncer.row.baseline
    found = world.shard_rows()
    assert {name: row.ready for name, row in found.items()} == {
        P: True,
        LOW: False,
        HIGH: False,
    }


@pytest.mark.parametrize("days", [1, 3])
async def test_a_start_before_the_retention_is_a_warning_with_both_times(
    world: World, caplog: pytest.LogCaptureFixture, days: int
) -> None:
    await asyncio.sleep(5 * 86400)  # else nothing is older than the stream itself
    now = world.clock.wall()
    syncer = SyncedStream(
        world, Start(type="AT_TIMESTAMP", timestamp=now - days * 86400 + 60)
    )
    await syncer.sync()
    text = r"the start is 2\S*Z, but the stream holds only records since 2\S*Z"
    assert bool(re.search(text, caplog.text)) == (days == 3)


async def test_latest_becomes_the_time_of_the_first_sync(world: World) -> None:
    world.kinesis.split("orders", P)
    await asyncio.sleep(5)
    syncer = SyncedStream(world, Start.LATEST)
    await syncer.sync()
    now = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())
    assert syncer.row.start.type == "AT_TIMESTAMP"
    assert syncer.row.start.timestamp == pytest.approx(now.timestamp, abs=0.1)
    found = world.shard_rows()
    assert (found[P].ended, found[LOW].ended, found[HIGH].ended) == (True, False, False)
    assert found[LOW].ready
    assert found[HIGH].ready
    assert found[LOW].start == syncer.row.start


async def test_a_shard_closed_after_the_listing_is_read(world: World) -> None:
    syncer = SyncedStream(world, Start.LATEST)
    syncer.source.listing = syncer.source.list_shards_now()
    world.kinesis.split("orders", P)
    await syncer.sync()
    assert not world.shard_rows()[P].ended
    syncer.source.listing = None
    await syncer.sync()
    assert {n: r.ready for n, r in world.shard_rows().items()} == {
        P: True,
        LOW: False,
        HIGH: False,
    }


async def test_no_shard_can_be_claimed_before_all_have_rows(world: World) -> None:
    """The stream's row allows claims (``baseline``) only after all shards have rows."""
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


async def test_two_clients_create_the_initial_rows_once(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    one, other = (
        SyncedStream(world, Start.LATEST),
        SyncedStream(world, Start.TRIM_HORIZON),
    )
    other.store.latency = 0.0015
    await asyncio.gather(one.sync(), other.sync())
    found = world.shard_rows()
    assert len(found) == 8
    assert {row.start for row in found.values()} == {one.row.start}
    assert one.row.baseline


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
    assert len(world.shard_rows()) == 8
    assert {row.start for row in world.shard_rows().values()} == {start}


async def test_a_start_resolved_by_others_keeps_closed_shards(world: World) -> None:
    world.kinesis.split("orders", P)
    syncer = SyncedStream(world, Start.LATEST)
    syncer.store.spoil("unanswered", "start")
    await syncer.sync()
    assert not world.shard_rows()[P].ended
    assert not world.shard_rows()[LOW].ready


# --- migration from Go ---


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
    found = world.shard_rows()
    assert found[P].position == Position("123")
    assert (found[P].ended, found[LOW].ready) == (False, False)
    assert found[LOW].position is None
    assert found[HIGH].position is None
    assert found[LOW].start == Start.TRIM_HORIZON


# --- keeping in step ---


async def test_a_sync_without_changes_writes_nothing(world: World) -> None:
    await SyncedStream(world).sync()
    later = SyncedStream(world)
    assert await later.sync()  # a client's first sync always reports a change
    assert not await later.sync()
    assert later.store.sent == []


async def test_rows_created_by_owners_are_reported_once(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    await syncer.sync()
    world.kinesis.split("orders", P)
    for child in syncer.source.list_shards_now()[1:]:
        made = lineage.new_row(syncer.stream.arn, child)
        await world.table.write(shard_writes.create_shard(APP, made))
    assert await syncer.sync()
    assert not await syncer.sync()


async def test_rows_of_parents_are_created_before_those_of_their_children(
    world: World,
) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    low, high = world.kinesis.split("orders", P)
    world.kinesis.merge("orders", low, high)
    world.kinesis.split("orders", world.kinesis.stream("orders").open[0].shard_id)
    apply, created = syncer.store.write, list[str]()

    async def write_newest_first(write: Write) -> WriteResult:
        shard_id = write.key.sk.partition("/")[2]
        await asyncio.sleep(10 - int(shard_id[-1]))
        created.append(shard_id)
        return await apply(write)

    syncer.store.write = write_newest_first  # type: ignore[method-assign]
    await syncer.sync()
    parents = {s.shard_id: s.parents for s in syncer.source.list_shards_now()}
    assert len(created) == 5
    for number, shard_id in enumerate(created):
        assert {*parents[shard_id]} <= {P, *created[:number]}


async def test_rows_are_created_only_shortly_after_a_read(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    world.kinesis.split("orders", P)
    (first, *_) = lineage.generations(
        lineage.new_row(syncer.stream.arn, shard)
        for shard in syncer.source.list_shards_now()[1:]
    )
    now = world.clock.now()
    await create_rows(syncer.context, first, now - MAX_AGE_SECONDS - 1)
    assert [*world.shard_rows()] == [P]
    await create_rows(syncer.context, first, now)
    assert sorted(world.shard_rows()) == [P, LOW, HIGH]


async def test_rows_are_created_only_if_a_consistent_read_misses_them(
    world: World,
) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    world.kinesis.split("orders", P)
    await syncer.sync()
    await change(world, P, ended=True)
    await syncer.sync()
    # Another client deletes the row. A read that is old shows none of the rows.
    await world.table.write(shard_writes.prune_shard(APP, world.shard_rows()[P]))
    syncer.stream.synced_listing = None
    query, reads = syncer.store.query, list[bool]()

    async def late_query(*args: Any, consistent: bool = True, **rest: Any) -> list[Row]:
        reads.append(consistent)
        found = await query(*args, consistent=consistent, **rest)
        return found if consistent else []

    syncer.store.query = late_query  # type: ignore[method-assign]
    await syncer.sync()
    assert reads[:2] == [False, True]
    assert sorted(world.shard_rows()) == [LOW, HIGH]


async def test_a_shard_expired_for_long_is_pruned_for_good(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    world.kinesis.split("orders", P)
    before = syncer.source.list_shards_now()
    await syncer.sync()
    await change(world, P, ended=True)
    await syncer.sync()
    await asyncio.sleep(10)
    world.kinesis.expire("orders", world.clock.wall())
    for _ in range(2):
        await syncer.sync()
        assert sorted(world.shard_rows()) == [P, LOW, HIGH]
        await asyncio.sleep(MAX_REQUEST_DELAY_SECONDS - 1)
    await asyncio.sleep(MAX_REQUEST_DELAY_SECONDS)
    await syncer.sync()
    assert sorted(world.shard_rows()) == [LOW, HIGH]
    syncer.source.listing = before
    assert not await syncer.sync()
    assert sorted(world.shard_rows()) == [LOW, HIGH]


async def test_an_open_shard_that_was_marked_as_ended_is_read_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    await syncer.sync()
    await change(world, P, ended=True, sequence_number="7")
    await asyncio.sleep(REREAD_SECONDS)
    await syncer.sync()
    assert world.shard_rows()[P].ended  # a listing may be older than the rows
    assert await syncer.sync()
    row = world.shard_rows()[P]
    assert (row.ended, row.ready, row.position) == (False, True, Position("7"))
    assert f"shard {P} was marked as read to its end, but it is open" in caplog.text
    assert not await syncer.sync()


async def test_a_shard_that_closed_after_the_listing_stays_ended(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    before = syncer.source.list_shards_now()
    world.kinesis.split("orders", P)
    await change(world, P, ended=True)
    syncer.source.listing = before
    await syncer.sync()
    syncer.source.listing = None
    for _ in range(3):
        await syncer.sync()
    assert world.shard_rows()[P].ended


async def test_an_incomplete_listing_changes_nothing(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    syncer = SyncedStream(world)
    syncer.source.listing = syncer.source.list_shards_now()[:3]
    assert not await syncer.sync()
    assert world.table.snapshot() == []
    syncer.source.listing = None
    assert await syncer.sync()
    world.kinesis.split("orders", P)
    await change(world, P, ended=True)
    syncer.source.listing = syncer.source.list_shards_now()[:-1]
    before = world.table.snapshot()
    assert not await syncer.sync()
    assert world.table.snapshot() == before


# --- faults


async def test_an_unavailable_store_and_kinesis_are_waited_for(world: World) -> None:
    syncer = SyncedStream(world)
    syncer.store.down = syncer.source.down = True
    task = world.loop.create_task(syncer.sync())
    await asyncio.sleep(60)
    syncer.source.down = False
    await asyncio.sleep(60)
    syncer.store.down = False
    assert await task
    assert syncer.row.baseline


async def test_lost_answers_change_nothing(world: World) -> None:
    syncer = SyncedStream(world)
    for attribute in ("start", "baseline", "baseline", "ready"):
        syncer.store.spoil("unanswered", attribute)
    assert await syncer.sync()
    assert syncer.row.baseline
    assert world.shard_rows()[P].ready


async def test_a_recreated_stream_is_fatal(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    await asyncio.sleep(60)
    world.kinesis.delete_stream("orders")
    world.kinesis.create_stream("orders")
    with pytest.raises(StreamRecreatedError) as caught:
        await syncer.sync()
    assert syncer.stream.arn in str(caught.value)
    assert "2027-01-15T08:01:00" in str(caught.value)


class Forbidden:
    """A table that no client may write."""

    async def write(self, write: Write) -> None:
        raise AccessDeniedError("dynamodb:DeleteItem", "table t")


async def test_of_many_writes_the_first_fault_is_raised_as_it_is(world: World) -> None:
    writes = [Write(Key("p", str(n)), Compare("pk", "exists")) for n in range(100)]
    with pytest.raises(AccessDeniedError, match="dynamodb:DeleteItem"):
        await write_all(world.context(store=Forbidden()), writes)


async def test_syncing_shards_learns_the_time_of_kinesis(world: World) -> None:
    stream = world.open(world.kinesis.source("orders"))
    await sync_shards(world.context(), stream)
    assert stream.service_time.earliest() == pytest.approx(world.clock.wall())
    assert stream.service_time.latest() == pytest.approx(world.clock.wall() + 1)


# --- LATEST, which is a time by Kinesis's clock after the listing ---


class SlowListing(FaultySource):
    """A source that takes two seconds to list the shards."""

    async def list_shards(self) -> Sequence[Shard]:
        """Return the shards as they are after two seconds."""
        await asyncio.sleep(2)
        return await super().list_shards()


def start_time(world: World) -> float | None:
    (row,) = world.table.rows(f"group#{APP}")
    return rows.read_stream(row).start.timestamp


async def test_the_clients_own_clock_does_not_count(world: World) -> None:
    context = replace(world.context(), clock=ClockAhead(world.clock, 3600))
    stream = world.open(world.kinesis.source("orders"), start=Start.LATEST)
    await sync_shards(context, stream)
    assert start_time(world) == pytest.approx(world.clock.wall(), abs=0.1)


async def test_records_that_arrive_during_the_listing_are_skipped(world: World) -> None:
    source = SlowListing(world.kinesis.source("orders"))
    stream = world.open(source, start=Start.LATEST)
    keeping = world.loop.create_task(sync_shards(world.context(), stream))
    await asyncio.sleep(1)
    world.put("while the shard was open")
    world.kinesis.split("orders", P)
    split_at = world.clock.wall()
    await keeping
    assert world.shard_rows()[P].ended  # the parent's record is skipped …
    assert (start_time(world) or 0.0) > split_at  # … because it came before LATEST


@pytest.mark.parametrize("ahead", [0.5, 50.0])
async def test_records_after_the_start_are_read_if_the_date_is_ahead(
    world: World, ahead: float
) -> None:
    source = DateAhead(world.kinesis.source("orders"), ahead)
    client = world.client("c1", start=Start.LATEST, source=lambda name: source)
    group = f"group#{APP}"
    await world.until(
        lambda: any(row.get("baseline") for row in world.table.rows(group))
    )
    world.put("just after")
    await world.until(lambda: client.texts == ["just after"])


async def test_a_date_that_is_minutes_ahead_is_refused(world: World) -> None:
    source = DateAhead(world.kinesis.source("orders"), 500.0)
    stream = world.open(source, start=Start.LATEST)
    with pytest.raises(ConfigurationError, match="more than 100 s ahead"):
        await sync_shards(world.context(), stream)
