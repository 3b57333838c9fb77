"""The end of a shard: its children open when all of it, and all parents, are done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Interval, Shard, ShardKey
from kinesumer.wire import writes
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
from tests.support.world import APP, ARN, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.ports import Write


def ends(owner: Owner) -> list[Write]:
    return [w for w in owner.store.writes("ended") if w.set["ended"] is True]


@in_virtual_time
async def test_a_closed_shard_ends_and_its_children_follow(world: World) -> None:
    owner = await own(world)
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


@in_virtual_time
async def test_closed_shards_that_wait_for_user_code_cost_nothing(
    world: World,
) -> None:
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
    owner.finishes = True
    await owner.owns(LOW, HIGH, seconds=2)


@in_virtual_time
async def test_children_are_made_before_the_end_and_opened_after_it(
    world: World,
) -> None:
    owner = await own(world)
    owner.store.sent.clear()
    world.kinesis.split("orders", P)
    await owner.owns(LOW, HIGH)
    kinds = [
        next(name for name in ("claim", "start", "ended", "ready") if name in write.set)
        for write in owner.store.sent
    ]
    assert kinds == ["start", "start", "ended", "ready", "ready", "claim", "claim"]


@in_virtual_time
async def test_a_shard_given_up_while_it_ends_isnt_called_lost(world: World) -> None:
    owner = await own(world)
    world.put("a")
    await world.until(lambda: owner.texts == ["a"])
    owner.store.latency = 0.3
    owner.store.sent.clear()
    world.kinesis.split("orders", P)
    await world.until(lambda: owner.store.writes("start"))
    await asyncio.sleep(0.1)
    owner.coordinator._begin_hand_over(owner.owned())
    await world.until(lambda: ends(owner))
    await asyncio.sleep(1)
    assert owner.row().position is not None
    assert owner.coordinator.shards.lost == set()


@in_virtual_time
async def test_the_end_waits_until_all_records_are_done(world: World) -> None:
    owner = await own(world)
    owner.finishes = False
    world.put("a")
    world.kinesis.split("orders", P)
    await asyncio.sleep(60)
    assert owner.held() == [P]
    assert not owner.row().ended
    owner.finishes = True
    await owner.owns(LOW, HIGH, seconds=1)


@in_virtual_time
async def test_the_end_is_stored_though_the_last_record_was_committed_before(
    world: World,
) -> None:
    _, number = world.kinesis.put("orders", b"a", explicit_hash_key=0)
    world.kinesis.split("orders", P)
    owner = await Owner(world).begin()
    await change(world, P, sequence_number=number)
    owner.plan(WHOLE)
    await owner.owns(LOW, HIGH)
    assert owner.texts == []
    assert owner.row().position == Position(number)


@in_virtual_time
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
@in_virtual_time
async def test_a_lost_answer_anywhere_in_the_end_is_settled(
    world: World, how: str, attribute: str
) -> None:
    owner = await own(world)
    world.put("a")
    await world.until(lambda: owner.texts)
    owner.store.spoil(how, attribute)
    world.kinesis.split("orders", P)
    await owner.owns(LOW, HIGH, seconds=3)
    assert owner.coordinator.shards.lost == set()


@in_virtual_time
async def test_an_end_that_another_owner_prevents_opens_nothing(world: World) -> None:
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


@in_virtual_time
async def test_a_release_of_a_shard_that_was_read_to_its_end_is_settled_too(
    world: World,
) -> None:
    """It is a release all the same: the shard hasn't ended."""
    owner = await own(world, max_uncommitted_records=4)
    world.put("a", "b", "c", "d")
    world.kinesis.split("orders", P)
    owner.finishes = False
    await world.until(lambda: len(owner.texts) == 4)
    await world.until(lambda: owner.owned().children is not None)
    owner.owned().progress.done_through(3)
    owner.owned().set_delivered(3)
    owner.store.spoil("unanswered", "owner")
    await owner.coordinator.shards.release(owner.owned(), 0)
    assert owner.row().owner == ""
    assert not owner.row().ended
    assert owner.coordinator.shards.lost == set()


# --- merges ---


class Pair:
    """Two owners of the two halves of a stream."""

    def __init__(self, low: Owner, high: Owner) -> None:
        self.low, self.high = low, high

    @property
    def texts(self) -> list[str]:
        return self.low.texts + self.high.texts


async def own_halves(world: World) -> Pair:
    """Return the owners of a stream whose two shards will merge."""
    world.kinesis.create_stream("orders", 2)
    pair = Pair(await Owner(world).begin(), await Owner(world, "c2").begin())
    pair.low.plan(LOWER)
    pair.high.plan(UPPER)
    await pair.low.owns(P)
    await pair.high.owns(LOW)
    return pair


