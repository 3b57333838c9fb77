"""Test an owned shard's capacity, and the conditions of its release."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.consuming.owned_shard import OwnedShard, State
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from tests.support.world import World, batch_of, hold


def fetch(owned: OwnedShard, *numbers: int) -> None:
    """Queue a batch, and let the delivery take the batch."""
    batch = batch_of(owned, *numbers)
    owned.progress.deliver(batch.records)


def commit(owned: OwnedShard) -> None:
    position = owned.position
    assert position is not None
    owned.stored(position)


async def test_reading_pauses_at_max_uncommitted(world: World) -> None:
    owned = hold(max_uncommitted_records=4)
    for first in (1, 3):
        await owned.wait_for_capacity(2)
        fetch(owned, first, first + 1)
    waiting = world.loop.create_task(owned.wait_for_capacity(2))
    for done in (1, 2):  # one committed record doesn't make room for two
        owned.progress.done_through(done)
        await asyncio.sleep(60)
        assert not waiting.done()
        commit(owned)
    await waiting


async def test_a_batch_larger_than_the_limit_passes_alone(world: World) -> None:
    owned = hold(max_uncommitted_records=1)
    await owned.wait_for_capacity(5)
    fetch(owned, 1, 2, 3, 4, 5)
    waiting = world.loop.create_task(owned.wait_for_capacity(1))
    await asyncio.sleep(1)
    assert not waiting.done()
    owned.progress.done_through(5)
    commit(owned)
    await waiting


@pytest.mark.parametrize(
    ("limit", "done", "wants"),
    [(1, 0, False), (1, 1, True), (4, 1, False), (4, 2, True), (5, 2, False)],
)
def test_half_the_limit_done_wants_a_commit(limit: int, done: int, wants: bool) -> None:
    owned = hold(max_uncommitted_records=limit)
    fetch(owned, 1, 2, 3, 4)
    owned.progress.done_through(done)
    assert owned.wants_commit is wants
    if done:
        commit(owned)
        assert not owned.wants_commit
        assert owned.position is None


def test_it_is_finished_when_all_that_was_fetched_is_done() -> None:
    owned = hold()
    fetch(owned, 1, 2)
    batch = batch_of(owned, 3)
    owned.progress.done_through(2)
    before = owned.is_finished
    owned.progress.deliver(batch.records)
    owned.progress.done_through(3)
    assert (before, owned.is_finished) == (False, True)
    assert owned.position == Position("3")


async def test_draining_waits_for_what_user_code_has(world: World) -> None:
    owned = hold()
    fetch(owned, 1, 2, 3)
    owned.set_delivered(2)
    world.loop.call_later(5, owned.progress.done_through, 2)
    assert await owned.drained(30)
    assert world.clock.now() == pytest.approx(5, abs=0.1)


async def test_draining_gives_up_in_time_or_when_the_shard_is_lost(
    world: World,
) -> None:
    owned = hold()
    fetch(owned, 1, 2)
    assert await owned.drained(0)  # user code has no record yet
    owned.set_delivered(2)
    owned.set_delivered(1)  # a lower number changes nothing
    owned.progress.done_through(1)
    assert not await owned.drained(0)
    assert not await owned.drained(30)
    assert world.clock.now() == 30
    owned.lose()
    assert await owned.drained(30)
    assert world.clock.now() == 30


async def test_revoking_ends_the_reading(world: World) -> None:
    owned = hold()
    owned.task = world.loop.create_task(asyncio.sleep(3600))
    owned.revoke()
    await asyncio.wait([owned.task])
    assert owned.revoked
    assert owned.task.cancelled()


STEPS = {"revoke": State.RELEASING, "seek_away": State.SEEKED, "lose": State.LOST}


@pytest.mark.parametrize("second", STEPS)
@pytest.mark.parametrize("first", STEPS)
def test_a_shard_given_up_is_never_delivered_again(first: str, second: str) -> None:
    owned = hold()
    assert owned.can_store
    getattr(owned, first)()
    assert (owned.state, owned.revoked) == (STEPS[first], True)
    assert owned.can_store == (first == "revoke")
    getattr(owned, second)()
    final = STEPS[first if second == "revoke" else second]
    assert (owned.state, owned.revoked) == (final, True)


def test_an_impossible_step_is_an_error() -> None:
    owned = hold()
    owned.revoke()
    with pytest.raises(RuntimeError, match="from RELEASING to DELIVERING"):
        owned._enter(State.DELIVERING)


@pytest.mark.parametrize("step", STEPS)
def test_a_listener_is_called_once_however_a_shard_is_given_up(step: str) -> None:
    owned, revoked = hold(), list[OwnedShard]()
    owned.on_revocation = revoked.append
    getattr(owned, step)()
    owned.lose()
    assert revoked == [owned]


def test_all_records_up_to_a_position_can_be_acknowledged_at_once() -> None:
    owned = hold()
    fetch(owned, 1, 2, 3)
    fetch(owned, 5, 6)
    parts = [Record("7", b"", sub_sequence_number=part) for part in range(3)]
    owned.progress.deliver(parts)
    done = []
    for number, part in [("2", 0), ("2", None), ("4", 0), ("6", 3), ("7", 1), ("9", 0)]:
        owned.ack_through(Position(number, part))
        done.append(owned.progress.done)
    assert done == [2, 2, 3, 5, 7, 8]
    assert owned.position == Position("7", 2)
