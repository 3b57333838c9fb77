"""Test how a session releases its shards, loses them, and gives up stale ones."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.ports import Write, WriteResult
from kinesumer.wire import admin_writes, rows
from tests.support.clients import DyingFleet, numbered
from tests.support.lease_owner import LOWER, UPPER, WHOLE, Owner, P, change, own
from tests.support.world import APP, ARN, World


async def test_a_release_stores_the_position_in_the_same_write(world: World) -> None:
    owner = await own(world, "a", "b")
    owner.plan((), version=2)
    await owner.owns()
    release = owner.store.sent[-1]
    assert "sequence_number" in release.set
    assert "owner" in release.remove
    row = owner.row()
    assert row.owner == ""
    last = world.kinesis.stream("orders").shards[P].log[-1]
    assert row.position == Position(last.sequence_number)


async def test_a_release_waits_for_user_code_but_not_for_ever(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    owner = await own(world, drain_timeout_seconds=10.0)
    owner.finishes = False
    world.put("a")
    await world.until(lambda: owner.texts)
    owner.plan((), version=2)
    await asyncio.sleep(9)
    assert owner.held() == [P]
    await owner.owns(seconds=5)
    assert owner.row().position is None
    assert "didn't finish within 10 s; the next owner repeats " in caplog.text


async def test_the_next_owner_delivers_what_was_only_fetched(world: World) -> None:
    first = await own(world, max_uncommitted_records=4)
    first.finishes = False
    world.put(*"abcdef")
    await world.until(lambda: len(first.texts) == 4)
    first.finishes = True
    second = await Owner(world, "c2").begin()
    second.plan(WHOLE)
    first.plan((), version=2)
    await second.owns(P)
    await world.until(lambda: len(second.texts) >= 2)
    assert "".join(first.texts + second.texts) == "abcdef"


@pytest.mark.parametrize("how", ["lost", "unanswered", "throttled"])
async def test_a_release_whose_answer_is_lost_is_settled(
    world: World, how: str
) -> None:
    owner = await own(world, "a")
    owner.store.spoil(how, "owner")
    owner.plan((), version=2)
    await owner.owns()
    assert owner.row().owner == ""
    assert owner.row().position is not None
    assert owner.coordinator.shards.lost == set()


async def test_acks_during_a_release_are_reported_as_lost(world: World) -> None:
    owner = await own(world, drain_timeout_seconds=1.0)
    owner.finishes = False
    world.put("a")
    await world.until(lambda: owner.texts)
    owned = owner.owned()
    owner.store.latency = 0.5
    owner.plan((), version=2)
    await world.until(lambda: owned.revoked)
    await asyncio.sleep(1.2)
    owned.progress.done_through(1)
    await owner.owns()
    assert owner.row().position is None
    assert owner.coordinator.shards.lost == {owned.key}


async def test_a_release_of_a_shard_taken_over_reports_the_loss(world: World) -> None:
    owner = await own(world, "a")
    await change(world, P, owner="thief", epoch=2)
    owner.plan((), version=2)
    await owner.owns()
    assert owner.coordinator.shards.lost == {ShardKey(ARN, P)}
    assert owner.row().owner == "thief"


@pytest.mark.parametrize("texts", ["", "a"])
async def test_a_dropped_shard_is_lost_if_its_position_is_not_stored(
    world: World, texts: str
) -> None:
    owner = await own(world)
    world.put(*texts)
    await world.until(lambda: owner.texts == [*texts])
    owned = owner.owned()
    owner.coordinator.shards.drop_all()
    assert owned.lost
    assert owner.held() == []
    assert owner.coordinator.shards.lost == ({ShardKey(ARN, P)} if texts else set())


@pytest.mark.parametrize("is_dropped", [True, False])
async def test_giving_a_shard_up_frees_the_memory_of_its_queued_records(
    world: World, *, is_dropped: bool
) -> None:
    owner = await own(world)
    owner.consuming.cancel()
    world.put("a", "b")
    await asyncio.sleep(2)
    assert owner.buffer.used > 0
    if is_dropped:
        owner.coordinator.shards.drop(owner.owned())
        await asyncio.sleep(1)
    else:
        owner.plan((), version=2)
        await owner.owns()
    assert owner.buffer.used == 0


async def test_a_shard_read_to_its_end_can_be_released(world: World) -> None:
    """The shard isn't marked as ended, since its last record isn't done."""
    owner = await own(world, max_uncommitted_records=4)
    world.put("a", "b", "c", "d")
    world.kinesis.split("orders", P)
    owner.finishes = False
    await world.until(lambda: len(owner.texts) == 4)
    await world.until(lambda: owner.owned().children is not None)
    owner.owned().progress.done_through(3)
    owner.owned().set_delivered(3)
    owner.store.spoil("unanswered", "owner")
    await owner.coordinator.shards.release(owner.owned(), 0, "closed")
    assert owner.row().owner == ""
    assert not owner.row().ended
    assert owner.coordinator.shards.lost == set()


@pytest.mark.parametrize(
    "now",
    [
        pytest.param({"epoch": 1, "owner": "another session"}, id="claimed"),
        pytest.param({"ended": True, "owner": ""}, id="ended"),
    ],
)
async def test_a_shard_that_was_claimed_or_ended_takes_no_room_of_max_shards(
    world: World, now: dict[str, Any]
) -> None:
    owner = await Owner(world, max_shards=1).begin()
    stale = owner.coordinator.shards.stale
    stale.add(owner.row())
    assert stale.keys
    await change(world, P, **now)
    await stale.release((), [], ())
    assert not stale.keys


async def test_a_late_claim_that_a_pause_refused_is_released(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = rows.shard_key(APP, ShardKey(ARN, P), 0)
    owner = await Owner(world).begin()
    right = owner.store.write

    async def paused_meanwhile(write: Write) -> WriteResult:
        if "claim" in write.set:
            await world.table.write(admin_writes.pause(key, "maintenance"))
        return await right(write)

    monkeypatch.setattr(owner.store, "write", paused_meanwhile)
    owner.plan(LOWER)
    await world.until(lambda: owner.store.writes("claim"))
    monkeypatch.undo()
    await asyncio.sleep(1)
    assert owner.held() == []
    owner.plan(UPPER, version=2)
    await asyncio.sleep(1)
    await world.table.write(admin_writes.resume(key))
    late = owner.store.writes("claim")[0]
    assert (await world.table.write(late)).applied
    await world.until(lambda: owner.row().owner == "", seconds=61)


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


@pytest.mark.slow
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
