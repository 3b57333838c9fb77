"""Test that a shard stops to move its records aside when too many of them fail."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from kinesumer import Batch, Record
from kinesumer.model.incidents import IncidentKind
from tests.support.handler_client import BURY, ONCE, Runner
from tests.support.world import World

OPTIONS: dict[str, Any] = {
    "dead_letters": "file:unused",
    "retries": ONCE,
    "dead_letter_limit": 3,
}


class Dependency:
    """A service that handlers call, with an outage."""

    def __init__(self, bad: tuple[bytes, ...] = ()) -> None:
        self.is_down = True
        self.bad = bad
        self.handled: list[bytes] = []

    async def record(self, record: Record) -> None:
        if self.is_down or record.data in self.bad:
            raise ConnectionError
        self.handled.append(record.data)

    async def batch(self, batch: Batch) -> None:
        for record in batch.records:
            await self.record(record)


def incidents(world: World, runner: Runner) -> list[IncidentKind]:
    return [incident.kind for incident in runner.group.context.incidents.current()]


@pytest.mark.parametrize("whole", [False, True])
async def test_an_outage_leaves_a_bounded_number_of_letters(
    world: World, whole: bool
) -> None:
    service = Dependency()
    world.put(*(f"{number}" for number in range(50)))
    handler = service.batch if whole else service.record
    runner = Runner(world, handler, **OPTIONS)
    await world.until(lambda: len(runner.letters.stored) == 3)
    await asyncio.sleep(600)
    assert len(runner.letters.stored) == 3
    assert incidents(world, runner) == [IncidentKind.HELD_SHARD]
    assert world.shard_rows()["shardId-000000000000"].owner
    service.is_down = False
    await world.until(lambda: len(service.handled) == 47)
    await asyncio.sleep(90)
    assert incidents(world, runner) == []
    assert len(runner.letters.stored) == 3
    await runner.leave()


async def test_records_that_fail_now_and_then_never_hold_a_shard(world: World) -> None:
    bad = tuple(b"%d" % number for number in range(0, 60, 3))
    service = Dependency(bad)
    service.is_down = False
    world.put(*(f"{number}" for number in range(60)))
    runner = Runner(world, service.record, **OPTIONS)
    await world.until(lambda: len(service.handled) == 40)
    assert len(runner.letters.stored) == 20
    await runner.leave()


async def test_records_that_cannot_be_decoded_are_tried_again_too(world: World) -> None:
    is_down = True

    async def decode(record: Record) -> bytes:
        if is_down:
            raise ValueError("the registry is wrong")
        return record.data

    handled: list[bytes] = []

    async def handle(record: Record) -> None:
        handled.append(record.data)

    world.put(*"abcdefgh")
    runner = Runner(world, handle, **OPTIONS, decode=decode)
    await world.until(lambda: len(runner.letters.stored) == 3)
    await asyncio.sleep(300)
    assert len(runner.letters.stored) == 3
    is_down = False
    await world.until(lambda: len(handled) == 5)
    await runner.leave()


async def test_a_held_shard_is_handed_over_at_once(world: World) -> None:
    service = Dependency()
    world.put(*"abcdefgh")
    runner = Runner(world, service.record, **OPTIONS)
    await world.until(lambda: len(runner.letters.stored) == 3)
    await asyncio.sleep(120)
    began = world.clock.now()
    await runner.leave()
    assert world.clock.now() - began < 5


async def test_without_a_limit_every_record_becomes_a_letter(world: World) -> None:
    service = Dependency()
    world.put(*(f"{number}" for number in range(300)))
    runner = Runner(
        world,
        service.record,
        **BURY,
        retries=ONCE,
        dead_letter_limit=math.inf,
    )
    await world.until(lambda: len(runner.letters.stored) == 300)
    await runner.leave()
