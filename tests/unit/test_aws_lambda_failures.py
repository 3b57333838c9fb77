"""Test what a Lambda function does with failures, and with too little time."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from kinesumer import (
    Batch,
    ConfigurationError,
    Record,
    RetryPolicy,
)
from kinesumer.aws_lambda import batch_handler
from kinesumer.core.work_queue import MAX_AT_ONCE
from kinesumer.dead_letters import DeadLetter
from kinesumer.errors import DeadLetterTooLargeError
from kinesumer.handlers.dead_letters.letter import decode_letter
from tests.support.handler_client import Letters
from tests.support.lambda_events import (
    ALL_DONE,
    FIRST,
    ONCE,
    SHARD,
    STEADY,
    Context,
    Function,
    Seen,
    failures,
    lambda_event,
    lambda_record,
    texts,
)

# --- failures -------------------------------------------------------------------------


def test_the_first_record_that_fails_ends_the_shard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = Seen("b")
    with Function(seen, retries=RetryPolicy(max_attempts=2)) as function:
        assert function.invoke(b"a", b"b", b"c") == failures(1)
        assert function.send(
            {"Records": lambda_event(b"a", b"b", b"c")["Records"][1:]}
        ) == failures(1)
    assert seen.texts == ["a", "b", "b", "b", "b"]
    lines = [line for line in caplog.messages if "Lambda repeats" in line]
    assert len(lines) == 2
    assert "the handler failed 2 times at record" in lines[0]
    assert "ValueError: b; Lambda repeats the shard's records from there on" in lines[0]


def test_a_failed_call_is_repeated_within_the_invocation() -> None:
    seen = Seen("b")

    async def handle(record: Record) -> None:
        if len(seen.records) == 3:
            seen.bad.clear()
        await seen(record)

    with Function(handle) as function:
        assert function.invoke(b"a", b"b", b"c") == ALL_DONE
    assert seen.texts == ["a", "b", "b", "b", "c"]


def test_a_failing_batch_is_bisected_and_the_bad_record_is_named() -> None:
    calls: list[list[str]] = []

    async def handle(batch: Batch) -> None:
        calls.append(texts(batch.records))
        if "d" in calls[-1]:
            raise ValueError

    with Function(handle, retries=ONCE) as function:
        assert function.invoke(b"a", b"b", b"c", b"d") == failures(3)
    assert calls == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"], ["c"], ["d"]]


def test_each_shard_has_its_own_first_failure() -> None:
    event = {
        "Records": [
            lambda_record(b"a", 0, shard="shardId-0"),
            lambda_record(b"b", 1, shard="shardId-1"),
            lambda_record(b"bad", 2, shard="shardId-1"),
            lambda_record(b"bad", 3, shard="shardId-0"),
            lambda_record(b"bad", 4, shard="shardId-0"),
            lambda_record(b"c", 5, shard="shardId-2"),
        ]
    }
    with Function(Seen("bad"), retries=ONCE) as function:
        assert function.send(event) == failures(3, 2)


def test_dead_letters_take_the_failed_record_and_the_next_one_is_handled() -> None:
    letters, seen = Letters(), Seen("b")
    options: dict[str, Any] = {"dead_letters": letters.put, "retries": ONCE}
    with Function(seen, **options) as function:
        assert function.invoke(b"a", b"b", b"c") == ALL_DONE
    assert seen.texts == ["a", "b", "c"]
    [letter] = letters.stored
    assert (letter.app, letter.shard_id, letter.attempts) == ("billing", SHARD, 1)
    assert (letter.sequence_number, letter.data) == (str(FIRST + 1), b"b")


def test_a_letter_that_cannot_be_stored_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    letters = Letters()
    letters.errors.append(DeadLetterTooLargeError("too large"))
    options: dict[str, Any] = {"dead_letters": letters.put, "retries": ONCE}
    with Function(Seen("b"), **options) as function:
        assert function.invoke(b"a", b"b", b"c") == failures(1)
    assert "its dead letter couldn't be stored" in caplog.text


def test_a_shard_with_too_many_letters_waits_and_is_repeated_by_lambda() -> None:
    letters, seen = Letters(), Seen("a", "b", "c")
    options: dict[str, Any] = {"dead_letters": letters.put, "retries": ONCE}
    with Function(seen, **options, dead_letter_limit=2) as function:
        assert function.invoke(b"a", b"b", b"c", b"d") == failures(2)
        assert function.loop.seconds < 60
    assert letters.texts == ["a", "b"]
    assert seen.texts.count("c") > 2


def test_named_targets_of_dead_letters_stay_open(tmp_path: Any) -> None:
    path = tmp_path / "dead.jsonl"
    options: dict[str, Any] = {"dead_letters": f"file:{path}", "retries": ONCE}
    function = batch_handler(Seen("b", "c"), **options)
    for datas in ([b"a", b"b"], [b"c"]):
        assert function(lambda_event(*datas), Context()) == ALL_DONE
    function.close()
    letters = map(decode_letter, path.read_bytes().splitlines())
    assert [letter.data for letter in letters] == [b"b", b"c"]


def test_keys_are_handled_at_once_and_the_first_undone_record_is_named() -> None:
    done: list[str] = []

    async def handle(record: Record) -> None:
        if record.data == b"slow":
            await asyncio.sleep(5)
            raise ValueError
        done.append(record.data.decode())

    event = {
        "Records": [
            lambda_record(data, index, key=key)
            for index, (data, key) in enumerate(
                [(b"a", "1"), (b"slow", "2"), (b"b", "1"), (b"c", "3")]
            )
        ]
    }
    with Function(handle, retries=ONCE, concurrency=3) as function:
        assert function.send(event) == failures(1)
        assert function.loop.seconds < 10
    assert sorted(done) == ["a", "b", "c"]


def test_an_error_of_the_program_is_raised_if_nothing_was_done() -> None:
    with Function(_not_async_but_awaitable) as function:
        with pytest.raises(ConfigurationError, match="async def"):
            function.invoke(b"a", b"b")


def _not_async_but_awaitable(record: Record) -> Any:
    return asyncio.sleep(0)


def test_an_error_of_the_program_after_a_record_is_logged_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def decode(record: Record) -> bytes:
        if record.data == b"b":
            raise ConfigurationError("no schema: add it")
        return record.data

    with Function(Seen(), decode=decode) as function:
        # Records are decoded before the handler gets the first of them.
        datas = [*[b"a"] * MAX_AT_ONCE, b"b"]
        assert function.invoke(*datas) == failures(MAX_AT_ONCE)
    [line] = [line for line in caplog.messages if line.startswith("Lambda repeats")]
    assert line == "Lambda repeats a shard's records: no schema: add it"


def test_an_exit_ends_the_process() -> None:
    async def handle(record: Record) -> None:
        raise SystemExit(3)

    with Function(handle) as function, pytest.raises(SystemExit, match="3"):
        function.invoke(b"a")


# --- the time of an invocation --------------------------------------------------------


def test_a_wait_that_would_outlast_the_time_is_not_begun() -> None:
    seen = Seen("b")
    with Function(seen, retries=STEADY) as function:
        assert function.invoke(b"a", b"b", seconds=3.0) == failures(1)
        assert function.loop.seconds == 0
    assert seen.texts == ["a", "b"]


def test_a_record_gets_all_attempts_in_another_event_before_it_is_a_letter() -> None:
    letters, seen = Letters(), Seen("b")
    options: dict[str, Any] = {"dead_letters": letters.put, "retries": STEADY}
    with Function(seen, **options) as function:
        assert function.invoke(b"a", b"b", b"c", seconds=3.0) == failures(1)
        assert letters.stored == []
        assert function.invoke(b"b", b"c", seconds=30.0) == ALL_DONE
    assert seen.texts == ["a", "b", "b", "b", "b", "c"]
    assert [letter.attempts for letter in letters.stored] == [3]


def test_the_first_record_of_an_event_is_given_up_when_the_time_is_too_short() -> None:
    """Lambda would repeat it forever, and the function would never have more time."""
    letters = Letters()
    options: dict[str, Any] = {"dead_letters": letters.put, "retries": STEADY}
    with Function(Seen("a"), **options) as function:
        assert function.invoke(b"a", b"b", seconds=3.0) == ALL_DONE
    assert [letter.attempts for letter in letters.stored] == [1]


def test_a_record_that_cannot_be_retried_is_a_letter_at_once() -> None:
    letters = Letters()
    retries = RetryPolicy(non_retryable=(ValueError,))
    options: dict[str, Any] = {"dead_letters": letters.put, "retries": retries}
    with Function(Seen("b"), **options) as function:
        assert function.invoke(b"a", b"b", seconds=3.0) == ALL_DONE
    assert letters.texts == ["b"]


def test_a_call_is_cancelled_before_the_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[str] = []

    async def handle(record: Record) -> None:
        try:
            await asyncio.sleep(2)
        finally:
            ended.append(record.data.decode())

    with Function(handle) as function:
        assert function.invoke(b"a", b"b", b"c", seconds=5.0) == failures(2)
        assert function.loop.seconds == 4.5
    assert ended == ["a", "b", "c"]
    [line] = [line for line in caplog.messages if "time ends" in line]
    assert line.startswith("the function's time ends after 2 of 3 records of stream")


def test_a_call_that_resists_its_cancellation_does_not_delay_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handle(record: Record) -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(10)

    with Function(handle) as function:
        assert function.invoke(b"a", b"b", seconds=5.0) == failures(0)
        assert function.loop.seconds < 5
        assert "1 calls of the handler continue" in caplog.text


def test_no_call_begins_without_time() -> None:
    seen = Seen()
    with Function(seen) as function:
        assert function.invoke(b"a", seconds=0.1) == failures(0)
    assert seen.records == []


def test_a_thread_that_hangs_does_not_delay_the_answer() -> None:
    over = threading.Event()

    def handle(record: Record) -> None:
        if record.data == b"b":
            over.wait()

    function = batch_handler(handle)
    try:
        assert function(lambda_event(b"a", b"b"), Context(1.0)) == failures(1)
    finally:
        over.set()
        function.close()


async def _keep(letter: DeadLetter) -> None:
    """Keep nothing."""


def test_the_logger_tells_what_fails_first(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kinesumer"):
        with Function(Seen("a"), retries=ONCE, dead_letters=_keep) as function:
            assert function.invoke(b"a") == ALL_DONE
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "a dead letter is stored for record" in caplog.messages[1]