@in_virtual_time
async def test_of_two_owners_of_a_merge_at_least_one_opens_the_child(
    world: World,
) -> None:
    pair = await own_halves(world)
    world.put("a")
    world.put("b", hash_key=HASH_KEYS - 1)
    child = world.kinesis.merge("orders", P, LOW)
    world.put("c")
    await pair.low.owns(child, seconds=2)
    await world.until(lambda: len(pair.texts) == 3)
    assert pair.low.texts == ["a", "c"]


@in_virtual_time
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


@in_virtual_time
async def test_a_sibling_that_has_expired_counts_as_ended(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    child = world.kinesis.merge("orders", P, LOW)
    owner = await Owner(world).begin()
    await change(world, LOW, ended=True)
    listed = owner.source.source.list_shards_now()
    await world.table.write(prune(owner, LOW))
    owner.source.listing = [shard for shard in listed if shard.shard_id != LOW]
    owner.plan(LOWER)
    await owner.owns(child, seconds=2)


@in_virtual_time
async def test_a_sibling_without_a_row_that_is_listed_has_not_ended(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 2)
    child = world.kinesis.merge("orders", P, LOW)
    owner = await Owner(world).begin()
    await change(world, LOW, ended=True)
    await world.table.write(prune(owner, LOW))
    owner.plan(LOWER)
    await world.until(lambda: owner.row().ended)
    await asyncio.sleep(10)
    assert not owner.row(child).ready


@in_virtual_time
async def test_a_listing_without_the_child_proves_nothing_of_its_parents(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 2)
    child = world.kinesis.merge("orders", P, LOW)
    owner = await Owner(world).begin()
    await change(world, LOW, ended=True)
    await world.table.write(prune(owner, LOW))
    listed = owner.source.source.list_shards_now()
    owner.source.listing = [s for s in listed if s.shard_id not in (LOW, child)]
    owner.plan(LOWER)
    await world.until(lambda: owner.row().ended)
    await asyncio.sleep(10)
    assert not owner.row(child).ready


def prune(owner: Owner, shard_id: str) -> Write:
    return writes.prune_shard(APP, owner.row(shard_id))


# --- crashes between the writes, and what the last page leaves out ---


@in_virtual_time
async def test_a_crash_after_the_children_were_made_is_finished_by_the_next_owner(
    world: World,
) -> None:
    first = await own(world)
    first.store.latency = 0.2
    world.kinesis.split("orders", P)
    await world.until(lambda: LOW in world.shard_rows())
    first.running.cancel()
    await first.die()
    second = await Owner(world, "c2").begin()
    second.plan(WHOLE)
    await second.owns(LOW, HIGH, seconds=5)


@in_virtual_time
async def test_a_crash_after_the_end_is_repaired_by_whoever_keeps_the_rows(
    world: World,
) -> None:
    first = await own(world)
    first.store.latency = 0.2
    world.kinesis.split("orders", P)
    await world.until(lambda: world.shard_rows()[P].ended)
    first.running.cancel()
    await first.die()
    second = await Owner(world, "c2").begin()
    second.plan(WHOLE)
    await asyncio.sleep(1)
    await sync_shards(second.context, second.stream)
    await second.owns(LOW, HIGH, seconds=2)


@in_virtual_time
async def test_children_that_the_last_page_does_not_name_are_looked_up(
    world: World,
) -> None:
    owner = await own(world)
    world.kinesis.split("orders", P)
    world.kinesis.stream("orders").shards[P].children.clear()
    await owner.owns(LOW, HIGH, seconds=2)


@in_virtual_time
async def test_an_expired_shard_without_children_simply_ends(world: World) -> None:
    owner = await own(world)
    world.kinesis.stream("orders").shards.pop(P)
    await world.until(lambda: owner.row().ended)
    assert owner.held() == []
    assert len(ends(owner)) == 1


@in_virtual_time
async def test_children_that_only_the_group_remembers_are_opened_at_once(
    world: World,
) -> None:
    owner = await own(world)
    world.kinesis.split("orders", P)
    await sync_shards(world.context(), world.open(world.kinesis.source("orders")))
    for shard_id in (P, LOW, HIGH):
        world.kinesis.stream("orders").shards.pop(shard_id)
    await world.until(lambda: owner.row(LOW).ended and owner.row(HIGH).ended)
    assert len(ends(owner)) == 3


@in_virtual_time
async def test_a_child_takes_the_owner_of_its_own_place(world: World) -> None:
    """The first child starts where its parent starts, the others inside it."""
    owner = await Owner(world).begin()
    owner.plan((Interval(ARN, 0, 0),))
    await owner.owns(P)
    world.kinesis.split("orders", P)
    await owner.owns(LOW)
    assert owner.row(HIGH).ready
    assert owner.row(HIGH).owner == ""
    assert Shard(HIGH, HASH_KEYS // 2, HASH_KEYS - 1, (P,)) in (
        owner.source.source.list_shards_now()
    )
