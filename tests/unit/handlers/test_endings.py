"""Test ``run()`` with cancellations, exits and unusual exceptions of handlers."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from anyio import CancelScope

from kinesumer import Record
from kinesumer.errors import HandlerFailedError, KinesumerError
from kinesumer.model.rows import ShardRow
from kinesumer.wire import rows
from tests.support.handler_client import ONCE, RealTimeClient
from tests.support.world import SHARD

pytestmark = pytest.mark.usefixtures("nobody_else_joins")


def row(client: RealTimeClient) -> ShardRow:
    """Return the row of the only shard."""
    [arn] = {stream.arn for stream in client.group.streams.values()}
    [found] = client.memory.rows(rows.shard_partition("app", arn))
    return rows.read_shard(found)


def has_released_after_the_first(client: RealTimeClient) -> bool:
    """Return whether the shard has no owner, and only its first record is done."""
    left, shard = row(client), client.kinesis.stream("orders").shards[SHARD]
    return not left.owner and left.position == (shard.log[0].sequence_number, None)


def raising(error: BaseException, *, thread: bool) -> Any:
    """Return a handler that raises at its second record."""

    def handle(record: Record) -> None:
        if record.data == b"b":
            raise error

    async def handle_in_loop(record: Record) -> None:
        handle(record)

    return handle if thread else handle_in_loop


class Outcome(BaseException):
    """An exception like those of test frameworks, which no code should catch."""


@pytest.mark.parametrize(
    ("error", "thread"),
    [
        (SystemExit(3), True),
        (KeyboardInterrupt(), False),
        (Outcome(), True),
        (Outcome(), False),
    ],
)
async def test_what_ends_a_program_ends_run_and_the_shards_are_handed_over(
    error: BaseException, *, thread: bool
) -> None:
    client = RealTimeClient(
        raising(error, thread=thread), batch=False, dead_letters="file:no"
    )
    client.put("a", "b", "c")
    with pytest.raises(type(error)) as caught:
        await client.run_all()
    assert caught.value is error
    assert not client.letters.tries
    assert has_released_after_the_first(client)


async def test_a_handler_that_cancels_its_own_task_stops_no_shard_in_silence() -> None:
    async def handle(_: Record) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(5)

    client = RealTimeClient(handle, batch=False)
    client.put("a")
    with pytest.raises(HandlerFailedError, match=r"orders, .* cancelled the task"):
        await client.run_all()


async def test_cancelling_run_waits_for_the_record_that_a_thread_is_at() -> None:
    has_one, may_end = threading.Event(), threading.Event()
    seen: list[bytes] = []

    def handle(record: Record) -> None:
        has_one.set()
        may_end.wait(10)
        seen.append(record.data)

    client = RealTimeClient(handle, batch=False)
    client.put("a", "b")
    running = asyncio.get_running_loop().create_task(client.run_all())
    await asyncio.to_thread(has_one.wait, 10)
    running.cancel()
    await asyncio.wait([running], timeout=0.2)
    assert row(client).owner
    may_end.set()
    await asyncio.wait([running], timeout=10)
    assert running.cancelled()
    assert seen == [b"a"]
    assert has_released_after_the_first(client)


async def test_what_anyio_cancels_waits_for_a_thread_too() -> None:
    has_one = threading.Event()
    seen: list[bytes] = []

    def handle(record: Record) -> None:
        has_one.set()
        time.sleep(0.5)
        seen.append(record.data)

    client = RealTimeClient(handle, batch=False, dead_letters="file:unused")
    client.put("a", "b")
    await client.__aenter__()
    with CancelScope() as scope:

        async def cancel() -> None:
            await asyncio.to_thread(has_one.wait, 10)
            scope.cancel()

        cancelling = asyncio.get_running_loop().create_task(cancel())
        await client.handle_all()
    await cancelling
    assert seen == [b"a"]
    await client.__aexit__(None, None, None)


async def test_a_record_whose_handler_could_not_be_called_is_no_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("kinesumer-handler"):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    seen: list[Record] = []
    client = RealTimeClient(
        seen.append, batch=False, retries=ONCE, dead_letters="file:unused"
    )
    client.put("a")
    with pytest.raises(KinesumerError, match="keep the main thread alive"):
        await client.run_all()
    assert not seen
    assert not client.letters.tries
    assert row(client).position is None
