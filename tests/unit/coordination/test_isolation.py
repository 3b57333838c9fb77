"""Test that a record that kills each process that gets it is found and set aside."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire import admin_writes
from tests.support.dying_fleet import DyingFleet, numbered
from tests.support.world import APP, World


@pytest.mark.parametrize("before", [0, 1, 30])
async def test_five_deaths_name_the_record_and_its_shard_stops(
    world: World, before: int, caplog: pytest.LogCaptureFixture
) -> None:
    world.put(*numbered(before))
    fleet = DyingFleet(world)
    fleet.deadly = {"bad"}
    await fleet.until_done(*numbered(before))
    world.put("bad", "next")
    await fleet.until_stopped()
    assert fleet.deaths == ["bad"] * 5
    assert {*fleet.seen} == {*numbered(before)}
    assert "killed the processes that received it; the shard stops" in caplog.text


async def test_a_stopped_shard_goes_on_after_a_seek_past_the_record(
    world: World,
) -> None:
    world.put("bad", "next")
    fleet = DyingFleet(world)
    fleet.deadly = {"bad"}
    await fleet.until_stopped()
    poison = fleet.row().poison
    assert poison is not None
    write = admin_writes.seek(APP, fleet.row(), poison, waits=False)
    assert (await world.table.write(write)).applied
    await fleet.until_done("next")
    assert fleet.row().deaths.counted == 0
    assert len(fleet.deaths) == 5


async def test_the_record_becomes_a_dead_letter_if_there_is_a_target(
    world: World,
) -> None:
    texts = numbered(20)
    world.put(*texts[:10], "bad", *texts[10:])
    fleet = DyingFleet(world, runs={"dead_letters": "file:letters"})
    fleet.deadly = {"bad"}
    await fleet.until_done(*texts)
    assert (fleet.deaths, fleet.letters) == (["bad"] * 5, ["bad"])
    await world.until(lambda: not fleet.row().deaths.counted, 200)


@pytest.mark.parametrize("seed", range(2))
async def test_random_deaths_isolate_no_shard_with_traffic(
    world: World, seed: int
) -> None:
    world.kinesis.create_stream("orders", 4)
    fleet, draw, texts = DyingFleet(world), Random(seed), numbered(1500)
    for number, text in enumerate(texts):
        world.put(text, hash_key=draw.randrange(HASH_KEYS))
        await asyncio.sleep(0.4)
        if number % 20 == 19:
            fleet.kill(draw.choice([*fleet.clients]))
    await fleet.until_done(*texts)
    assert fleet.most_deaths < 3


async def test_deaths_of_an_idle_shards_owners_are_not_counted(world: World) -> None:
    world.put("a")
    fleet = DyingFleet(world)
    await fleet.until_done("a")
    for _ in range(8):
        await asyncio.sleep(60)
        for client_id, client in fleet.clients.items():
            if client.held:
                fleet.kill(client_id)
    assert fleet.most_deaths == 1


async def test_leaving_is_no_death(world: World) -> None:
    world.put(*numbered(1000))
    fleet = DyingFleet(world)
    fleet.delay_seconds = 1.0
    for number in range(12):
        await asyncio.sleep(20)
        client_id = f"c{number % 3}"
        client = fleet.clients[client_id]
        await client.run(client.group.leave())
        fleet.start(client_id)
    assert fleet.most_deaths == 0
