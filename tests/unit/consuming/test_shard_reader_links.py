"""Test that all shards progress in bounded memory on networks of any speed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.wire.put_records import Entry, aggregate
from tests.support.links import ANSWER_SECONDS, Crowd

if TYPE_CHECKING:
    from tests.support.world import World

MB = 1_000_000
PAGE = 10 * MB  # bytes of records


async def test_after_an_outage_no_answer_is_dropped(world: World) -> None:
    crowd = Crowd(world, 14, rate=4 * MB)
    crowd.put(1000, 1)
    await crowd.until(1, 60)
    await asyncio.sleep(10)  # all shards are caught up, so readers expect small pages
    crowd.link.is_cut = True
    await asyncio.sleep(20)
    crowd.put(MB, 10)
    crowd.link.is_cut = False
    began = world.clock.now()
    await crowd.until(11, 70)
    ideal = 14 * PAGE * 4 / 3 / (4 * MB)
    assert world.clock.now() - began < ideal + 15
    assert crowd.link.late == 0
    assert crowd.failed_seconds < 30


async def test_a_cold_start_with_a_large_budget_is_no_slower(world: World) -> None:
    crowd = Crowd(world, 14, rate=4 * MB, budget=1 << 30)
    crowd.put(MB, 10)
    await crowd.until(10, 60)
    assert crowd.link.late == 0
    assert crowd.failed_seconds == 0


async def test_many_shards_are_first_read_at_the_same_time(world: World) -> None:
    crowd = Crowd(world, 400, rate=1000 * MB)
    crowd.put(100, 1)
    await crowd.until(1, 1)


async def test_on_a_fast_link_pages_stay_within_the_budget(world: World) -> None:
    crowd = Crowd(world, 40, rate=1000 * MB)
    await asyncio.sleep(10)
    crowd.put(MB, 20)  # while all shards are caught up
    await crowd.until(20, 60)
    assert crowd.most_used <= crowd.budget
    assert crowd.link.most_under_way <= crowd.budget


async def test_on_a_fast_link_the_window_grows_to_the_budget(world: World) -> None:
    crowd = Crowd(world, 40, rate=1000 * MB, budget=1 << 30)
    crowd.put(MB, 40)
    await crowd.until(40, 60)
    assert crowd.link.most_under_way > 200 * MB


@pytest.mark.parametrize("size", [2_000, 100_000, MB])
async def test_a_link_that_carries_no_page_in_time_is_asked_for_fewer_records(
    world: World, size: int
) -> None:
    crowd = Crowd(world, 3, rate=0.2 * MB)
    crowd.put(size, 6 * MB // size)
    began = world.clock.now()
    await crowd.until(6 * MB // size, 600)
    ideal = 3 * 6 * MB * 4 / 3 / (0.2 * MB)
    assert world.clock.now() - began < ideal + 7 * ANSWER_SECONDS
    assert min(crowd.source.limits) < 10_000
    assert crowd.failed_seconds == 0


async def test_on_a_link_that_gets_faster_pages_grow_again(world: World) -> None:
    crowd = Crowd(world, 3, rate=0.2 * MB)
    crowd.put(2_000, 3_000)
    await crowd.until(3_000, 600)
    crowd.link.rate = 100 * MB
    crowd.put(2_000, 30_000)
    await crowd.until(33_000, 60)
    assert min(crowd.source.limits) < 200
    assert crowd.source.limits[-1] > 700  # 2 MB/s are 1,000 records a second


async def test_an_answer_that_waits_for_memory_is_not_a_failure(world: World) -> None:
    crowd = Crowd(world, 1, rate=4 * MB)
    [owned] = crowd.owned_shards
    await asyncio.sleep(10)
    await crowd.buffer.reserve(crowd.budget - 100_000)
    crowd.put(MB, 10)
    await asyncio.sleep(5)
    assert crowd.received.total() == crowd.link.under_way == 0
    assert owned.request_since is None
    await asyncio.sleep(100)  # the page needs more memory than is free
    assert len(crowd.source.limits) < 60
    assert crowd.received.total() == 0
    assert owned.request_since is None
    crowd.buffer.release(crowd.budget - 100_000)
    await crowd.until(10, 30)
    assert crowd.link.late == 0
    assert crowd.stream.failing is None


async def test_a_link_that_is_too_slow_counts_as_failing(world: World) -> None:
    crowd = Crowd(world, 1, rate=1000)
    crowd.put(MB, 10)
    with pytest.raises(TimeoutError):
        await crowd.until(1, 900)
    assert crowd.failed_seconds > 30


async def test_aggregates_are_opened_as_memory_allows(world: World) -> None:
    crowd = Crowd(world, 4, rate=1000 * MB)
    frame = aggregate([Entry(b"x" * 20, "key", None)] * 35_000)
    for shard in world.kinesis.stream(crowd.name).open:
        for _ in range(4):
            first = shard.shard.first_hash
            world.kinesis.put(crowd.name, frame, explicit_hash_key=first)
    await crowd.until(140_000, 600)
    assert crowd.most_used > crowd.budget // 4
    await asyncio.sleep(1)
    assert crowd.buffer.used <= FULL_PAGE_BYTES
    assert crowd.buffer.opened == crowd.buffer.delivered == 0
