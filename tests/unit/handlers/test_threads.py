"""Test that plain functions as handlers run in threads, not on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from kinesumer import Batch, Record
from kinesumer.errors import ConfigurationError
from kinesumer.handlers import RetryPolicy
from tests.support.handler_client import RealTimeClient, ignore

pytestmark = pytest.mark.usefixtures("nobody_else_joins")

QUICK = RetryPolicy(max_attempts=2, initial_delay_seconds=0.01)


@pytest.mark.parametrize("whole", [True, False])
async def test_records_are_decoded_on_the_event_loop(whole: bool) -> None:
    decoded_in: set[int] = set()
    values: list[int] = []

    async def decode(record: Record) -> int:
        await asyncio.sleep(0)
        decoded_in.add(threading.get_ident())
        return int(record.data)

    def handle(record: Record[int]) -> None:
        values.append(record.value)
        assert threading.get_ident() not in decoded_in
        if len(values) == 250:
            client.close()

    def handle_batch(batch: Batch[int]) -> None:
        for record in batch.records:
            handle(record)

    client = RealTimeClient(handle_batch if whole else handle, decode=decode)
    client.put(*map(str, range(250)))
    await client.run_all()
    assert values == [*range(250)]
    assert decoded_in == {threading.get_ident()}


PLACE: ContextVar[str] = ContextVar("PLACE")


async def test_records_are_handled_in_one_thread_not_one_trip_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No turn ends by itself, however slow the machine is.
    monkeypatch.setattr("kinesumer.handlers.invokers.TURN_SECONDS", 60.0)
    seen: list[str] = []
    threads: list[int] = []
    places: list[str] = []

    def handle(record: Record) -> None:
        seen.append(record.data.decode())
        threads.append(threading.get_ident())
        # A context variable stays set for the records of the same call only.
        places.append(PLACE.get())
        PLACE.set("handler")
        if len(seen) == 50:
            client.close()

    client = RealTimeClient(handle)
    client.put(*map(str, range(50)))
    PLACE.set("caller")
    await client.run_all()
    assert seen == [*map(str, range(50))]
    assert threading.get_ident() not in threads
    assert len({*threads}) == 1
    assert places == ["caller", *["handler"] * 49]


@pytest.mark.parametrize("error", [ValueError, StopIteration, StopAsyncIteration])
async def test_whatever_a_plain_function_raises_is_its_failure(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def handle(record: Record) -> None:
        calls.append(record.data.decode())
        if record.data == b"b":
            raise error
        if record.data == b"c":
            client.close()

    client = RealTimeClient(handle, retries=QUICK, dead_letters="file:unused")
    client.put("a", "b", "c")
    await client.run_all()
    assert calls == ["a", "b", "b", "c"]
    assert client.letters.texts == ["b"]
    attempts = [vars(line).get("attempt") for line in caplog.records]
    assert attempts == [1, 2]  # the first failure, and the dead letter


async def test_a_coroutine_that_nobody_awaits_ends_run_at_once() -> None:
    client = RealTimeClient(
        lambda record: ignore(record), batch=False, on_failure="stop-shard"
    )
    client.put("a")
    with pytest.raises(ConfigurationError, match="returned an awaitable"):
        await client.run_all()


async def test_keys_run_in_several_threads() -> None:
    both = threading.Barrier(2, timeout=10)
    seen: list[str] = []

    def handle(record: Record) -> None:
        both.wait()
        seen.append(record.data.decode())
        if len(seen) == 2:
            client.close()

    client = RealTimeClient(handle, concurrency=2)
    client.put("a", "b")
    await client.run_all()
    assert sorted(seen) == ["a", "b"]


async def test_a_shard_given_up_begins_no_other_record_in_its_thread() -> None:
    seen: list[str] = []
    goes_on = threading.Event()

    def handle(record: Record) -> None:
        seen.append(record.data.decode())
        if len(seen) == 2:
            client.close()
            client._loop.call_soon_threadsafe(goes_on.set)
            goes_on.wait(10)

    client = RealTimeClient(handle)
    client.put("a", "b", "c", "d")
    await client.run_all()
    assert seen == ["a", "b"]


@pytest.mark.parametrize("takes", ["record", "batch"])
async def test_a_thread_that_hangs_is_reported_and_its_shard_is_given_up(
    takes: str, caplog: pytest.LogCaptureFixture
) -> None:
    reported = threading.Event()

    def hangs(_: object) -> None:
        reported.wait(15)

    client = RealTimeClient(hangs, batch=takes == "batch", max_processing_seconds=0.3)
    client.put("a")
    running = asyncio.get_running_loop().create_task(client.run_all())
    async with asyncio.timeout(15):
        while not [r for r in caplog.records if "made no progress" in r.message]:
            await asyncio.sleep(0.01)
        while client.group.session is not None:
            await asyncio.sleep(0.01)
    reported.set()
    client.close()
    await running
    reports = [r.message for r in caplog.records if r.message.startswith("user code")]
    [report] = reports
    assert report.startswith("user code at orders shardId-000000000000 has made no")
    assert "in hangs" in report


def refuse_threads(patch: pytest.MonkeyPatch, refuses: Callable[[], bool]) -> None:
    """Let the system refuse threads for handlers while ``refuses`` returns True."""
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("kinesumer-handler") and refuses():
            raise RuntimeError("can't start new thread")
        start(thread)

    patch.setattr(threading.Thread, "start", limited)
    patch.setattr("kinesumer.runtime.threads.RETRY_SECONDS", 0.01)


async def test_handlers_wait_for_a_thread_that_the_system_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes] = []
    refusals = [*range(5)]
    refuse_threads(monkeypatch, lambda: bool(refusals and refusals.pop() >= 0))

    def handle(record: Record) -> None:
        seen.append(record.data)
        if record.data == b"c":
            client.close()

    client = RealTimeClient(handle, dead_letters="file:unused")
    client.put("a", "b", "c")
    await client.run_all()
    assert seen == [b"a", b"b", b"c"]
    assert not client.letters.texts


async def test_a_client_whose_handlers_get_no_thread_hands_its_shard_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[bool] = []

    def refuses() -> bool:
        refused.append(True)
        return True

    refuse_threads(monkeypatch, refuses)
    seen: list[Record] = []
    client = RealTimeClient(seen.append, batch=False)
    client.put("a")
    running = asyncio.get_running_loop().create_task(client.run_all())
    async with asyncio.timeout(15):
        while len(refused) < 3:
            await asyncio.sleep(0.01)
        client.close()
        await running
    [row] = [row for row in client.memory.snapshot() if "shardId" in str(row["sk"])]
    assert "owner" not in row
    assert not seen
