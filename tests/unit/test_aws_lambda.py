"""Test that handlers of ``run()`` run in Lambda functions, with partial responses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest

from kinesumer import (
    Batch,
    ConfigurationError,
    Handler,
    Middleware,
    Record,
)
from kinesumer.aws_lambda import batch_handler
from tests.support.aggregates import User, frame, message
from tests.support.lambda_events import (
    ALL_DONE,
    ARN,
    FIRST,
    ONCE,
    SHARD,
    Context,
    Function,
    Seen,
    failures,
    lambda_event,
    texts,
)

# --- what is called, and with what ----------------------------------------------------


def test_each_record_is_handled_in_order_and_the_answer_names_none() -> None:
    seen = Seen()
    with Function(seen) as function:
        assert function.invoke(b"a", b"b", b"c") == ALL_DONE
    assert seen.texts == ["a", "b", "c"]
    first = seen.records[0]
    assert (first.stream_arn, first.shard_id) == (ARN, SHARD)
    assert first.sequence_number == str(FIRST)
    assert (first.fence.app, first.fence.epoch) == ("billing", 0)


def test_an_event_loop_serves_all_events() -> None:
    loops: list[object] = []

    async def handle(record: Record) -> None:
        loops.append(asyncio.get_running_loop())

    with Function(handle) as function:
        assert function.invoke(b"a") == function.invoke(b"b") == ALL_DONE
    assert loops == [function.loop] * 2


def test_a_plain_function_runs_in_a_thread() -> None:
    threads: list[str] = []

    def handle(record: Record) -> None:
        threads.append(threading.current_thread().name)

    function = batch_handler(handle)
    assert function(lambda_event(b"a", b"b"), Context()) == ALL_DONE
    function.close()
    assert [name.partition("_")[0] for name in threads] == ["kinesumer-handler"] * 2


def test_a_batch_has_the_shards_records_and_the_lag() -> None:
    batches: list[Batch] = []

    async def handle(batch: Batch) -> None:
        batches.append(batch)

    with Function(handle) as function:
        assert function.invoke(b"a", b"b") == ALL_DONE
    [batch] = batches
    assert texts(batch.records) == ["a", "b"]
    assert (batch.shard_id, batch.millis_behind) == (SHARD, 2500)


class Order(msgspec.Struct):
    total: int


def test_records_have_typed_values() -> None:
    totals: list[int] = []

    async def handle(record: Record[Order]) -> None:
        totals.append(record.value.total)

    with Function(handle, decode=Order, retries=ONCE) as function:
        answer = function.invoke(b'{"total": 5}', b'{"total": "?"}', b'{"total": 7}')
    assert totals == [5]
    assert answer == failures(1)


def test_type_checkers_compare_the_handlers_annotation_with_the_decoder() -> None:
    """mypy reports the comments below if it has nothing to ignore."""

    async def handle(record: Record[Order]) -> None:
        """Handle an order."""

    batch_handler(handle, decode=Order).close()
    batch_handler(handle).close()  # type: ignore[arg-type]
    batch_handler(handle, decode=int).close()  # type: ignore[misc]


def test_a_handler_with_its_own_options_and_middleware_is_called() -> None:
    hooks: list[str] = []

    class Noted(Middleware):
        def before(self, record: Record) -> None:
            hooks.append(f"before {record.data.decode()}")

        def on_error(self, record: Record, error: Exception) -> None:
            hooks.append(f"error {error}")

    handler = Handler(Seen("b"), retries=ONCE, middleware=[Noted()])
    with Function(handler) as function:
        assert function.invoke(b"a", b"b") == failures(1)
    assert hooks == ["before a", "before b", "error b"]


def test_user_records_of_an_aggregate_are_handled_one_by_one() -> None:
    aggregate = frame(message([User("a", 7, b"1"), User("b", None, b"2")]))
    seen = Seen()
    with Function(seen) as function:
        assert function.invoke(b"0", aggregate, b"3") == ALL_DONE
    assert seen.texts == ["0", "1", "2", "3"]
    assert [record.sub_sequence_number for record in seen.records] == [None, 0, 1, None]
    assert seen.records[1].explicit_hash_key == "7"


def test_a_failure_within_an_aggregate_names_the_aggregate() -> None:
    aggregate = frame(message([User("a", None, b"1"), User("b", None, b"2")]))
    with Function(Seen("2"), retries=ONCE) as function:
        assert function.invoke(b"0", aggregate, b"3") == failures(1)


def test_an_event_whose_aggregates_are_empty_is_done() -> None:
    with Function(Seen()) as function:
        assert function.invoke(frame(b"\n\x01k")) == ALL_DONE


def test_a_broken_aggregate_is_handled_whole_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = frame(message([User("a", None, b"1")]))[:-1] + b"?"
    sizes: list[int] = []

    async def handle(record: Record) -> None:
        sizes.append(len(record.data))

    with Function(handle) as function:
        assert function.invoke(broken) == ALL_DONE
    assert sizes == [len(broken)]
    assert "records that begin like KPL aggregates can't be opened" in caplog.text


# --- refusals, and the start ----------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({}, "has no list of Records"),
        (None, "has no list of Records"),
        ({"Records": {}}, "has no list of Records"),
        ({"Records": [{"body": "x"}]}, "none of the keys"),
        (
            {"Records": [{"kinesis": {"sequenceNumber": "1", "data": ""}}]},
            "no eventID with a shard",
        ),
        (lambda_event(b"a") | {"window": {}, "state": {}}, "tumbling window"),
    ],
)
def test_other_events_are_refused(event: Any, said: str) -> None:
    with Function(Seen()) as function, pytest.raises(ConfigurationError, match=said):
        function.send(event)


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"retries": 3},
        {"dead_letters": "here"},
        {"middleware": [print]},
        {"batch": "yes"},
        {"decode": 5},
        {"dead_letter_limit": 0},
        {"traceparent": "a..b"},
    ],
)
def test_a_wrong_option_is_refused_when_the_function_is_loaded(options: Any) -> None:
    with pytest.raises(ConfigurationError):
        batch_handler(Seen(), **options)


def test_a_cold_start_loads_nothing_that_it_does_not_need() -> None:
    program = """
import sys
from kinesumer import Record
from kinesumer.aws_lambda import batch_handler
async def handle(record: Record): pass
async def keep(letter): pass
function = batch_handler(handle, dead_letters=keep)
class Context:
    function_name = "f"
    def get_remaining_time_in_millis(self): return 3000
number = {"sequenceNumber": "1", "data": ""}
event = {"kinesis": number, "eventID": "s:1", "eventSourceARN": "a:b:c:d:e:stream/s"}
assert function({"Records": [event]}, Context()) == {"batchItemFailures": []}
heavy = {"aiohttp", "aiobotocore", "botocore", "boto3", "opentelemetry", "anyio"}
print(*heavy & sys.modules.keys(), *(m for m in sys.modules if "coordination" in m))
function.close()
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
