"""Test one session's shards: claims, hand-overs, and answers that were lost."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire import writes
from tests.support.lease_owner import LOW, LOWER, UPPER, WHOLE, Owner, P, change, own
from tests.support.world import APP, World

# --- claims ---


async def test_only_shards_in_the_range_are_claimed_and_read(world: World) -> None:
    world.kinesis.create_stream("orders", 2)
    world.put("a", hash_key=HASH_KEYS - 1)
    owner = await Owner(world).begin()
    owner.plan(UPPER)
    await owner.owns(LOW)
    row = owner.row(LOW)
    assert (row.owner, row.owner_id, row.epoch) == (owner.session, "c1", 1)
    await asyncio.sleep(120)
    assert (owner.held(), owner.texts) == ([LOW], ["a"])
    assert owner.row(P).owner == ""


async def test_a_shard_that_is_not_ready_is_waited_for(world: World) -> None:
    owner = await Owner(world).begin()
    await change(world, P, ready=False)
    owner.plan(WHOLE)
    await asyncio.sleep(10)
    assert owner.held() == []
    assert [row.key.shard_id for row in owner.coordinator.pending] == [P]
    await change(world, P, ready=True)
    await owner.owns(P, seconds=0.3)


async def test_a_plan_that_arrives_during_a_poll_is_applied_at_once(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 2)
    owner = await Owner(world).begin()
    await change(world, P, ready=False)
    owner.store.latency = 0.05
    owner.plan(LOWER)
    await asyncio.sleep(0.12)  # P's row was read, but P can't be claimed yet
    owner.plan(WHOLE, version=2)
    await owner.owns(LOW, seconds=0.25)


async def test_a_claim_waits_for_a_live_owners_release(world: World) -> None:
    first = await own(world)
    second = await Owner(world, "c2").begin()
    second.plan(WHOLE)
    await asyncio.sleep(5)
    assert second.held() == []
    assert not second.store.writes("claim")
    first.plan((), version=2)
    await second.owns(P, seconds=3)


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


async def test_a_death_that_is_known_needs_no_other_proof(world: World) -> None:
    first = await own(world)
    first.running.cancel()
    await first.die()
    second = await Owner(world, "c2").begin()
    second.dead.add(first.session)
    second.plan(WHOLE)
    await second.owns(P, seconds=0.1)


async def test_a_new_session_takes_over_from_its_predecessor(world: World) -> None:
    first = await own(world)
    first.running.cancel()
    await first.die()
    second = Owner(world, session="next")
    await world.table.write(writes.register(APP, second.member, first.member, "now"))
    second.running = world.loop.create_task(second.coordinator.run())
    second.plan(WHOLE)
    await second.owns(P, seconds=2)


@pytest.mark.parametrize(
    ("how", "nonces"), [("lost", 1), ("unanswered", 1), ("throttled", 2)]
)
async def test_a_claim_without_an_answer_is_repeated_and_won_once(
    world: World, how: str, nonces: int
) -> None:
    owner = await Owner(world).begin()
    owner.store.spoil(how, "claim")
    owner.plan(WHOLE)
    await owner.owns(P, seconds=1)
    sent = [write.set["claim"] for write in owner.store.writes("claim")]
    assert (len(sent), len({*sent})) == (2, nonces)
    assert owner.row().epoch == 1


async def test_a_lost_claim_may_be_won_by_another_client(world: World) -> None:
    owner = await Owner(world).begin()
    owner.store.spoil("lost", "claim")
    other = await Owner(world, "c2").begin()
    owner.plan(WHOLE)
    other.plan(WHOLE)
    await other.owns(P)
    await asyncio.sleep(5)
    assert owner.held() == []
    assert owner.row().owner == other.session


async def test_an_outage_during_a_poll_is_survived(world: World) -> None:
    owner = await Owner(world).begin()
    owner.store.down = True
    owner.plan(WHOLE)
    await asyncio.sleep(100)
    owner.store.down = False
    await owner.owns(P, seconds=2)


async def test_nothing_is_claimed_while_the_lease_has_lapsed(world: World) -> None:
    owner = await Owner(world).begin()
    owner.lease.deadline = 0
    owner.plan(WHOLE)
    await asyncio.sleep(30)
    assert not owner.store.sent
    owner.lease.deadline = 1e9
    await owner.owns(P, seconds=1)


async def test_the_rounds_of_a_dead_session_end(world: World) -> None:
    owner = await own(world)
    owner.lease.end()
    owner.coordinator.shards.drop_all()
    owner.coordinator.poll_now()
    await asyncio.wait_for(owner.running, 5)
    assert owner.held() == []


# --- hand-over ---


async def test_a_hand_over_waits_a_heartbeat_for_the_next_owner(world: World) -> None:
    owner = await own(world)
    owner.plan((), version=2)
    await asyncio.sleep(1)
    owner.plan(WHOLE, version=3)  # a range that is back in time keeps its shard
    await asyncio.sleep(60)
    owner.plan((), version=4)
    await asyncio.sleep(2)
    assert owner.held() == [P]
    assert owner.row().epoch == 1
    assert not owner.owned().revoked
    await owner.owns(seconds=0.6)


async def test_streams_no_longer_requested_are_given_up_at_once(world: World) -> None:
    owner = await own(world)
    owner.coordinator.restrict(frozenset())
    await owner.owns(seconds=0.3)
    owner.plan(WHOLE, version=2)
    await asyncio.sleep(10)
    assert owner.held() == []
