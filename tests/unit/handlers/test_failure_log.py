"""Test what the log and a client's row say about failing handlers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kinesumer import Batch, Record
from kinesumer.errors import (
    DeadLetterNotStoredError,
    DeadLettersUnavailableError,
    HandlerFailedError,
)
from kinesumer.handlers import RetryPolicy
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.reports import StreamFailures
from kinesumer.wire.reports import read_failures
from tests.support.handler_client import BURY, ONCE, Failing, Runner, ignore
from tests.support.world import ARN, SHARD, World

TWO = RetryPolicy(max_attempts=2, initial_delay_seconds=0.01)


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the log lines about handlers, oldest first."""
    about = ("handler", "dead letter", "run() ends")
    said = [r for r in caplog.records if r.name == "kinesumer"]
    return [r for r in said if any(part in r.getMessage() for part in about)]


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.levelname for line in lines(caplog)]


def place(world: World, index: int) -> dict[str, Any]:
    """Return the fields of a log line that identify a record."""
    log = world.kinesis.stream("orders").shards["shardId-000000000000"].log
    return {
        "stream": "orders",
        "shard_id": "shardId-000000000000",
        "sequence_number": log[index].sequence_number,
        "sub_sequence_number": None,
    }


def fields(line: logging.LogRecord, *names: str) -> dict[str, Any]:
    return {name: getattr(line, name) for name in names}


async def test_only_the_first_failure_of_a_record_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing("b", times=3)
    world.put("a", "b", "c")
    runner = Runner(world, failing.record)
    await world.until(lambda: ["c"] in failing.calls)
    await runner.leave()
    [line] = lines(caplog)
    expected = place(world, 1) | {"attempt": 1, "error": "ValueError: b"}
    assert fields(line, *expected) == expected
    assert line.levelname == "WARNING"
    assert str(expected["sequence_number"]) in line.getMessage()
    assert line.exc_info is not None


async def test_each_dead_letter_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing("b", "d")
    world.put("a", "b", "c")
    runner = Runner(world, failing.record, retries=RetryPolicy(max_attempts=3), **BURY)
    await asyncio.sleep(90)  # so that the lines don't count as repeated
    world.put("d")
    await world.until(lambda: len(runner.letters.stored) == 2)
    await runner.leave()
    assert levels(caplog) == ["WARNING"] * 4
    for line, index, attempt in zip(
        lines(caplog), (1, 1, 3, 3), (1, 3, 1, 3), strict=True
    ):
        expected = place(world, index) | {"attempt": attempt}
        assert fields(line, *expected) == expected
    assert "dead letter is stored" in lines(caplog)[1].getMessage()


async def test_the_traceback_is_logged_once_for_each_type_of_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(record: Record) -> None:
        raise {b"a": ValueError, b"b": ValueError, b"c": KeyError}[record.data]

    world.put("a", "b", "c")
    runner = Runner(world, handle, retries=ONCE, **BURY)
    await world.until(lambda: len(runner.letters.stored) == 3)
    await runner.leave()
    failures = [line for line in lines(caplog) if "failed at" in line.getMessage()]
    assert [line.exc_info is not None for line in failures] == [True, True]


async def test_a_batch_is_logged_as_a_whole_and_then_the_record_that_fails(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing("5")
    world.put(*map(str, range(8)))
    runner = Runner(world, failing.batch, retries=RetryPolicy(max_attempts=2), **BURY)
    await world.until(lambda: runner.letters.stored)
    await runner.leave()
    batch, record, letter = lines(caplog)
    assert fields(batch, "records", "attempt") == {"records": 8, "attempt": 1}
    assert fields(batch, "sequence_number") == {
        "sequence_number": place(world, 0)["sequence_number"]
    }
    for line, attempt in ((record, 5), (letter, 6)):
        expected = place(world, 5) | {"attempt": attempt, "error": "ValueError: 5"}
        assert fields(line, *expected) == expected


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_the_failure_that_ends_run_is_logged_once(
    world: World, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing("b", "c")
    world.put("a", "b", "c")
    runner = Runner(world, failing.record, retries=TWO, concurrency=concurrency)
    with pytest.raises(HandlerFailedError):
        await runner.task
    await runner.run(runner.group.stop(wait_for_user=False))
    last = lines(caplog)[-1]
    expected = place(world, 1) | {"attempt": 2, "error": "ValueError: b"}
    assert fields(last, *expected) == expected
    assert levels(caplog).count("ERROR") == 1
    assert last.levelname == "ERROR"


async def test_a_letter_that_cannot_be_stored_is_logged_before_run_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a")
    runner = Runner(world, Failing("a").record, retries=TWO, **BURY)
    runner.letters.errors = [DeadLettersUnavailableError("it is full")] * 10
    with pytest.raises(DeadLetterNotStoredError):
        await runner.task
    await runner.run(runner.group.stop(wait_for_user=False))
    assert levels(caplog) == ["WARNING", "WARNING", "ERROR"]
    assert "couldn't be stored, trying again" in lines(caplog)[1].getMessage()
    assert fields(lines(caplog)[1], "error") == {
        "error": "DeadLettersUnavailableError: it is full"
    }


async def test_repeated_failures_of_a_shard_get_one_line_a_minute_with_the_count(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(record: Record) -> None:
        await asyncio.sleep(1)
        raise ConnectionError

    world.put(*(f"{number}" for number in range(90)))
    runner = Runner(world, fail, retries=ONCE, **BURY)
    await world.until(lambda: len(runner.letters.stored) == 90, seconds=300)
    said = [line.getMessage() for line in lines(caplog)]
    assert sum("the handler failed at record" in text for text in said) == 2
    assert sum("(59 more since the last such line)" in text for text in said) == 2
    assert sum("a dead letter is stored" in text for text in said) == 2
    await runner.leave()


class PaymentError(Exception):
    """An error of user code, whose text contains data."""


def reported(world: World) -> list[StreamFailures]:
    member = world.members()["c1"]
    return read_failures(member.failures, member.streams)


async def test_a_handler_that_always_fails_is_reported_with_its_letters(
    world: World,
) -> None:
    async def fail(record: Record) -> None:
        raise PaymentError(record.data)

    texts = [f"{number}" for number in range(100)]
    world.put(*texts)
    runner = Runner(world, fail, retries=ONCE, **BURY)
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
    runner = Runner(world, handler, retries=ONCE, **BURY)
    await world.until(lambda: runner.letters.stored)
    await asyncio.sleep(5)
    [found] = reported(world)
    # The batch fails, and each smaller part that has the bad record; three parts don't.
    calls, failed = (7, 4) if whole else (5, 1)
    assert found.outcomes == (5, calls, failed, 1, 0)
    await runner.leave()


async def test_records_that_cannot_be_decoded_become_letters(world: World) -> None:
    world.put("1", "no number")
    runner = Runner(world, ignore, decode=int, **BURY)
    await world.until(lambda: runner.letters.stored)
    await asyncio.sleep(5)
    [found] = reported(world)
    assert found.outcomes == (2, 1, 0, 1, 0)
    assert found.error is not None
    assert found.error.type == "DecodeError"
    await runner.leave()


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
