"""Test that a shard's children open after all records of all parents are done."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.ports import Write
from kinesumer.wire import shard_writes
from tests.support.lease_owner import (
    HIGH,
    LOW,
    LOWER,
    UPPER,
    WHOLE,
    Owner,
    P,
    change,
    own,
)
from tests.support.world import APP, ARN, World


def ends(owner: Owner) -> list[Write]:
    return [w for w in owner.store.writes("ended") if w.set["ended"] is True]


async def test_a_closed_shard_ends_and_its_children_follow(world: World) -> None:
    owner = await own(world)
    owner.store.sent.clear()
    world.put("a")
    world.kinesis.split("orders", P)
    world.put("b")
    world.put("c", hash_key=HASH_KEYS - 1)
    await owner.owns(LOW, HIGH, seconds=2)
    await world.until(lambda: len(owner.texts) == 3)
    assert owner.texts[0] == "a"
    row = owner.row()
    assert (row.ended, row.owner) == (True, "")
    last = world.kinesis.stream("orders").shards[P].log[-1]
    assert row.position == Position(last.sequence_number)
    kinds = [
        next(name for name in ("claim", "start", "ended", "ready") if name in write.set)
        for write in owner.store.sent
    ]
    assert kinds == ["start", "start", "ended", "ready", "ready", "claim", "claim"]


async def test_the_end_waits_for_user_code_without_polling(world: World) -> None:
    owner = await own(world)
    owner.finishes = False
    world.put("a")
    world.kinesis.split("orders", P)
    await world.until(lambda: owner.texts == ["a"])
    await asyncio.sleep(5)
    steps, stocks = world.loop.steps, owner.stocks
    await asyncio.sleep(50)
    assert owner.stocks == stocks
    assert world.loop.steps - steps < 100
    assert owner.held() == [P]
    assert not owner.row().ended
    owner.finishes = True
    await owner.owns(LOW, HIGH, seconds=1)


async def test_a_shard_released_while_it_ends_is_not_lost(world: World) -> None:
    owner = await own(world, "a")
    owner.store.latency = 0.3
    owner.store.sent.clear()
    world.kinesis.split("orders", P)
    await world.until(lambda: owner.store.writes("start"))
    await asyncio.sleep(0.1)
    owner.coordinator._begin_hand_over(owner.owned(), "moved")
    await world.until(lambda: ends(owner))
    await asyncio.sleep(1)
    assert owner.row().position is not None
    assert owner.coordinator.shards.lost == set()


async def test_the_end_is_stored_after_the_last_commit(world: World) -> None:
    _, number = world.kinesis.put("orders", b"a", explicit_hash_key=0)
    world.kinesis.split("orders", P)
    owner = await Owner(world).begin()
    await change(world, P, sequence_number=number)
    owner.plan(WHOLE)
    await owner.owns(LOW, HIGH)
    assert owner.texts == []
    assert owner.row().position == Position(number)


async def test_a_chain_of_reshards_is_followed_in_order(world: World) -> None:
    world.put("a")
    world.kinesis.split("orders", P)
    world.put("b")
    child = world.kinesis.merge("orders", LOW, HIGH)
    world.put("c")
    owner = await Owner(world).begin()
    owner.plan(WHOLE)
    await owner.owns(child)
    await world.until(lambda: len(owner.texts) == 3)
    assert owner.texts == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["lost", "unanswered", "throttled"])
@pytest.mark.parametrize("attribute", ["start", "ended", "ready"])
async def test_a_lost_answer_anywhere_in_the_end_is_settled(
    world: World, how: str, attribute: str
) -> None:
    owner = await own(world, "a")
    owner.store.spoil(how, attribute)
    world.kinesis.split("orders", P)
    await owner.owns(LOW, HIGH, seconds=3)
    assert owner.coordinator.shards.lost == set()


async def test_an_end_that_another_owner_prevents_readies_no_child(
    world: World,
) -> None:
    owner = await own(world)
    owner.finishes = False
    world.put("a")
    await world.until(lambda: owner.texts)
    world.kinesis.split("orders", P)
    await asyncio.sleep(5)
    await change(world, P, owner="thief", epoch=2)
    owner.finishes = True
    await owner.owns()
    assert owner.coordinator.shards.lost == {ShardKey(ARN, P)}
    assert not owner.row().ended
    assert not owner.row(LOW).ready


# --- merges ---


class Pair:
    """Two owners of the two halves of a stream."""

    def __init__(self, low: Owner, high: Owner) -> None:
        self.low, self.high = low, high

    @property
    def texts(self) -> list[str]:
        return self.low.texts + self.high.texts


async def own_halves(world: World) -> Pair:
    """Return the owners of a stream with two shards, each the owner of one."""
    world.kinesis.create_stream("orders", 2)
    pair = Pair(await Owner(world).begin(), await Owner(world, "c2").begin())
    pair.low.plan(LOWER)
    pair.high.plan(UPPER)
    await pair.low.owns(P)
    await pair.high.owns(LOW)
    return pair


async def test_one_of_two_owners_of_a_merge_readies_the_child(world: World) -> None:
    pair = await own_halves(world)
    world.put("a")
    world.put("b", hash_key=HASH_KEYS - 1)
    child = world.kinesis.merge("orders", P, LOW)
    world.put("c")
    await pair.low.owns(child, seconds=2)
    await world.until(lambda: len(pair.texts) == 3)
    assert pair.low.texts == ["a", "c"]


async def test_the_child_of_a_merge_waits_for_the_slower_parent(world: World) -> None:
    pair = await own_halves(world)
    pair.high.finishes = False
    world.put("slow", hash_key=HASH_KEYS - 1)
    child = world.kinesis.merge("orders", P, LOW)
    await asyncio.sleep(30)
    assert pair.low.row().ended
    assert not pair.low.row(child).ready
    pair.high.finishes = True
    await pair.low.owns(child, seconds=2)


async def test_the_other_parent_gets_its_row_before_the_child_of_a_merge(
    world: World,
) -> None:
    # The other parent is the child of a shard that has just been split. So it has no
    # row yet, unless its parent's owner has created it.
    world.kinesis.create_stream("orders", 2)
    owner = await Owner(world).begin()
    left, _ = world.kinesis.split("orders", LOW)
    child = world.kinesis.merge("orders", P, left)
    owner.plan(LOWER)
    await world.until(lambda: owner.row().ended)
    created = [w.key.sk.partition("/")[2] for w in owner.store.writes("start")]
    assert created.index(left) < created.index(child)


async def test_a_merge_that_no_listing_shows_is_left_to_shard_sync(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 2)
    owner = await Owner(world).begin()
    owner.source.listing = owner.source.list_shards_now()
    left, _ = world.kinesis.split("orders", LOW)
    child = world.kinesis.merge("orders", P, left)
    owner.plan(LOWER)
    await world.until(lambda: owner.row().ended)
    assert child not in world.shard_rows()
    owner.source.listing = None
    await sync_shards(owner.context, owner.stream)
    created = [w.key.sk.partition("/")[2] for w in owner.store.writes("start")]
    assert created.index(left) < created.index(child)


async def test_children_are_created_only_while_no_other_client_can_own_the_shard(
    world: World,
) -> None:
    owner = await own(world)
    owner.lease.deadline = 0.0
    owned = owner.owned()
    world.kinesis.split("orders", P)
    await asyncio.sleep(10)
    assert [*world.shard_rows()] == [P]
    owned.lose()
    await asyncio.sleep(1)
    owner.lease.deadline = 1e9
    await asyncio.sleep(10)
    assert [*world.shard_rows()] == [P]


# --- crashes between the writes, and what the last page leaves out ---


@pytest.mark.parametrize(
    ("lists_sibling", "lists_child", "opens"),
    [(False, True, True), (True, True, False), (False, False, False)],
)
async def test_a_sibling_without_a_row_has_ended_if_kinesis_does_not_list_it(
    world: World, *, lists_sibling: bool, lists_child: bool, opens: bool
) -> None:
    world.kinesis.create_stream("orders", 2)
    child = world.kinesis.merge("orders", P, LOW)
    owner = await Owner(world).begin()
    await change(world, LOW, ended=True)
    await world.table.write(shard_writes.prune_shard(APP, owner.row(LOW)))
    # A listing without the child is incomplete: it doesn't prove the sibling's end.
    missing = {LOW: not lists_sibling, child: not lists_child}
    listed = owner.source.list_shards_now()
    owner.source.listing = [s for s in listed if not missing.get(s.shard_id)]
    owner.plan(LOWER)
    await world.until(lambda: owner.row().ended)
    await asyncio.sleep(10)
    assert owner.row(child).ready is opens


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_crash_before_or_after_the_end_is_repaired(
    world: World, *, has_ended: bool
) -> None:
    first = await own(world)
    first.store.latency = 0.2
    world.kinesis.split("orders", P)
    await world.until(lambda: LOW in world.shard_rows())
    if has_ended:
        await world.until(lambda: first.row().ended)
    assert first.row().ended == has_ended
    first.running.cancel()
    await first.die()
    second = await Owner(world, "c2").begin()
    second.plan(WHOLE)
    if has_ended:  # only shard sync opens the children of an ended shard
        await asyncio.sleep(1)
        await sync_shards(second.context, second.stream)
    await second.owns(LOW, HIGH, seconds=2 if has_ended else 5)


async def test_children_missing_in_the_last_page_are_listed(world: World) -> None:
    owner = await own(world)
    world.kinesis.split("orders", P)
    world.kinesis.stream("orders").shards[P].children.clear()
    await owner.owns(LOW, HIGH, seconds=2)


async def test_an_expired_shard_without_children_simply_ends(world: World) -> None:
    owner = await own(world)
    world.kinesis.stream("orders").shards.pop(P)
    await world.until(lambda: owner.row().ended)
    assert owner.held() == []
    assert len(ends(owner)) == 1


async def test_expired_children_with_rows_become_ready(world: World) -> None:
    owner = await own(world)
    world.kinesis.split("orders", P)
    await sync_shards(world.context(), world.open(world.kinesis.source("orders")))
    for shard_id in (P, LOW, HIGH):
        world.kinesis.stream("orders").shards.pop(shard_id)
    await world.until(lambda: owner.row(LOW).ended and owner.row(HIGH).ended)
    assert len(ends(owner)) == 3
