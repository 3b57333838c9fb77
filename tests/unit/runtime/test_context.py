"""Trying again, and saying once what fails and once that it works again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from kinesumer.errors import (
    AccessDeniedError,
    KinesumerError,
    ShardThrottledError,
    SourceUnavailableError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.rows import Key
from kinesumer.ports import Compare, Write
from kinesumer.runtime.failure_log import (
    RECOVERY_SECONDS,
    THROTTLE_RECOVERY_SECONDS,
    FailureLog,
)
from tests.support.world import FaultyStore, World, in_virtual_time


class Service:
    """Fails so many times, then answers."""

    def __init__(self, world: World, failures: int, error: KinesumerError) -> None:
        self.world = world
        self.failures, self.error = failures, error
        self.asked: list[float] = []

    async def ask(self) -> str:
        self.asked.append(self.world.clock.now())
        if len(self.asked) <= self.failures:
            raise self.error
        return "answer"


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailableError("timed out"),
        StoreThrottledError("slow down"),
        SourceUnavailableError("timed out"),
    ],
)
@in_virtual_time
async def test_what_passes_is_tried_again_ever_less_often(
    world: World, error: KinesumerError
) -> None:
    service = Service(world, 20, error)
    assert await world.context().until_available(service.ask) == "answer"
    gaps = [after - before for before, after in pairwise(service.asked)]
    assert len(gaps) == 20
    assert 0.05 <= gaps[0] <= 0.15
    assert 1.0 <= min(gaps[6:])
    assert max(gaps) <= 3.0
    assert len({*gaps}) == 20


@in_virtual_time
async def test_who_has_no_patience_is_told_what_it_failed_with(world: World) -> None:
    context = replace(world.context(), retry_seconds=30.0)
    service = Service(world, 1_000, StoreUnavailableError("timed out"))
    with pytest.raises(StoreUnavailableError, match="timed out"):
        await context.until_available(service.ask)
    assert 30.0 <= world.clock.now() - service.asked[0] <= 33.0


@in_virtual_time
async def test_what_does_not_pass_is_raised_at_once(world: World) -> None:
    service = Service(world, 1, AccessDeniedError("kinesis:ListShards", "arn"))
    with pytest.raises(AccessDeniedError):
        await world.context().until_available(service.ask)
    assert len(service.asked) == 1


@in_virtual_time
async def test_a_write_is_repeated_until_it_has_a_definite_answer(
    world: World,
) -> None:
    store = FaultyStore(world.table)
    context = world.context(store=store)
    write = Write(Key("p", "s"), Compare("pk", "absent"), {"value": 1})
    store.spoil("lost", "value")
    assert (await context.write(write)).applied
    assert (await context.read(write.key) or {})["value"] == 1
    other = Write(Key("p", "t"), Compare("pk", "absent"), {"value": 2})
    store.spoil("unanswered", "value")
    written = await context.write(other)
    assert not written.applied
    assert (written.row or {})["value"] == 2


@in_virtual_time
async def test_changes_of_state_are_logged_once_each(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log, error = FailureLog(world.clock), StoreUnavailableError("timed out")
    log.record_success("state store")
    for _ in range(100):
        log.record_failure("state store", error)
        await asyncio.sleep(0.1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "state store fails, trying again: timed out" in caplog.text
    await asyncio.sleep(RECOVERY_SECONDS)
    for _ in range(100):
        log.record_success("state store")
    assert len(caplog.records) == 2
    assert "state store works again, it failed for 9.9 s" in caplog.text


@in_virtual_time
async def test_a_success_between_failures_is_no_change(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log, error = FailureLog(world.clock), StoreUnavailableError("timed out")
    for _ in range(100):
        log.record_failure("state store", error)
        await asyncio.sleep(1)
        log.record_success("state store")
    assert len(caplog.records) == 1


@in_virtual_time
async def test_things_fail_apart(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log = FailureLog(world.clock)
    log.record_failure("state store", StoreUnavailableError("timed out"))
    log.record_failure("stream orders", SourceUnavailableError("timed out"))
    log.record_success("stream payments")
    assert len(caplog.records) == 2


@in_virtual_time
async def test_a_throttled_stream_is_logged_once_and_when_it_is_over(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log, error = FailureLog(world.clock), ShardThrottledError("GetRecords on orders")
    log.record_read("orders")
    for _ in range(10):
        log.record_throttled_read("orders", error)
        await asyncio.sleep(THROTTLE_RECOVERY_SECONDS / 2)
        log.record_read("orders")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.records[0].message == (
        "Kinesis throttles 'orders' (five reads per second and shard, shared by all "
        "apps): reading it more slowly; GetRecords on orders"
    )
    await asyncio.sleep(THROTTLE_RECOVERY_SECONDS / 2)
    for _ in range(10):
        log.record_read("orders")
    assert len(caplog.records) == 2
    assert "Kinesis no longer throttles 'orders', it did for 1350.0 s" in caplog.text


@in_virtual_time
async def test_contexts_of_one_client_share_the_clock_of_its_loop(world: World) -> None:
    context = world.context()
    assert replace(context, client_id="c2").loop_clock is context.loop_clock
    assert world.context().loop_clock is not context.loop_clock
