"""Test that a client's row says what its handlers could not handle."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer import Batch, Record
from kinesumer.handlers import RetryPolicy
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.reports import StreamFailures
from kinesumer.wire.failures import read_failures
from tests.support.handler_client import Runner
from tests.support.world import ARN, SHARD, World, in_virtual_time

ONCE = RetryPolicy(max_attempts=1)


class PaymentError(Exception):
    """An error of user code, whose text contains data."""


def reported(world: World) -> list[StreamFailures]:
    member = world.members()["c1"]
    return read_failures(member.failures, member.streams)


@in_virtual_time
async def test_a_handler_that_always_fails_is_reported_with_its_letters(
    world: World,
) -> None:
    async def fail(record: Record) -> None:
        raise PaymentError(record.data)

    texts = [f"{number}" for number in range(100)]
    world.put(*texts)
    runner = Runner(world, fail, dead_letters="file:unused", retries=ONCE)
    await world.until(lambda: len(runner.letters.stored) == 100)
    await asyncio.sleep(5)
    [found] = reported(world)
    assert found.stream_arn == ARN
    assert found.outcomes == (100, 100, 100, 100, 0)
    assert found.error is not None
    assert (found.error.type, found.error.shard_id) == ("PaymentError", SHARD)
    await asyncio.sleep(90)
    assert reported(world) == []
    [stored] = world.table.rows("member#app")
    assert "failures" not in stored
    await runner.leave()


@in_virtual_time
@pytest.mark.parametrize("whole", [False, True])
async def test_calls_that_succeed_are_counted_beside_those_that_fail(
    world: World, whole: bool
) -> None:
    async def one(record: Record) -> None:
        await asyncio.sleep(0.1)
        if record.data == b"bad":
            raise PaymentError

    async def batch(batch: Batch) -> None:
        for record in batch.records:
            await one(record)

    world.put("a", "b", "c", "bad", "d")
    handler = batch if whole else one
    runner = Runner(world, handler, dead_letters="file:unused", retries=ONCE)
    await world.until(lambda: runner.letters.stored)
    await asyncio.sleep(5)
    [found] = reported(world)
    # The batch fails, and each smaller part that has the bad record; three parts don't.
    calls, failed = (7, 4) if whole else (5, 1)
    assert found.outcomes == (5, calls, failed, 1, 0)
    await runner.leave()


@in_virtual_time
async def test_records_that_cannot_be_decoded_become_letters(world: World) -> None:
    async def handle(record: Record) -> None:
        """Accept every record."""

    world.put("1", "no number")
    runner = Runner(world, handle, dead_letters="file:unused", decode=int)
    await world.until(lambda: runner.letters.stored)
    await asyncio.sleep(5)
    [found] = reported(world)
    assert found.outcomes == (2, 1, 0, 1, 0)
    assert found.error is not None
    assert found.error.type == "DecodeError"
    await runner.leave()


@in_virtual_time
async def test_a_stopped_shard_is_an_incident_without_the_text_of_the_error(
    world: World,
) -> None:
    async def fail(record: Record) -> None:
        raise PaymentError("a secret")

    world.put("a")
    runner = Runner(world, fail, on_failure="stop-shard", retries=ONCE)
    await asyncio.sleep(30)
    [incident] = runner.group.context.incidents.current()
    assert incident.kind is IncidentKind.STOPPED_SHARD
    assert incident[1:3] == (ARN, SHARD)
    assert incident.error == "PaymentError"
    await runner.close()
