"""One session's shards: claims, hand-overs, ends, and answers that were lost."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.wire import writes
from tests.support.lease_owner import LOW, UPPER, WHOLE, Owner, P, change, own
from tests.support.world import APP, ARN, World, in_virtual_time

# --- claims ---


@in_virtual_time
async def test_free_shards_in_the_range_are_claimed_and_read(world: World) -> None:
    world.put("a")
    owner = await own(world)
    row = owner.row()
    assert (row.owner, row.owner_id, row.epoch) == (owner.session, "c1", 1)
    await world.until(lambda: owner.texts == ["a"])


@in_virtual_time
async def test_shards_outside_the_range_are_left_alone(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    owner = await Owner(world).begin()
    owner.plan(UPPER)
    await owner.owns(LOW)
    await asyncio.sleep(120)
    assert owner.held() == [LOW]
    assert owner.row(P).owner == ""


@in_virtual_time
async def test_a_shard_that_is_not_ready_is_waited_for(world: World) -> None:
    owner = await Owner(world).begin()
    await change(world, P, ready=False)
    owner.plan(WHOLE)
    await asyncio.sleep(10)
    assert owner.held() == []
    assert [row.key.shard_id for row in owner.coordinator.pending] == [P]
    await change(world, P, ready=True)
    await owner.owns(P, seconds=0.3)


@in_virtual_time
async def test_the_claim_of_a_living_owners_shard_waits_for_its_release(
    world: World,
) -> None:
    first = await own(world)
    second = await Owner(world, "c2").begin()
    second.plan(WHOLE)
    await asyncio.sleep(5)
    assert second.held() == []
    assert not second.store.writes("claim")
    first.plan((), version=2)
    await second.owns(P, seconds=3)


@in_virtual_time
async def test_a_claim_that_names_a_dead_session_needs_proof(world: World) -> None:
    first = await own(world)
    first.running.cancel()
    second = await Owner(world, "c2").begin()
    second.plan(WHOLE)
    await asyncio.sleep(30)
    assert second.held() == []
    await first.die()
    await second.owns(P, seconds=2.1)
    assert second.row().epoch == 2


@in_virtual_time
async def test_a_death_that_is_known_needs_no_other_proof(world: World) -> None:
    first = await own(world)
    first.running.cancel()
    await first.die()
    second = await Owner(world, "c2").begin()
    second.dead.add(first.session)
    second.plan(WHOLE)
    await second.owns(P, seconds=0.1)


@in_virtual_time
async def test_a_new_session_takes_over_from_its_predecessor(world: World) -> None:
    first = await own(world)
    first.running.cancel()
    await first.die()
    second = Owner(world, session="next")
    await world.table.write(writes.register(APP, second.member, first.member, "now"))
    second.running = world.loop.create_task(second.coordinator.run())
    second.plan(WHOLE)
    await second.owns(P, seconds=2)


@in_virtual_time
async def test_a_lost_claim_is_claimed_again(world: World) -> None:
    owner = await Owner(world).begin()
    owner.store.spoil("lost", "claim")
    owner.plan(WHOLE)
    await owner.owns(P, seconds=1)
    nonces = {write.set["claim"] for write in owner.store.writes("claim")}
    assert len(nonces) == 1
    assert owner.row().epoch == 1


@in_virtual_time
async def test_a_claim_whose_answer_is_lost_is_found_to_be_won(world: World) -> None:
    owner = await Owner(world).begin()
    owner.store.spoil("unanswered", "claim")
    owner.plan(WHOLE)
    await owner.owns(P, seconds=1)
    assert owner.row().epoch == 1
    assert len(owner.store.writes("claim")) == 2


@in_virtual_time
async def test_a_claim_whose_answer_is_lost_may_be_found_to_be_lost(
    world: World,
) -> None:
    owner = await Owner(world).begin()
    owner.store.spoil("lost", "claim")
    other = await Owner(world, "c2").begin()
    owner.plan(WHOLE)
    other.plan(WHOLE)
    await other.owns(P)
    await asyncio.sleep(5)
    assert owner.held() == []
    assert owner.row().owner == other.session


@in_virtual_time
async def test_a_throttled_claim_is_tried_again_with_a_fresh_look(
    world: World,
) -> None:
    owner = await Owner(world).begin()
    owner.store.spoil("throttled", "claim")
    owner.plan(WHOLE)
    await owner.owns(P, seconds=1)
    nonces = {write.set["claim"] for write in owner.store.writes("claim")}
    assert len(nonces) == 2


@in_virtual_time
async def test_an_outage_while_looking_is_survived(world: World) -> None:
    owner = await Owner(world).begin()
    owner.store.down = True
    owner.plan(WHOLE)
    await asyncio.sleep(100)
    owner.store.down = False
    await owner.owns(P, seconds=2)


@in_virtual_time
async def test_nothing_is_claimed_while_the_lease_has_lapsed(world: World) -> None:
    owner = await Owner(world).begin()
    owner.lease.deadline = 0
    owner.plan(WHOLE)
    await asyncio.sleep(30)
    assert not owner.store.sent
    owner.lease.deadline = 1e9
    await owner.owns(P, seconds=1)


@in_virtual_time
async def test_the_rounds_of_a_dead_session_end(world: World) -> None:
    owner = await own(world)
    owner.lease.end()
    owner.coordinator.shards.drop_all()
    owner.coordinator.poll_now()
    await asyncio.wait_for(owner.running, 5)
    assert owner.held() == []


@in_virtual_time
async def test_two_that_want_the_same_shard_get_it_once(world: World) -> None:
    one, other = await Owner(world).begin(), await Owner(world, "c2").begin()
    one.plan(WHOLE)
    other.plan(WHOLE)
    await asyncio.sleep(5)
    assert sorted([one.held(), other.held()]) == [[], [P]]


# --- hand-over ---


@in_virtual_time
async def test_a_hand_over_waits_a_heartbeat_for_the_next_owner_to_be_told(
    world: World,
) -> None:
    owner = await own(world)
    owner.plan((), version=2)
    await asyncio.sleep(2)
    assert owner.held() == [P]
    assert not owner.owned().revoked
    await owner.owns(seconds=0.6)


@in_virtual_time
async def test_a_range_that_comes_back_in_time_moves_nothing(world: World) -> None:
    owner = await own(world)
    owner.plan((), version=2)
    await asyncio.sleep(1)
    owner.plan(WHOLE, version=3)
    await asyncio.sleep(60)
    assert owner.held() == [P]
    assert owner.row().epoch == 1


@in_virtual_time
async def test_a_release_stores_the_position_in_the_same_write(world: World) -> None:
    owner = await own(world)
    world.put("a", "b")
    await world.until(lambda: len(owner.texts) == 2)
    owner.plan((), version=2)
    await owner.owns()
    release = owner.store.sent[-1]
    assert "sequence_number" in release.set
    assert "owner" in release.remove
    row = owner.row()
    assert row.owner == ""
    last = world.kinesis.stream("orders").shards[P].log[-1]
    assert row.position == Position(last.sequence_number)


@in_virtual_time
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


@in_virtual_time
async def test_what_is_fetched_but_not_delivered_is_the_next_owners(
    world: World,
) -> None:
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
@in_virtual_time
async def test_a_release_whose_answer_is_lost_is_settled(
    world: World, how: str
) -> None:
    owner = await own(world)
    world.put("a")
    await world.until(lambda: owner.texts)
    owner.store.spoil(how, "owner")
    owner.plan((), version=2)
    await owner.owns()
    assert owner.row().owner == ""
    assert owner.row().position is not None
    assert owner.coordinator.shards.lost == set()


@in_virtual_time
async def test_what_is_done_while_the_release_is_under_way_is_told_as_lost(
    world: World,
) -> None:
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


@in_virtual_time
async def test_a_release_of_what_another_owns_by_now_tells_the_loss(
    world: World,
) -> None:
    owner = await own(world)
    world.put("a")
    await world.until(lambda: owner.texts)
    await change(world, P, owner="thief", epoch=2)
    owner.plan((), version=2)
    await owner.owns()
    assert owner.coordinator.shards.lost == {ShardKey(ARN, P)}
    assert owner.row().owner == "thief"


@in_virtual_time
async def test_streams_not_asked_for_any_more_are_given_up_at_once(
    world: World,
) -> None:
    owner = await own(world)
    owner.coordinator.restrict(frozenset())
    await owner.owns(seconds=0.3)
    owner.plan(WHOLE, version=2)
    await asyncio.sleep(10)
    assert owner.held() == []


@in_virtual_time
async def test_a_dropped_shard_with_unstored_records_is_told_as_lost(
    world: World,
) -> None:
    owner = await own(world)
    world.put("a")
    await world.until(lambda: owner.texts)
    owned = owner.owned()
    owner.coordinator.shards.drop(owned)
    assert owned.lost
    assert owner.coordinator.shards.lost == {ShardKey(ARN, P)}
    assert owner.held() == []


@in_virtual_time
async def test_a_dropped_shard_gives_back_what_is_queued_of_it(world: World) -> None:
    owner = await own(world)
    owner.consuming.cancel()
    world.put("a")
    await asyncio.sleep(2)
    assert owner.buffer.used > 0
    owner.coordinator.shards.drop(owner.owned())
    await asyncio.sleep(1)
    assert owner.buffer.used == 0


@in_virtual_time
async def test_a_dropped_shard_with_nothing_to_store_is_no_loss(world: World) -> None:
    owner = await own(world)
    owner.coordinator.shards.drop_all()
    assert owner.held() == []
    assert owner.coordinator.shards.lost == set()


@in_virtual_time
async def test_a_release_frees_the_memory_of_what_nobody_asked_for(
    world: World,
) -> None:
    owner = await own(world)
    owner.consuming.cancel()
    world.put("a", "b")
    await asyncio.sleep(2)
    assert owner.buffer.used > 0
    owner.plan((), version=2)
    await owner.owns()
    assert owner.buffer.used == 0
