"""Test that shards take turns: none waits for two turns of another shard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.model.records import Record
from tests.support.delivery import Desk, block
from tests.support.world import World, hold, shard_row

# The longest time of a turn whose records take no time.
TURN_SECONDS = 0.05


def shards(count: int) -> list[OwnedShard]:
    return [hold(shard_row(f"shardId-{number:012}")) for number in range(count)]


def letter(record: Record) -> str:
    """Return a letter for the record's shard: "a" for the first one."""
    return chr(ord("a") + int(record.shard_id[-3:]))


async def each(desk: Desk, what: str) -> AsyncIterator[str]:
    """Yield the letter of each record's or batch's shard."""
    if what == "records":
        async for record in desk.records:
            yield letter(record)
    else:
        async for batch in desk.records.batches():
            yield letter(batch.records[0])


async def order_of(
    desk: Desk, what: str, count: int, *, held: float = 0.0, awaited: float = 0.0
) -> str:
    """Return the shards of the first records or batches, which take some time each."""
    seen = ""
    async for shard in each(desk, what):
        seen += shard
        if len(seen) == count:
            break
        block(desk.world, held)
        await asyncio.sleep(awaited)
    return seen


async def decode(record: Record) -> bytes:
    return record.data


@pytest.mark.parametrize("decoder", [None, decode])
@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("time", ["held", "awaited"])
async def test_a_slow_loop_gets_a_record_of_each_shard_in_turn(
    world: World, time: str, decoder: object, *, auto: bool
) -> None:
    desk = Desk(world, auto=auto, decode=decoder)
    for owned in shards(3):
        desk.put(owned, *range(1000))
    times: Any = {time: 1.0}
    assert await order_of(desk, "records", 9, **times) == "abcabcabc"


async def test_a_turn_at_quick_records_is_bounded_by_time(world: World) -> None:
    desk = Desk(world)
    for owned in shards(2):
        desk.put(owned, *range(1000))
    assert await order_of(desk, "records", 12, held=0.02) == "aaabbbaaabbb"
