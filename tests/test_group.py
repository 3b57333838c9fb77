"""Whole clients together: shares, hand-overs, crashes, outages, other streams."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.errors import (
    ShardsLostError,
    StateStoreMissingError,
    StateStoreReplacedError,
    StreamReplacedError,
)
from kinesumer.model import HASH_KEYS, Start
from kinesumer.wire import writes
from tests.engine import APP, FaultySource, FaultyStore, World, in_virtual_time

if TYPE_CHECKING:
    from tests.engine import Client

P = "shardId-000000000000"


def spread(world: World, *texts: str, stream: str = "orders") -> None:
    """Append records to all parts of the hash space in turn."""
    for index, text in enumerate(texts):
        hash_key = (index * HASH_KEYS // 8) % HASH_KEYS
        world.put(text, stream=stream, hash_key=hash_key)


def counts(*clients: Client) -> Counter[str]:
    return Counter(text for client in clients for text in client.texts)


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last)]


async def settled(world: World, *clients: Client, shards: int) -> None:
    """Wait until every shard is held, by clients with even shares."""

    def even() -> bool:
        sizes = [len(client.held) for client in clients]
        return sum(sizes) == shards and max(sizes) - min(sizes) <= 1

    await world.until(even)


# --- sharing ---


@in_virtual_time
async def test_clients_that_start_together_on_an_empty_table_share_at_once(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 8)
    spread(world, *numbers(0, 8))
    clients = [world.client(f"c{n}") for n in range(3)]
    await settled(world, *clients, shards=8)
    assert world.clock.now() < 10
    assert sum(client.leads for client in clients) == 1
    await world.until(lambda: len(counts(*clients)) == 8)


@in_virtual_time
async def test_the_first_record_comes_within_three_seconds(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    spread(world, *numbers(0, 8))
    client = world.client("c1")
    await world.until(lambda: len(client.seen) == 8, seconds=3)


@in_virtual_time
async def test_a_join_moves_shards_without_a_record_lost_or_repeated(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 8)
    first = world.client("c1")
    await settled(world, first, shards=8)
    second = world.client("c2")
    for n in range(300):
        spread(world, *numbers(8 * n, 8 * n + 8))
        await asyncio.sleep(0.1)
    await settled(world, first, second, shards=8)
    await world.until(lambda: len(counts(first, second)) == 2400)
    assert set(counts(first, second).values()) == {1}
    assert len(second.seen) > 800


@in_virtual_time
async def test_leaving_hands_over_without_a_record_repeated(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    stays, leaves = world.client("c1"), world.client("c2")
    await settled(world, stays, leaves, shards=8)
    leaving = leaves.run(leaves.group.leave())
    for n in range(100):
        spread(world, *numbers(8 * n, 8 * n + 8))
        await asyncio.sleep(0.1)
    await leaving
    await leaves.task
    await leaves.stop()
    await world.until(lambda: len(counts(stays, leaves)) == 800)
    assert set(counts(stays, leaves).values()) == {1}
    assert leaves.held == []
    assert world.members()["c2"].dead


@in_virtual_time
async def test_the_last_client_can_leave_too(world: World) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    await asyncio.wait_for(client.run(client.group.leave()), 0.1)
    await client.task
    await client.stop()
    assert world.shard_rows()[P].owner == ""


@in_virtual_time
async def test_a_crash_is_taken_over_in_time_and_nothing_is_lost(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    leader, victim = world.client("c1"), world.client("c2")
    await settled(world, leader, victim, shards=8)
    spread(world, *numbers(0, 800))
    await asyncio.sleep(7)
    victim.kill()
    spread(world, *numbers(800, 1600))
    await world.until(lambda: len(leader.held) == 8, seconds=11.5)
    await world.until(lambda: len(counts(leader, victim)) == 1600)
    assert set(leader.texts) >= set(numbers(800, 1600))


@in_virtual_time
async def test_a_crash_of_the_leader_is_taken_over_in_time(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    leader, standby = world.client("c1"), world.client("c2")
    await settled(world, leader, standby, shards=8)
    first, second = (leader, standby) if leader.leads else (standby, leader)
    first.kill()
    await world.until(lambda: len(second.held) == 8, seconds=13.5)
    assert second.leads


@in_virtual_time
async def test_a_static_id_takes_its_old_place_and_nothing_else_moves(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 9)
    clients = [world.client(f"pod-{n}") for n in range(3)]
    await settled(world, *clients, shards=9)
    await asyncio.sleep(10)
    before = {name: row.epoch for name, row in world.shard_rows().items()}
    held = clients[1].held
    clients[1].kill()
    again = world.client("pod-1")
    await world.until(lambda: again.held == held)
    await asyncio.sleep(30)
    after = {name: row.epoch for name, row in world.shard_rows().items()}
    assert {name for name in after if after[name] != before[name]} == {*held}


# --- death of a session ---


@in_virtual_time
async def test_a_client_told_dead_drops_everything_and_comes_back(
    world: World,
) -> None:
    world.put("a", "b")
    client = world.client("c1", commit="manual")
    await world.until(lambda: len(client.seen) == 2)
    session = world.members()["c1"].session
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: world.shard_rows()[P].epoch == 2)
    await world.until(lambda: len(client.seen) == 4)
    assert client.texts == ["a", "b", "a", "b"]
    assert world.members()["c1"].session != session
    client.group.mark(client.seen[0])
    with pytest.raises(ShardsLostError):
        await client.run(client.group.commit())
    client.group.mark(client.seen[2])
    await client.run(client.group.commit())
    assert world.shard_rows()[P].position == client.seen[0].position


@in_virtual_time
async def test_user_code_in_the_middle_of_a_lost_batch_goes_on_with_the_next(
    world: World,
) -> None:
    async def slow(_: object) -> None:
        await asyncio.sleep(3)

    world.put(*"abc")
    client = world.client("c1", handle=slow)
    await world.until(lambda: client.seen)
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: len(client.seen) == 4)
    assert client.texts == ["a", "a", "b", "c"]


@in_virtual_time
async def test_marks_of_a_session_that_died_are_told_as_lost(world: World) -> None:
    world.put("a", "b")
    client = world.client("c1", commit="manual")
    await world.until(lambda: len(client.seen) == 2)
    client.group.mark(client.seen[0])
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: world.shard_rows()[P].epoch == 2)
    with pytest.raises(ShardsLostError, match=f"orders/{P}"):
        await client.run(client.group.commit())
    await client.run(client.group.commit())


@in_virtual_time
async def test_an_answer_older_than_the_plan_at_hand_changes_nothing(
    world: World,
) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    old = world.members()["c1"]._replace(range=(), leader_epoch=0, plan_version=0)
    client.group._follow(old)
    await asyncio.sleep(10)
    assert client.held == [P]
    assert world.shard_rows()[P].epoch == 1


@in_virtual_time
async def test_streams_refreshed_between_two_sessions_are_consumed(
    world: World,
) -> None:
    world.kinesis.create_stream("payments")
    store = FaultyStore(world.table)
    client = world.client("c1", store=store)
    await world.until(lambda: client.held)
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: store.writes("beat"))
    store.latency = 0.5
    await world.until(lambda: client.group.session is None)
    await asyncio.sleep(0.9)
    await client.run(client.group.refresh(["orders", "payments"]))
    store.latency = 0.001
    world.put("a", stream="payments")
    await world.until(lambda: "a" in client.texts)


@in_virtual_time
async def test_user_code_without_progress_loses_its_shards_and_cannot_commit(
    world: World,
) -> None:
    async def hang(_: object) -> None:
        await asyncio.sleep(200)

    world.put("a", "b")
    stuck = world.client("c1", handle=hang, max_processing_time=60)
    await world.until(lambda: stuck.seen)
    healthy = world.client("c2")
    await world.until(lambda: healthy.texts == ["a", "b"], seconds=90)
    await asyncio.sleep(100)
    assert stuck.texts == ["a"]
    row = world.shard_rows()[P]
    assert (row.owner_id, row.epoch) == ("c2", 2)
    assert row.position == healthy.seen[1].position
    assert world.members()["c1"].dead
    await asyncio.sleep(60)
    assert not world.members()["c1"].dead


# --- outages ---


@in_virtual_time
async def test_an_outage_of_the_store_pauses_all_and_fences_nobody(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 4)
    stores = [FaultyStore(world.table) for _ in range(3)]
    clients = [world.client(f"c{n}", store=store) for n, store in enumerate(stores)]
    await settled(world, *clients, shards=4)
    sessions = {name: m.session for name, m in world.members().items()}
    for store in stores:
        store.down = True
    await asyncio.sleep(7)
    spread(world, *numbers(0, 80))
    await asyncio.sleep(60)
    assert counts(*clients) == {}
    for store in stores:
        store.down = False
    await world.until(lambda: len(counts(*clients)) == 80, seconds=10)
    await asyncio.sleep(60)
    assert {name: m.session for name, m in world.members().items()} == sessions
    assert set(counts(*clients).values()) == {1}


@in_virtual_time
async def test_who_cannot_read_kinesis_gives_its_shards_away_and_gets_them_back(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 4)
    sources: list[FaultySource] = []

    def cut_off(name: str) -> FaultySource:
        sources.append(FaultySource(world.kinesis.source(name)))
        return sources[-1]

    broken = world.client("c1", source=cut_off)
    others = [world.client(f"c{n}") for n in (2, 3)]
    await settled(world, broken, *others, shards=4)
    for source in sources:
        source.down = True
    spread(world, *numbers(0, 8))
    await world.until(lambda: len(counts(*others)) == 8, seconds=45)
    assert world.members()["c1"].state == "degraded"
    for source in sources:
        source.down = False
    await settled(world, broken, *others, shards=4)
    assert world.members()["c1"].state == "up"


@in_virtual_time
async def test_a_slow_handler_does_not_count_as_a_kinesis_out_of_reach(
    world: World,
) -> None:
    async def crawl(_: object) -> None:
        await asyncio.sleep(60)

    world.kinesis.create_stream("orders", 3)
    slow = world.client("c1", handle=crawl, max_uncommitted=2)
    others = [world.client(f"c{n}") for n in (2, 3)]
    await settled(world, slow, *others, shards=3)
    held = slow.held
    for _ in range(4):
        spread(world, *numbers(0, 8))
    for _ in range(100):
        await asyncio.sleep(2)
        assert world.members()["c1"].state == "up"
        assert slow.held == held


# --- other streams ---


@in_virtual_time
async def test_refresh_adds_and_removes_streams(world: World) -> None:
    world.kinesis.create_stream("payments", 2)
    client = world.client("c1")
    await world.until(lambda: client.held)
    await client.run(client.group.refresh(["orders", "payments"]))
    spread(world, "a", stream="payments")
    await world.until(lambda: "a" in client.texts)
    await client.run(client.group.refresh("payments"))
    await world.until(lambda: len(client.held) == 2)
    assert world.shard_rows("orders")[P].owner == ""
    world.put("b")
    await asyncio.sleep(60)
    assert client.texts == ["a"]
    await client.run(client.group.refresh(["orders", "payments"]))
    await world.until(lambda: client.texts == ["a", "b"])


@in_virtual_time
async def test_clients_that_ask_for_different_streams_get_only_what_they_ask(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 4)
    world.kinesis.create_stream("payments", 4)
    old = world.client("c1", "orders")
    new = world.client("c2", "orders", "payments")
    await world.until(lambda: len(old.held) + len(new.held) == 8)
    await world.until(lambda: len(new.held) == 4)
    assert {h.source.stream for h in old.group.holdings()} == {"orders"}
    assert {h.source.stream for h in new.group.holdings()} == {"payments"}
    spread(world, *numbers(0, 8))
    spread(world, *numbers(8, 16), stream="payments")
    await world.until(lambda: len(counts(old, new)) == 16)


@in_virtual_time
async def test_latest_is_resolved_once_though_the_first_owner_dies_at_once(
    world: World,
) -> None:
    world.put("old")
    await asyncio.sleep(5)
    first = world.client("c1", start=Start.LATEST)
    await world.until(lambda: first.held)
    first.kill()
    await asyncio.sleep(5)
    world.put("new")
    await asyncio.sleep(60)
    second = world.client("c2", start=Start.LATEST)
    await world.until(lambda: second.seen)
    assert second.texts == ["new"]


@in_virtual_time
async def test_reshards_under_load_lose_and_repeat_nothing(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    clients = [world.client(f"c{n}") for n in range(2)]
    await settled(world, *clients, shards=4)
    for n in range(20):
        spread(world, *numbers(8 * n, 8 * n + 8))
        if n in (5, 9):
            parent = world.kinesis.stream("orders").open[n % 4]
            world.kinesis.split("orders", parent.shard.shard_id)
        if n == 12:
            low, high = world.kinesis.stream("orders").open[:2]
            world.kinesis.merge("orders", low.shard.shard_id, high.shard.shard_id)
        await asyncio.sleep(0.5)
    await world.until(lambda: len(counts(*clients)) == 160)
    assert set(counts(*clients).values()) == {1}
    assert sum(row.ended for row in world.shard_rows().values()) == 4


# --- what ends a client ---


def made_anew(world: World) -> None:
    world.kinesis.delete_stream("orders")
    world.kinesis.create_stream("orders")


def emptied(world: World) -> None:
    world.table.create_table("table-2")


def deleted(world: World) -> None:
    world.table.delete_table()


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (made_anew, StreamReplacedError),
        (emptied, StateStoreReplacedError),
        (deleted, StateStoreMissingError),
    ],
)
@in_virtual_time
async def test_what_cannot_go_on_ends_the_iteration_with_its_reason(
    world: World, happens: Any, error: type[Exception]
) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    await asyncio.sleep(1)
    happens(world)
    await asyncio.wait([client.task], timeout=60)
    assert isinstance(client.task.exception(), error)
    try:
        await client.stop()
    except error:
        pass
    assert client.held == [] or error is StateStoreMissingError
