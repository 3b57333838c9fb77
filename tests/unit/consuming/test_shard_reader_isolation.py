"""Test that user code gets the records that may kill one at a time, and until when."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.rows import Row
from kinesumer.model.streams import HASH_KEYS
from kinesumer.ports import Write
from kinesumer.wire.put_records import Entry, aggregate
from tests.support.clients import DyingFleet, P, numbered
from tests.support.world import World


@pytest.mark.slow
@pytest.mark.parametrize("delay_seconds", [0.01, 0.4, 3.0])
async def test_slow_user_code_and_commits_between_deaths_add_no_deaths(
    world: World, delay_seconds: float
) -> None:
    texts = numbered(40)
    world.put(*texts[:30], "bad", *texts[30:])
    fleet = DyingFleet(world)
    fleet.deadly, fleet.delay_seconds = {"bad"}, delay_seconds
    await fleet.until_stopped()
    assert fleet.deaths == ["bad"] * 5
    assert {*fleet.seen} == {*texts[:30]}


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_only_deadly_records_of_several_shards_become_dead_letters(
    world: World, concurrency: int
) -> None:
    world.kinesis.create_stream("orders", 8)
    texts = numbered(400)
    for number, text in enumerate(texts):
        bad = ["bad-a"] * (number == 150) + ["bad-b"] * (number == 303)
        world.put(*bad, text, hash_key=number % 8 * (HASH_KEYS // 8))
    runs = {"dead_letters": "file:letters", "concurrency": concurrency}
    fleet = DyingFleet(world, runs=runs)
    fleet.deadly, fleet.delay_seconds = {"bad-a", "bad-b"}, 0.02
    await fleet.until_done(*texts)
    await asyncio.sleep(60)
    assert sorted(fleet.letters) == ["bad-a", "bad-b"]
    assert max(map(fleet.deaths.count, fleet.deadly)) <= 5


@pytest.mark.slow
async def test_other_shards_go_on_and_their_isolation_ends(world: World) -> None:
    world.kinesis.create_stream("orders", 6)
    texts = numbered(300)
    for number, text in enumerate(texts):
        world.put(text, hash_key=number % 6 * (HASH_KEYS // 6))
    world.put("bad")
    fleet = DyingFleet(world)
    fleet.deadly = {"bad"}
    await fleet.until_stopped()
    await fleet.until_done(*texts)
    await asyncio.sleep(200)
    assert len(fleet.deaths) <= 5
    rows = world.shard_rows()
    assert [shard_id for shard_id in rows if rows[shard_id].poison] == [P]
    assert [shard_id for shard_id in rows if rows[shard_id].is_isolated] == [P]


async def test_a_record_of_an_aggregate_is_named_alone(world: World) -> None:
    texts = ["a", "b", "bad", "c"]
    entries = [Entry(text.encode(), "key", "0") for text in texts]
    world.kinesis.put("orders", aggregate(entries), "key", 0)
    fleet = DyingFleet(world, runs={"dead_letters": "file:letters"})
    fleet.deadly = {"bad"}
    await fleet.until_done("a", "b", "c")
    assert (fleet.deaths, fleet.letters) == (["bad"] * 5, ["bad"])


async def test_isolation_ends_at_the_first_record_after_the_deaths(
    world: World,
) -> None:
    world.put(*numbered(50), "bad")
    fleet = DyingFleet(world)
    fleet.deadly = {"bad"}
    await world.until(lambda: len(fleet.deaths) == 3, 200)
    fleet.deadly = set()
    await fleet.until_done("bad")
    assert fleet.row().is_isolated
    notes = fleet.notes
    world.put(*(f"later {number}" for number in range(500)))
    await world.until(lambda: not fleet.row().deaths.counted, 20)
    await fleet.until_done("later 499", seconds=20)
    assert fleet.notes == notes
    assert len(fleet.seen) < 50 * 4 + 1 + 500 + 50


async def test_isolation_of_a_shard_without_new_records_ends(world: World) -> None:
    world.put("bad")
    fleet = DyingFleet(world)
    fleet.deadly = {"bad"}
    await world.until(lambda: len(fleet.deaths) == 3, 200)
    fleet.deadly = set()
    await fleet.until_done("bad")
    await world.until(lambda: not fleet.row().deaths.counted, 200)


async def test_user_code_that_acks_records_together_is_not_blocked(
    world: World,
) -> None:
    texts = numbered(20)
    world.put(*texts, "bad", "next")
    fleet = DyingFleet(world, commit="manual")
    fleet.deadly = {"bad"}
    await world.until(lambda: len(fleet.deaths) == 4, 600)
    # User code acknowledges nothing, so the deaths name the records that it had.
    await fleet.until_stopped()
    assert len(fleet.deaths) == 5
    assert fleet.row().position is None
    log = world.kinesis.stream("orders").shards[P].log
    [bad] = [record for record in log if record.data == b"bad"]
    assert fleet.row().poison == Position(bad.sequence_number)


@pytest.mark.slow
@pytest.mark.parametrize("delay_seconds", [0.01, 0.4])
async def test_with_manual_commits_only_the_deadly_record_is_named(
    world: World, delay_seconds: float
) -> None:
    world.kinesis.create_stream("orders", 9)
    for number, text in enumerate(numbered(45)):
        world.put(text, hash_key=number % 9 * (HASH_KEYS // 9))
    world.put("bad", "next")
    fleet = DyingFleet(world, commit="manual")
    fleet.deadly, fleet.delay_seconds = {"bad"}, delay_seconds
    await fleet.until_stopped()
    assert len(fleet.deaths) == 5
    log = world.kinesis.stream("orders").shards[P].log
    [bad] = [record for record in log if record.data == b"bad"]
    named = {shard_id: row.poison for shard_id, row in world.shard_rows().items()}
    assert {k: v for k, v in named.items() if v} == {P: Position(bad.sequence_number)}
    # User code has acknowledged nothing, so no checkpoint has moved.
    assert {row.position for row in world.shard_rows().values()} == {None}


async def test_a_note_that_arrives_late_changes_nothing(world: World) -> None:
    world.put(*numbered(20), "bad")
    fleet = DyingFleet(world)
    fleet.deadly = {"bad"}
    old: list[Write] = []

    def remember(write: Write, _before: Row | None, after: Row | None) -> None:
        if after is not None and "tried" in write.set:
            old.append(write)
            if len(old) > 1:
                asyncio.get_running_loop().create_task(world.table.write(old[-2]))

    world.table.on_write.append(remember)
    await fleet.until_stopped()
    assert fleet.deaths == ["bad"] * 5


async def test_an_unacknowledged_record_is_no_suspect_once_others_are_handed_out(
    world: World,
) -> None:
    world.put("bad")
    fleet = DyingFleet(world, commit="manual")
    fleet.deadly = {"bad"}
    await world.until(lambda: len(fleet.deaths) == 3, 200)
    fleet.deadly = set()
    await fleet.until_done("bad")
    assert fleet.row().deaths.tried is not None
    world.put("later")
    await fleet.until_done("later")
    assert fleet.row().deaths.tried is None
