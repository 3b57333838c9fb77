"""Test that failing handlers are called again, and that a bad record is given up."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kinesumer import Record
from kinesumer.errors import (
    ConfigurationError,
    DeadLetterNotStoredError,
    DeadLettersUnavailableError,
    DeadLetterTooLargeError,
    HandlerFailedError,
)
from kinesumer.handlers import RetryPolicy
from tests.support.handler_client import BURY, ONCE, Failing, Runner, committed
from tests.support.world import World


async def test_a_record_that_fails_is_tried_again_before_the_next_one(
    world: World,
) -> None:
    failing = Failing("b", times=2)
    world.put("a", "b", "c")
    runner = Runner(world, failing.record)
    await world.until(lambda: ["c"] in failing.calls)
    assert failing.calls == [["a"], ["b"], ["b"], ["b"], ["c"]]
    await runner.leave()
    assert committed(world) == 3


async def test_waits_double_and_are_shortened_by_chance(world: World) -> None:
    failing = Failing("a", times=6)
    retries = RetryPolicy(max_attempts=7, initial_delay_seconds=1, max_delay_seconds=10)
    world.put("a")
    Runner(world, failing.record, retries=retries)
    await world.until(lambda: len(failing.calls) == 7)
    waits = [b - a for a, b in zip(failing.at, failing.at[1:], strict=False)]
    for wait, longest in zip(waits, (1, 2, 4, 8, 10, 10), strict=True):
        assert longest / 2 <= wait <= longest + 0.01


def test_so_many_failures_that_doubling_overflows_wait_no_longer() -> None:
    retries = RetryPolicy(max_delay_seconds=10)
    assert 5 <= retries.wait_seconds(100_000, Random(0)) <= 10


async def test_a_record_that_nothing_helps_becomes_a_dead_letter(world: World) -> None:
    failing = Failing("b")
    world.put("a", "b", "c")
    runner = Runner(world, failing.record, retries=RetryPolicy(max_attempts=3), **BURY)
    await world.until(lambda: ["c"] in failing.calls)
    [letter] = runner.letters.stored
    record = world.kinesis.stream("orders").shards["shardId-000000000000"].log[1]
    assert letter.data == b"b"
    assert letter.error == "ValueError: b"
    assert "in record" in letter.traceback
    assert letter.attempts == 3 == failing.calls.count(["b"])
    assert letter.sequence_number == record.sequence_number
    assert (letter.app, letter.stream, letter.shard_id) == (
        "app",
        "orders",
        "shardId-000000000000",
    )
    await runner.leave()
    assert committed(world) == 3


async def test_a_batch_that_fails_is_parted_until_the_record_is_found(
    world: World,
) -> None:
    failing = Failing("5")
    texts = list(map(str, range(8)))
    world.put(*texts)
    runner = Runner(world, failing.batch, retries=RetryPolicy(max_attempts=2), **BURY)
    await world.until(lambda: runner.letters.stored)
    await world.until(lambda: failing.calls[-1] == ["6", "7"])
    assert failing.calls == [
        texts,
        texts,
        ["0", "1", "2", "3"],
        ["4", "5", "6", "7"],
        ["4", "5"],
        ["4"],
        ["5"],
        ["5"],
        ["6", "7"],
    ]
    assert runner.letters.texts == ["5"]
    assert runner.letters.stored[0].attempts == 6
    await runner.leave()
    assert committed(world) == 8


async def test_several_bad_records_of_a_batch_are_all_found(world: World) -> None:
    failing = Failing("0", "3", "4", "9")
    world.put(*map(str, range(10)))
    runner = Runner(world, failing.batch, retries=ONCE, **BURY)
    await world.until(lambda: len(runner.letters.stored) == 4)
    assert runner.letters.texts == ["0", "3", "4", "9"]
    await runner.leave()
    assert committed(world) == 10


async def test_errors_that_another_call_will_not_mend_are_not_tried_again(
    world: World,
) -> None:
    failing = Failing("b")
    failing.error = KeyError
    world.put("a", "b", "c")
    retries = RetryPolicy(non_retryable=(LookupError,))
    runner = Runner(world, failing.record, retries=retries, **BURY)
    await world.until(lambda: ["c"] in failing.calls)
    assert failing.calls == [["a"], ["b"], ["c"]]
    assert runner.letters.stored[0].attempts == 1


class Unspeakable(Exception):
    """An error that raises another error when it is converted to text."""

    def __str__(self) -> str:
        raise ZeroDivisionError


async def test_an_error_whose_text_cannot_be_read_is_named_by_its_type(
    world: World,
) -> None:
    failing = Failing("a")
    failing.error = Unspeakable
    world.put("a")
    stops = Runner(world, failing.record, retries=ONCE)
    with pytest.raises(HandlerFailedError, match="Unspeakable: <exception"):
        await stops.task
    await stops.run(stops.group.stop(wait_for_user=False))
    goes_on = Runner(world, failing.record, "c2", retries=ONCE, **BURY)
    await world.until(lambda: goes_on.letters.stored)
    assert goes_on.letters.stored[0].error == "Unspeakable: <exception str() failed>"


async def test_the_checkpoint_waits_for_the_letter_to_be_stored(world: World) -> None:
    failing = Failing("b")
    world.put("a", "b", "c")
    runner = Runner(
        world, failing.record, retries=ONCE, commit_interval_seconds=0.1, **BURY
    )
    runner.letters.errors = [DeadLettersUnavailableError("no answer")] * 4
    await world.until(lambda: runner.letters.tries == 4)
    await asyncio.sleep(0.3)
    assert committed(world) == 1
    await world.until(lambda: committed(world) == 3)
    assert runner.letters.tries == 5
    assert runner.letters.texts == ["b"]


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (DeadLettersUnavailableError("no answer"), 10),
        (RuntimeError("a callable's bug"), 10),
        (DeadLetterTooLargeError("too large"), 1),
        (ConfigurationError("its own stream"), 1),
    ],
)
async def test_a_letter_that_cannot_be_stored_ends_run_and_nothing_passes_it(
    world: World, error: Exception, tries: int
) -> None:
    failing = Failing("b")
    world.put("a", "b", "c")
    runner = Runner(world, failing.record, retries=ONCE, **BURY)
    runner.letters.errors = [error] * 100
    with pytest.raises(DeadLetterNotStoredError, match=str(error)) as caught:
        await runner.task
    assert caught.value.__cause__ is error
    assert runner.letters.tries == tries
    await runner.run(runner.group.stop(wait_for_user=False))
    assert committed(world) == 1


@pytest.mark.slow
async def test_a_letter_waits_for_credentials_as_long_as_there_are_none(
    world: World,
) -> None:
    failing = Failing("b")
    world.put("a", "b", "c")
    runner = Runner(
        world, failing.record, retries=ONCE, commit_interval_seconds=0.1, **BURY
    )
    missing = DeadLettersUnavailableError("AWS has refused the credentials")
    missing.lacks_credentials = True
    runner.letters.errors = [missing] * 100
    await world.until(lambda: runner.letters.tries == 100, seconds=2000)
    assert committed(world) == 1
    await world.until(lambda: committed(world) == 3)
    assert runner.letters.texts == ["b"]


async def test_a_stopped_shard_stands_still_and_the_others_go_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.kinesis.create_stream("two", 2)
    failing = Failing("b")
    world.put("a", "b", "c", stream="two")
    world.put("x", stream="two", hash_key=2**127)
    retries = RetryPolicy(max_attempts=2)
    runner = Runner(
        world, failing.record, "c1", "two", retries=retries, on_failure="stop-shard"
    )
    await world.until(lambda: failing.calls.count(["b"]) == 2)
    await asyncio.sleep(30)
    world.put("d", stream="two")
    world.put("y", stream="two", hash_key=2**127)
    await world.until(lambda: ["y"] in failing.calls)
    assert ["c"] not in failing.calls
    assert ["d"] not in failing.calls
    assert len(runner.held) == 2
    assert runner.group.buffer.used < 200_000
    [line] = [r for r in caplog.records if "its shard stops" in r.message]
    assert line.message.startswith("the handler failed 2 times at record")
    fields = vars(line)
    assert (fields["attempt"], fields["error"]) == (2, "ValueError: b")
    await runner.leave()
    again = Failing()
    Runner(world, again.record, "c2", "two")
    await world.until(lambda: ["d"] in again.calls)
    assert again.calls == [["b"], ["c"], ["d"]]


async def test_losing_the_shard_ends_the_waiting_for_another_try(world: World) -> None:
    world.kinesis.create_stream("two", 2)
    failing, other = Failing("a", "b"), Failing()
    for hash_key, text in ((0, "a"), (2**127, "b")):
        world.put(text, stream="two", hash_key=hash_key)
    retries = RetryPolicy(
        max_attempts=9, initial_delay_seconds=3600, max_delay_seconds=3600
    )
    first = Runner(world, failing.record, "c1", "two", retries=retries)
    await world.until(lambda: len(failing.calls) == 2)
    Runner(world, other.record, "c2", "two")
    await world.until(lambda: other.calls)
    assert len(first.held) == 1
    assert len(failing.calls) == 2
    assert world.clock.now() < 20


async def test_other_shards_finish_what_they_have_when_one_ends_run(
    world: World,
) -> None:
    world.kinesis.create_stream("two", 2)
    done: list[str] = []

    async def handle(record: Record) -> None:
        if record.data == b"bad":
            await asyncio.sleep(1)
            raise ValueError
        await asyncio.sleep(5)
        done.append(record.data.decode())

    world.put("bad", stream="two")
    world.put("x", "y", stream="two", hash_key=2**127)
    runner = Runner(world, handle, "c1", "two", retries=ONCE)
    with pytest.raises(HandlerFailedError):
        await runner.task
    assert done == ["x"]
