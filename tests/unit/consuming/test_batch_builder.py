"""Test that reading KPL aggregates skips or repeats no part of an aggregate."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire import aggregate_readers, aggregation
from kinesumer.wire.put_records import Entry, aggregate
from tests.support.aggregates import field, frame
from tests.support.delivery import CountingTelemetry, read_shard, refuse_memory
from tests.support.world import SHARD, World


def user(text: str, hash_key: int | None = None) -> Entry:
    explicit = None if hash_key is None else str(hash_key)
    return Entry(text.encode(), "key", explicit)


def put_aggregate(world: World, *texts: str) -> str:
    data = aggregate([user(text) for text in texts])
    return world.kinesis.put("orders", data, explicit_hash_key=0)[1]


async def test_a_checkpoint_within_an_aggregate_resumes_there(world: World) -> None:
    number = put_aggregate(world, "a", "b", "c", "d")
    world.put("e")
    desk = read_shard(world, position=Position(number, 1))
    assert await desk.read(3) == ["c", "d", "e"]
    assert desk.records[0].position == Position(number, 2)


async def test_a_checkpoint_at_the_last_part_moves_past_it(world: World) -> None:
    number = put_aggregate(world, "a", "b")
    desk = read_shard(world, position=Position(number, 1))
    await world.until(lambda: desk.batches)
    assert desk.owned.position == Position(number)
    world.put("c")
    assert await desk.read(1) == ["c"]


async def test_a_part_of_a_record_that_is_no_aggregate_is_the_whole(
    world: World,
) -> None:
    # The KCL stores the index 0 for such a record, too.
    number = world.kinesis.put("orders", b"a", explicit_hash_key=0)[1]
    world.put("b")
    desk = read_shard(world, position=Position(number, 0))
    assert await desk.read(1) == ["b"]


async def test_an_aggregate_without_records_moves_the_position(world: World) -> None:
    number = put_aggregate(world)
    desk = read_shard(world)
    await world.until(lambda: desk.batches)
    assert desk.texts == []
    assert desk.owned.position == Position(number)


async def test_an_empty_last_aggregate_ends_the_page(world: World) -> None:
    put_aggregate(world, "a", "b")
    number = put_aggregate(world)
    desk = read_shard(world)
    await desk.read(2)
    desk.owned.progress.done_through(2)
    assert desk.owned.position == Position(number)


BROKEN = aggregate([user("a")])[:-1] + b"!"


async def test_an_aggregate_of_a_javascript_writer_is_opened(world: World) -> None:
    message = field(0x0A, b"key") + field(0x12, b"undefined")
    message += field(0x1A, b"\x08\x00\x1a\x01a") + field(0x1A, b"\x08\x00\x1a\x01b")
    world.kinesis.put("orders", frame(message), explicit_hash_key=0)
    assert await read_shard(world).read(2) == ["a", "b"]


async def test_aggregates_that_cannot_be_opened_are_delivered_whole_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = CountingTelemetry()
    _, number = world.kinesis.put("orders", BROKEN, explicit_hash_key=0)
    put_aggregate(world, "b", "c")
    desk = read_shard(world, telemetry=telemetry)
    await world.until(lambda: len(desk.records) == 3)
    assert [record.data for record in desk.records] == [BROKEN, b"b", b"c"]
    assert telemetry.counted["corrupt_aggregates"] == 1
    assert warnings(caplog) == [
        f"orders {SHARD}: records that begin like KPL aggregates can't be opened, and "
        f"are delivered whole (the first has the sequence number {number})"
    ]


async def test_a_shard_of_broken_aggregates_warns_once_a_minute_and_is_an_incident(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    desk = read_shard(world)
    for _ in range(14):
        world.kinesis.put("orders", BROKEN, explicit_hash_key=0)
        await asyncio.sleep(10)
    assert len(warnings(caplog)) == 3
    (incident,) = desk.incidents.current()
    assert incident.kind is IncidentKind.CORRUPT_AGGREGATE
    assert (incident.shard_id, incident.count) == (SHARD, 14)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if r.levelname == "WARNING"]


async def test_records_outside_the_hash_range_are_counted(world: World) -> None:
    data = aggregate([user("in", 5), user("out", HASH_KEYS - 1)])
    world.kinesis.put("orders", data, explicit_hash_key=0)
    telemetry = CountingTelemetry()
    desk = read_shard(world, last_hash=HASH_KEYS // 2, telemetry=telemetry)
    assert await desk.read(2) == ["in", "out"]
    assert telemetry.counted["records_outside_hash_range"] == 1


async def test_an_aggregate_for_which_there_is_no_memory_is_opened_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = put_aggregate(world, "a", "b", "c")
    refuse_memory(monkeypatch, times=3)
    put_aggregate(world, "d", "e")
    desk = read_shard(world, position=Position(number, 0))
    assert await desk.read(4) == ["b", "c", "d", "e"]


@pytest.mark.parametrize("after", range(7))
@pytest.mark.parametrize("done", [0, 17])
async def test_an_aggregate_is_continued_where_memory_was_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, after: int, done: int
) -> None:
    for module in (aggregation, aggregate_readers):
        monkeypatch.setattr(module, "STEP_RECORDS", 10)
    texts = [str(n) for n in range(45)]
    number = put_aggregate(world, *texts)
    put_aggregate(world, "last")
    refuse_memory(monkeypatch, times=2, after=after)
    position = Position(number, done - 1) if done else None
    desk = read_shard(world, position=position)
    await desk.read(46 - done)
    await asyncio.sleep(10)
    assert desk.texts == [*texts[done:], "last"]
    assert desk.buffer.opened == 0
    assert desk.buffer.used == desk.buffer.delivered


async def test_a_large_aggregate_lets_other_tasks_run_between_its_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (aggregation, aggregate_readers):
        monkeypatch.setattr(module, "STEP_RECORDS", 10)
    monkeypatch.setattr(aggregate_readers, "STEP_FIELDS", 10)
    # The table comes last, so the aggregate is read twice.
    message = field(0x1A, b"\x08\x00\x1a\x01x") * 200 + field(0x0A, b"key")
    world.kinesis.put("orders", frame(message), explicit_hash_key=0)
    desk = read_shard(world)
    turns = 0
    while len(desk.records) < 200:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2 * 200 // 10
    assert all(len(batch) <= 10 for batch in desk.batches)
