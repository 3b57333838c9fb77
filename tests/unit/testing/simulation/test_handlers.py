"""Test that a handler's error ends the simulation, which shows the events before it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from kinesumer import AssignedShard, Batch, Record
from kinesumer.errors import ConfigurationError
from kinesumer.testing.handlers import simulate_handler
from kinesumer.testing.simulation.scenarios import Scenario

SMALL = Scenario(members=2, shards=(2,))

pytestmark = pytest.mark.slow


def test_an_error_of_the_handler_ends_the_simulation_and_tells_what_happened() -> None:
    seen: set[bytes] = set()

    async def refuse_repeats(record: Record) -> None:
        assert record.data not in seen, f"{record.data!r} again"
        seen.add(record.data)

    with pytest.raises(AssertionError, match="again") as caught:
        simulate_handler(
            refuse_repeats,
            faults="crash:6",
            scenario=SMALL,
            data=lambda number: b"%d" % number,
        )
    (events,) = caught.value.__notes__
    assert "fault: crash" in events
    assert "dead True" in events


@pytest.mark.parametrize("batches", [False, True])
def test_a_handler_that_may_fail_gets_its_record_again(*, batches: bool) -> None:
    calls: Counter[object] = Counter()

    async def fail_at_first(record: Record) -> None:
        calls[record.shard_id, record.sequence_number] += 1
        if calls.total() < 4:
            raise OSError("try again")

    outcome = simulate_handler(
        fail_at_first,
        faults="none",
        minutes=1,
        scenario=replace(SMALL, batches=batches),
        restarts_after=(OSError,),
    )
    assert calls.total() > len(calls) == outcome.produced


@pytest.mark.parametrize("concurrency", [0, 2])
def test_a_test_that_fails_in_a_handler_by_pytests_own_means_fails(
    concurrency: int,
) -> None:
    async def handle(_: Record) -> None:
        pytest.fail("a record too many")

    scenario = replace(SMALL, concurrency=concurrency)
    with pytest.raises(pytest.fail.Exception, match="too many"):
        simulate_handler(handle, faults="none", minutes=0.2, scenario=scenario)


def test_a_handler_that_never_stops_failing_is_not_taken_for_the_librarys_fault() -> (
    None
):
    calls = count(1)

    async def fail_again_and_again(_: Record) -> None:
        if next(calls) >= 20:
            raise OSError("still down")

    with pytest.raises(OSError, match="still down") as caught:
        simulate_handler(
            fail_again_and_again,
            faults="none",
            minutes=0.1,
            scenario=replace(SMALL, records_per_second=6),
            restarts_after=(OSError,),
        )
    assert "after all faults" in caught.value.__notes__[0]


@pytest.mark.parametrize("concurrency", [0, 2])
def test_plain_functions_and_handlers_of_batches_are_called_too(
    concurrency: int,
) -> None:
    seen: set[bytes] = set()

    def plain(record: Record) -> None:
        seen.add(record.data)

    def plain_batch(batch: Batch) -> None:
        seen.update(record.data for record in batch.records)

    async def batch(batch: Batch) -> None:
        plain_batch(batch)

    scenario = Scenario(
        members=2, shards=(1,), records_per_second=3, concurrency=concurrency
    )
    for handler in (plain, plain_batch, batch):
        seen.clear()
        outcome = simulate_handler(
            handler,
            faults="none",
            minutes=0.1,
            scenario=scenario,
            data=lambda number: b"%d" % number,
        )
        assert len(seen) == outcome.produced > 0


def test_what_run_would_not_take_is_refused() -> None:
    async def handle(record) -> None:  # type: ignore[no-untyped-def]
        pass

    with pytest.raises(ConfigurationError, match="has no annotation"):
        simulate_handler(handle)
    with pytest.raises(ConfigurationError, match="returned an awaitable"):
        simulate_handler(lambda record: handle(record), batch=False, minutes=0.1)


@pytest.mark.parametrize("concurrency", [0, 2])
def test_callbacks_enclose_the_records_of_each_shard(concurrency: int) -> None:
    open_shards: set[tuple[str, int]] = set()
    reasons: Counter[str] = Counter()

    async def on_assigned(shard: AssignedShard) -> None:
        await asyncio.sleep(0.01)
        open_shards.add((shard.shard_id, shard.fence.epoch))

    def on_revoked(shard: AssignedShard, reason: str) -> None:
        open_shards.remove((shard.shard_id, shard.fence.epoch))
        reasons[reason] += 1

    def handle(record: Record) -> None:
        assert (record.shard_id, record.fence.epoch) in open_shards

    simulate_handler(
        handle,
        faults="deploy:2,crash:1,split:1",
        minutes=2,
        scenario=Scenario(members=3, shards=(4,), concurrency=concurrency),
        on_assigned=on_assigned,
        on_revoked=on_revoked,
    )
    assert {"moved", "ended"} <= reasons.keys()


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked"])
def test_an_error_of_a_callback_ends_the_simulation(name: str) -> None:
    def fail(*_: object) -> None:
        raise LookupError("no state for this shard")

    async def handle(record: Record) -> None:
        pass

    callbacks: dict[str, Any] = {name: fail}
    with pytest.raises(LookupError, match="no state"):
        simulate_handler(handle, faults="deploy:6", scenario=SMALL, **callbacks)


def test_a_client_starts_again_after_an_expected_error_of_a_callback() -> None:
    calls = count(1)

    def fail_twice(shard: AssignedShard) -> None:
        if next(calls) <= 2:
            raise OSError("the file is locked")

    outcome = simulate_handler(
        lambda record: None,
        batch=False,
        faults="none",
        minutes=0.5,
        scenario=SMALL,
        restarts_after=(OSError,),
        on_assigned=fail_twice,
    )
    assert outcome.delivered >= outcome.produced > 0
    assert next(calls) > 3
