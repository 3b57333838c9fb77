"""One shard while it is owned: its capacity, and what a release awaits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.model.positions import Position
from tests.support.world import APP, ARN, World, batch_of, hold, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.consuming.owned_shard import Holding


def fetch(holding: Holding, *numbers: int) -> None:
    """Queue a batch and have it taken by the delivery."""
    batch = batch_of(holding, *numbers)
    holding.progress.deliver(batch.records)


def commit(holding: Holding) -> None:
    position = holding.position
    assert position is not None
    holding.stored(position)


def test_it_is_known_by_its_shard_and_epoch() -> None:
    holding = hold()
    assert holding.key == (ARN, "shardId-000000000000")
    assert holding.source.fence == (holding.key, 1, APP, None)
    assert holding.log_fields == {
        "stream": "orders",
        "shard_id": "shardId-000000000000",
        "epoch": 1,
    }


@in_virtual_time
async def test_reading_pauses_at_max_uncommitted_and_goes_on_after_a_commit(
    world: World,
) -> None:
    holding = hold(max_uncommitted_records=4)
    await holding.wait_for_capacity(2)
    fetch(holding, 1, 2)
    await holding.wait_for_capacity(2)
    fetch(holding, 3, 4)
    waiting = world.loop.create_task(holding.wait_for_capacity(2))
    holding.progress.done_through(4)
    await asyncio.sleep(60)
    assert not waiting.done()
    commit(holding)
    await waiting


@in_virtual_time
async def test_a_commit_that_frees_too_little_keeps_it_waiting(world: World) -> None:
    holding = hold(max_uncommitted_records=4)
    fetch(holding, 1, 2, 3, 4)
    waiting = world.loop.create_task(holding.wait_for_capacity(2))
    for done in (1, 2):
        await asyncio.sleep(1)
        assert not waiting.done()
        holding.progress.done_through(done)
        commit(holding)
    await waiting


@in_virtual_time
async def test_a_batch_larger_than_the_limit_passes_alone(world: World) -> None:
    holding = hold(max_uncommitted_records=1)
    await holding.wait_for_capacity(5)
    fetch(holding, 1, 2, 3, 4, 5)
    waiting = world.loop.create_task(holding.wait_for_capacity(1))
    await asyncio.sleep(1)
    assert not waiting.done()
    holding.progress.done_through(5)
    commit(holding)
    await waiting


@pytest.mark.parametrize(
    ("limit", "done", "wants"),
    [(1, 0, False), (1, 1, True), (4, 1, False), (4, 2, True), (5, 2, False)],
)
def test_half_the_limit_done_wants_a_commit(limit: int, done: int, wants: bool) -> None:
    holding = hold(max_uncommitted_records=limit)
    fetch(holding, 1, 2, 3, 4)
    holding.progress.done_through(done)
    assert holding.wants_commit is wants


def test_a_commit_wants_no_other() -> None:
    holding = hold(max_uncommitted_records=2)
    fetch(holding, 1, 2)
    holding.progress.done_through(2)
    commit(holding)
    assert not holding.wants_commit
    assert holding.position is None


def test_it_is_finished_when_all_that_was_fetched_is_done() -> None:
    holding = hold()
    fetch(holding, 1, 2)
    batch_of(holding, 3)
    holding.progress.done_through(2)
    before = holding.is_finished
    holding.progress.deliver(batch_of(hold(), 3).records)
    holding.progress.done_through(3)
    assert (before, holding.is_finished) == (False, True)
    assert holding.position == Position("3")


@in_virtual_time
async def test_draining_waits_for_what_user_code_has(world: World) -> None:
    holding = hold()
    fetch(holding, 1, 2, 3)
    holding.hand_out(2)
    world.loop.call_later(5, holding.progress.done_through, 2)
    assert await holding.drained(30)
    assert world.clock.now() == pytest.approx(5, abs=0.1)


@in_virtual_time
async def test_draining_gives_up_in_time(world: World) -> None:
    holding = hold()
    fetch(holding, 1, 2)
    holding.hand_out(1)
    assert not await holding.drained(30)
    assert world.clock.now() == 30


@in_virtual_time
async def test_what_another_session_owns_needs_no_draining(world: World) -> None:
    holding = hold()
    fetch(holding, 1)
    holding.hand_out(1)
    holding.lost = True
    assert await holding.drained(30)
    assert world.clock.now() == 0


@in_virtual_time
async def test_nothing_in_user_code_needs_no_draining_even_without_patience(
    world: World,
) -> None:
    holding = hold()
    fetch(holding, 1)
    assert await holding.drained(0)
    holding.hand_out(1)
    assert not await holding.drained(0)


@in_virtual_time
async def test_what_was_handed_out_is_never_taken_back(world: World) -> None:
    holding = hold()
    fetch(holding, 1, 2)
    holding.hand_out(2)
    holding.hand_out(1)
    holding.progress.done_through(1)
    assert not holding.is_idle


@in_virtual_time
async def test_revoking_ends_the_reading(world: World) -> None:
    holding = hold()
    holding.task = world.loop.create_task(asyncio.sleep(3600))
    holding.revoke()
    await asyncio.wait([holding.task])
    assert holding.revoked
    assert holding.task.cancelled()
