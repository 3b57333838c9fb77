"""Test that a query is a member of its group, and the store shows its progress."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kinesumer.coordination import pauses
from kinesumer.errors import GroupBusyError, StreamRecreatedError
from kinesumer.model.positions import After, Position
from kinesumer.model.rows import QUERY_ID, ShardRow
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.snapshot import read_snapshot
from kinesumer.ops.group.status import GroupReport, report
from kinesumer.wire import rows, writes
from tests.support.faulty import FaultySource
from tests.support.mirrored_query import (
    HIGH,
    LOW,
    P,
    Query,
    newest,
    owner,
    reading,
    stored,
)
from tests.support.world import APP, ARN, World


def row(world: World, shard_id: str = P) -> ShardRow:
    return world.shard_rows()[shard_id]


async def status(world: World) -> GroupReport:
    found = await read_snapshot(world.table, APP)
    return report(APP, "table-1", FleetView(found))


async def test_a_query_shows_as_the_member_that_owns_every_shard(world: World) -> None:
    await reading(world, "a", "b")
    found = await status(world)
    assert found.problems == []
    [member] = found.members
    assert (member.client_id, member.kind) == ("spark-query", "query")
    assert (member.index, member.shards, member.leader) == (0, 1, False)
    [shard] = found.streams[0].shards
    assert (shard.state, shard.owner) == ("owned", "spark-query")
    assert (shard.epoch, shard.planned_owner) == (1, "spark-query")
    assert shard.sequence_number == stored(world)


async def test_a_query_and_an_app_of_one_table_know_each_other(world: World) -> None:
    wall, streams = world.clock.wall(), frozenset([ARN])
    await world.table.write(writes.announce("other", streams, None, wall))
    query = await reading(world, "a")
    await world.until(lambda: query.mirror.apps(ARN) == 2)
    found = [rows.read_app(r) for r in await world.table.query(rows.APPS)]
    assert [(app.app, app.streams) for app in found] == [
        (APP, streams),
        ("other", streams),
    ]


async def batches(world: World, query: Query, seconds: int, *, put: bool) -> None:
    """Run a batch each second, of one record or of none."""
    for number in range(seconds):
        if put:
            world.put(str(number))
        await query.batch()
        await asyncio.sleep(1.0)


async def test_positions_are_stored_at_most_every_five_seconds(world: World) -> None:
    query = await reading(world, "0")
    query.store.sent.clear()
    await batches(world, query, 30, put=True)
    assert 5 <= len(query.store.writes("sequence_number")) <= 7


async def test_a_query_without_new_records_writes_heartbeats_only(world: World) -> None:
    query = await reading(world, "a")
    await asyncio.sleep(10.0)
    query.store.sent.clear()
    await batches(world, query, 60, put=False)
    assert len(query.store.sent) == pytest.approx(30, abs=1)
    assert len(query.store.writes("beat")) == len(query.store.sent)


async def test_shards_that_the_offset_no_longer_names_are_ended(world: World) -> None:
    query = await reading(world, "a")
    query.store.down = True
    world.kinesis.split("orders", P)
    await query.batch()
    await asyncio.sleep(2.0)
    world.put("b")
    await query.batch()
    world.kinesis.expire("orders", world.clock.wall() - 1.0)
    [(arn, of_stream)] = query.log.offset.items()
    rest = {s: place for s, place in of_stream.shards.items() if s != P}
    query.log.offset[arn] = replace(of_stream, shards=rest)
    query.store.down = False
    await query.batch()
    await world.until(lambda: stored(world, LOW))
    assert row(world).ended


async def test_a_clean_stop_leaves_positions_and_no_owner(world: World) -> None:
    query = await reading(world, "a")
    world.put("b")
    await query.batch()
    await query.stop()
    assert not row(world).owner
    assert stored(world) == newest(world)
    assert world.members()[QUERY_ID].dead


@pytest.mark.parametrize(("crash", "seconds"), [(False, 0.0), (True, 8.0)])
async def test_a_restart_waits_for_the_lease_only_after_a_crash(
    world: World, crash: bool, seconds: float
) -> None:
    query = await reading(world, "a")
    if crash:
        query.kill()
    else:
        await query.stop()
    before = world.clock.now()
    again = await Query(world, query.log).start()
    assert seconds <= world.clock.now() - before < seconds + 1.0
    await again.batch()
    await world.until(lambda: row(world).epoch == 2)
    assert (await status(world)).problems == []


async def test_a_second_query_is_refused(world: World) -> None:
    query = await reading(world, "a")
    with pytest.raises(GroupBusyError, match="another Spark query holds app 'app'"):
        await Query(world).start()
    await query.batch()
    assert not world.members()[QUERY_ID].dead


@pytest.mark.parametrize(
    ("target", "named"),
    [((None, None), ARN), (("orders", None), ARN), (("orders", P), f"{P} of {ARN}")],
)
async def test_a_query_does_not_start_while_one_of_its_shards_is_paused(
    world: World, target: tuple[str | None, str | None], named: str
) -> None:
    query = await reading(world, "a")
    await query.stop()
    operator = world.context("operator")
    await pauses.pause(operator, *target)
    with pytest.raises(GroupBusyError, match=f"is paused \\({named}\\).*resume"):
        await Query(world, query.log).start()
    assert world.members()[QUERY_ID].dead
    await pauses.resume(operator, *target)
    await Query(world, query.log).start()
    with pytest.raises(GroupBusyError, match="stop the query first"):
        await pauses.pause(operator, *target)


async def test_a_recreated_stream_stops_the_start(world: World) -> None:
    query = await reading(world, "a")
    await query.stop()
    await asyncio.sleep(1.0)
    world.kinesis.delete_stream("orders")
    world.kinesis.create_stream("orders")
    with pytest.raises(StreamRecreatedError):
        await Query(world).start()


async def test_a_store_that_fails_for_long_only_warns(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    query = await reading(world, "a")
    query.store.down = True
    await batches(world, query, 120, put=True)
    query.store.down = False
    await world.until(lambda: stored(world) == newest(world))
    warned = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert len(warned) <= 4
    assert world.members()[QUERY_ID].incarnation == 0


async def test_a_recreated_table_gets_all_positions_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    query = await reading(world, "a")
    world.table.delete_table()
    await asyncio.sleep(60.0)
    world.table.create_table("table-2")
    world.put("b")
    await query.batch()
    await world.until(lambda: stored(world) == newest(world))
    assert (await status(world)).problems == []
    assert "was recreated" in caplog.text


async def test_lost_responses_change_nothing(world: World) -> None:
    world.put("a")
    query = await Query(world).start()
    for attribute in ("baseline", "epoch", "sequence_number"):
        query.store.spoil("unanswered", attribute)
        query.store.spoil("lost", attribute)
    await query.batch()
    await world.until(lambda: stored(world) == newest(world))
    world.kinesis.split("orders", P)
    query.store.spoil("unanswered", "ended")
    query.store.spoil("unanswered", "ready")
    await query.batch()
    await world.until(lambda: owner(world, LOW) and owner(world, HIGH))
    assert row(world).ended
    found = await status(world)
    assert found.problems == []
    assert found.streams[0].states == {"ended": 1, "owned": 2}


async def test_positions_never_go_back(world: World) -> None:
    query = await reading(world, "a", "b", "c")
    await query.stop()
    slow = await Query(world).start()
    slow.log.offset = {
        ARN: replace(slow.log.offset[ARN], shards={P: After(Position("9"), 0.0)})
    }
    await slow.tell()
    await asyncio.sleep(10.0)
    assert stored(world) == newest(world)


async def test_a_thousand_shards_are_claimed_at_once(world: World) -> None:
    world.kinesis.create_stream("wide", 1000)
    query = await Query(world, None, "wide").start()
    await query.batch()
    before = world.clock.now()
    await world.until(lambda: all(r.owner for r in world.shard_rows("wide").values()))
    await world.until(lambda: len(world.shard_rows("wide")) == 1000)
    assert world.clock.now() - before < 5.0


async def test_a_stop_without_a_store_takes_seconds_and_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    query = await reading(world, "a")
    world.put("b")
    await query.batch()
    query.store.down = True
    before = world.clock.now()
    await query.stop()
    assert world.clock.now() - before <= 6.1
    assert "can't store all last positions" in caplog.text
    assert "it becomes free when the lease expires" in caplog.text
    await query.stop()


async def test_an_unreachable_stream_does_not_delay_others(world: World) -> None:
    world.kinesis.create_stream("payments")
    query = await Query(world, None, "orders", "payments").start()
    source = FaultySource(world.kinesis.source("orders"))
    source.down = True
    query.streams[ARN].source = source
    await query.batch()
    await world.until(lambda: world.shard_rows("payments"))
    for _ in range(3):
        world.put("a", stream="payments")
        await query.batch()
        await asyncio.sleep(6.0)
    [found] = world.shard_rows("payments").values()
    assert found.position is not None


async def test_a_query_without_a_batch_writes_no_positions(world: World) -> None:
    """It sends heartbeats, and renews the row that tells other apps of it."""
    query = await Query(world).start()
    query.store.sent.clear()
    await asyncio.sleep(600.0)
    others = [w for w in query.store.sent if w not in query.store.writes("beat")]
    assert {write.key.pk for write in others} == {rows.APPS}
    assert len(others) <= 600 / 100
    assert not world.shard_rows()
