"""Whole clients while operators pause, drain and seek: what is read, and by whom."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.admin import drain as admin_drain
from kinesumer.admin.seek import plan_seek
from kinesumer.admin.seek import seek as seek_planned
from kinesumer.coordination import pauses
from kinesumer.errors import ShardsLostError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.wire import admin_writes
from tests.support.clients import counts, numbers, settled, spread
from tests.support.world import APP, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.model.records import Record

P = "shardId-000000000000"


async def seek(
    world: World, to: Position | Start = Start.TRIM_HORIZON, shard: str | None = None
) -> None:
    """Do what ``kinesumer seek`` does."""
    context = world.context("operator")
    stream = world.open(world.kinesis.source("orders"))
    await seek_planned(context, await plan_seek(context, stream, to, shard))


async def drain(world: World, client_id: str, *, undo: bool = False) -> None:
    await admin_drain.drain(world.context("operator"), client_id, undo=undo)


# --- seeks ---


@in_virtual_time
async def test_a_seek_to_the_beginning_delivers_everything_once_more(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 8)
    clients = [world.client("c1"), world.client("c2")]
    await settled(world, *clients, shards=8)
    spread(world, *numbers(0, 800))
    await world.until(lambda: len(counts(*clients)) == 800)
    await asyncio.sleep(10)
    await seek(world)
    await world.until(lambda: {*counts(*clients).values()} == {2}, seconds=10)
    await asyncio.sleep(60)
    assert {*counts(*clients).values()} == {2}


@in_virtual_time
async def test_a_seek_in_the_middle_of_reading_loses_nothing_after_it(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 4)
    clients = [world.client("c1"), world.client("c2")]
    await settled(world, *clients, shards=4)
    for n in range(300):
        spread(world, *numbers(4 * n, 4 * n + 4))
        await asyncio.sleep(0.1)
        if n == 150:
            await seek(world)
    await world.until(lambda: len(counts(*clients)) == 1200)
    await asyncio.sleep(30)
    found = counts(*clients)
    assert {found[text] for text in numbers(0, 590)} <= {1, 2}
    assert {found[text] for text in numbers(700, 1200)} == {1}
    assert max(found.values()) == 2


@in_virtual_time
async def test_a_seek_to_a_position_reads_on_after_it(world: World) -> None:
    world.put(*"abcde")
    client = world.client("c1")
    await world.until(lambda: client.texts == [*"abcde"])
    await asyncio.sleep(6)
    number = client.seen[2].sequence_number
    await seek(world, Position(number), P)
    await world.until(lambda: client.texts == [*"abcdede"], seconds=5)


@in_virtual_time
async def test_a_seek_to_latest_skips_what_waits(world: World) -> None:
    release = asyncio.Event()

    async def wait(record: Record) -> None:
        if record.data == b"a":
            await release.wait()

    world.put(*"abcde")
    client = world.client("c1", handle=wait)
    await world.until(lambda: client.texts == ["a"])
    await asyncio.sleep(2)
    await seek(world, Start.LATEST)
    await asyncio.sleep(5)
    release.set()
    await asyncio.sleep(5)
    world.put("f")
    await world.until(lambda: client.texts == ["a", "f"])


@in_virtual_time
async def test_a_seek_that_nobody_was_told_of_is_noticed_by_the_next_commit(
    world: World,
) -> None:
    world.put("a")
    client = world.client("c1")
    await world.until(lambda: client.texts == ["a"])
    await asyncio.sleep(6)
    row = world.shard_rows()[P]
    await world.table.write(
        admin_writes.seek(APP, row, Start.TRIM_HORIZON, waits=False)
    )
    await asyncio.sleep(10)
    assert client.texts == ["a"]
    world.put("b")
    await world.until(lambda: client.texts == [*"abab"], seconds=6)
    await asyncio.sleep(10)
    assert world.shard_rows()[P].position is not None


@in_virtual_time
async def test_a_seek_that_nobody_was_told_of_is_noticed_in_a_minute(
    world: World,
) -> None:
    world.put("a")
    client = world.client("c1")
    await world.until(lambda: client.texts == ["a"])
    await asyncio.sleep(6)
    row = world.shard_rows()[P]
    await world.table.write(
        admin_writes.seek(APP, row, Start.TRIM_HORIZON, waits=False)
    )
    await world.until(lambda: client.texts == ["a", "a"], seconds=61)


@in_virtual_time
async def test_what_was_done_before_a_seek_is_no_loss(world: World) -> None:
    world.put(*"ab")
    client = world.client("c1", commit="manual")
    await world.until(lambda: client.texts == [*"ab"])
    await seek(world)
    await world.until(lambda: client.texts == [*"abab"], seconds=60)
    client.group.ack(client.seen[0])
    await client.run(client.group.commit())
    assert world.shard_rows()[P].position is None
    client.group.ack(client.seen[2])
    await client.run(client.group.commit())
    assert world.shard_rows()[P].position == client.seen[0].position


@in_virtual_time
async def test_what_was_done_of_a_shard_that_others_own_is_a_loss_all_the_same(
    world: World,
) -> None:
    world.put(*"ab")
    client = world.client("c1", commit="manual")
    await world.until(lambda: client.texts == [*"ab"])
    await seek(world)
    await world.until(lambda: client.texts == [*"abab"], seconds=60)
    other = world.client("c2")
    await world.until(lambda: "c2" in world.members())
    await drain(world, "c1")
    await world.until(lambda: other.held == [P])
    client.group.ack(client.seen[2])
    with pytest.raises(ShardsLostError):
        await client.run(client.group.commit())


@in_virtual_time
async def test_a_sought_stream_is_read_parents_first_though_it_was_resharded(
    world: World,
) -> None:
    world.put(*"ab")
    client = world.client("c1")
    await world.until(lambda: client.texts == [*"ab"])
    low, high = world.kinesis.split("orders", P)
    world.put("c")
    await world.until(lambda: client.held == sorted([low, high]))
    world.kinesis.merge("orders", low, high)
    world.put("d")
    await world.until(lambda: len(client.texts) == 4)
    await asyncio.sleep(10)
    await seek(world)
    await world.until(lambda: len(client.texts) == 8, seconds=20)
    assert client.texts[4:] == [*"abcd"]
    await asyncio.sleep(60)
    assert len(client.texts) == 8
    ended = {row.ended for i, row in world.shard_rows().items() if i <= high}
    assert ended == {True}


@in_virtual_time
async def test_a_seek_cut_short_loses_nothing_and_may_be_repeated(
    world: World,
) -> None:
    world.put(*"ab")
    client = world.client("c1")
    await world.until(lambda: client.texts == [*"ab"])
    world.kinesis.split("orders", P)
    world.put("c")
    await world.until(lambda: client.texts == [*"abc"])
    await asyncio.sleep(10)
    row = world.shard_rows()[P]
    await world.table.write(
        admin_writes.seek(APP, row, Start.TRIM_HORIZON, waits=False)
    )
    await world.until(lambda: client.texts == [*"abcab"], seconds=70)
    await asyncio.sleep(10)
    world.put("d")
    await seek(world)
    await world.until(lambda: client.texts[-4:] == [*"abcd"], seconds=20)
    await asyncio.sleep(60)
    assert all(row.ready or row.ended for row in world.shard_rows().values())


@in_virtual_time
async def test_a_paused_shard_may_be_sought_and_is_read_from_there_when_resumed(
    world: World,
) -> None:
    world.put(*"ab")
    client = world.client("c1")
    await world.until(lambda: client.texts == [*"ab"])
    operator = world.context("operator")
    await pauses.pause(operator, "orders")
    await world.until(lambda: client.held == [])
    await seek(world)
    await asyncio.sleep(70)
    assert client.texts == [*"ab"]
    await pauses.resume(operator, "orders")
    await world.until(lambda: client.texts == [*"abab"], seconds=5)


@in_virtual_time
async def test_a_shard_sought_and_paused_at_once_is_left_to_nobody(
    world: World,
) -> None:
    world.put(*"ab")
    client = world.client("c1")
    await world.until(lambda: client.texts == [*"ab"])
    await seek(world)
    await pauses.pause(world.context("operator"), "orders", P)
    await world.until(lambda: world.shard_rows()[P].owner == "", seconds=5)
    await asyncio.sleep(70)
    assert (client.held, client.texts) == ([], [*"ab"])


@in_virtual_time
async def test_a_shard_sought_while_it_moves_goes_to_whom_the_plan_says(
    world: World,
) -> None:
    world.put(*"ab")
    first = world.client("c1")
    await world.until(lambda: first.texts == [*"ab"])
    second = world.client("c2")
    await world.until(lambda: "c2" in world.members())
    await drain(world, "c1")
    await world.until(lambda: world.members()["c1"].range == ())
    row = world.shard_rows()[P]
    await world.table.write(
        admin_writes.seek(APP, row, Start.TRIM_HORIZON, waits=False)
    )
    await world.until(lambda: second.texts == [*"ab"], seconds=10)
    assert first.held == []


# --- pauses and drains ---


@in_virtual_time
async def test_a_paused_group_stays_so_when_all_clients_start_again(
    world: World,
) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    await pauses.pause(world.context("operator"))
    await world.until(lambda: client.held == [], seconds=5)
    await client.stop()
    again = world.client("c2")
    world.put("a")
    await asyncio.sleep(120)
    assert (again.held, again.texts) == ([], [])
    await pauses.resume(world.context("operator"))
    await world.until(lambda: again.texts == ["a"], seconds=5)


@in_virtual_time
async def test_a_drained_client_hands_over_and_gets_shards_again_when_undone(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 8)
    clients = first, second = world.client("c1"), world.client("c2")
    await settled(world, first, second, shards=8)
    await drain(world, "c2")
    for n in range(100):
        spread(world, *numbers(8 * n, 8 * n + 8))
        await asyncio.sleep(0.1)
    await world.until(lambda: len(counts(*clients)) == 800)
    assert set(counts(*clients).values()) == {1}
    assert (len(first.held), second.held) == (8, [])
    assert not world.members()["c2"].dead
    await drain(world, "c2", undo=True)
    await settled(world, first, second, shards=8)
    assert len(second.held) == 4
