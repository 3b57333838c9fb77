"""Reading a shard of KPL aggregates: no part of one is skipped or repeated."""

from __future__ import annotations

from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire.put_records import UserRecord, aggregate
from tests.support.delivery import ReaderDesk
from tests.support.world import World, in_virtual_time

SHARD = "shardId-000000000000"


def user(text: str, hash_key: int | None = None) -> UserRecord:
    explicit = None if hash_key is None else str(hash_key)
    return UserRecord(text.encode(), "key", explicit)


def put_aggregate(world: World, *texts: str) -> str:
    data = aggregate([user(text) for text in texts])
    return world.kinesis.put("orders", data, explicit_hash_key=0)[1]


@in_virtual_time
async def test_a_checkpoint_within_an_aggregate_goes_on_within_it(
    world: World,
) -> None:
    number = put_aggregate(world, "a", "b", "c", "d")
    world.put("e")
    desk = ReaderDesk(world, position=Position(number, 1))
    desk.start()
    assert await desk.read(3) == ["c", "d", "e"]
    assert desk.records[0].position == Position(number, 2)


@in_virtual_time
async def test_a_checkpoint_at_an_aggregates_last_part_moves_past_it(
    world: World,
) -> None:
    number = put_aggregate(world, "a", "b")
    desk = ReaderDesk(world, position=Position(number, 1))
    desk.start()
    await world.until(lambda: desk.batches)
    assert desk.owned.position == Position(number)
    world.put("c")
    assert await desk.read(1) == ["c"]


@in_virtual_time
async def test_an_aggregate_without_records_moves_the_position(world: World) -> None:
    number = put_aggregate(world)
    desk = ReaderDesk(world)
    desk.start()
    await world.until(lambda: desk.batches)
    assert desk.texts == []
    assert desk.owned.position == Position(number)


@in_virtual_time
async def test_a_whole_page_is_done_with_its_last_record_even_if_that_is_empty(
    world: World,
) -> None:
    put_aggregate(world, "a", "b")
    number = put_aggregate(world)
    desk = ReaderDesk(world)
    desk.start()
    await desk.read(2)
    desk.owned.progress.done_through(2)
    assert desk.owned.position == Position(number)


@in_virtual_time
async def test_records_outside_the_hash_range_are_delivered_and_counted(
    world: World,
) -> None:
    data = aggregate([user("in", 5), user("out", HASH_KEYS - 1)])
    world.kinesis.put("orders", data, explicit_hash_key=0)
    desk = ReaderDesk(world, last_hash=HASH_KEYS // 2)
    desk.start()
    assert await desk.read(2) == ["in", "out"]
    assert desk.owned.outside_hash_range == 1
