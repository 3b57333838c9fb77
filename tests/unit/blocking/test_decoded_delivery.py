"""Test the delivery of decoded records to a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kinesumer.errors import DecodeError
from kinesumer.model.records import Record
from tests.support.thread_desk import ThreadDesk
from tests.support.world import hold


class Decoding:
    """A decoder that notes its thread, and raises an error for some records."""

    def __init__(self, *bad: int) -> None:
        self.bad = [b"data %d" % number for number in bad]
        self.threads: set[threading.Thread] = set()
        self.error: BaseException = LookupError("no such schema")

    def plain(self, record: Record) -> str:
        self.threads.add(threading.current_thread())
        if record.data in self.bad:
            raise self.error
        return record.data.decode()

    async def on_loop(self, record: Record) -> str:
        await asyncio.sleep(0)
        return self.plain(record)


@pytest.mark.parametrize("name", ["plain", "on_loop"])
def test_records_and_batches_have_decoded_values(name: str) -> None:
    decoding = Decoding()
    desk = ThreadDesk(getattr(decoding, name))
    with desk.loop_thread:
        shard = hold()
        desk.put(shard, 1, 2, 3)
        assert next(desk.records).value == "data 1"
        rest = next(desk.records.batches()).records
        assert [record.value for record in rest] == ["data 2", "data 3"]
        assert desk.done(shard) == 1
    here = threading.current_thread() in decoding.threads
    assert here is (name == "plain")


def test_an_async_function_for_errors_runs_on_the_loop() -> None:
    threads: list[threading.Thread] = []

    async def put_aside(record: Record, error: DecodeError) -> None:
        await asyncio.sleep(0)
        threads.append(threading.current_thread())

    desk = ThreadDesk(Decoding(1).plain, put_aside)
    with desk.loop_thread:
        desk.put(hold(), 1, 2)
        assert next(desk.records).sequence_number == "2"
    assert threading.current_thread() not in threads
    assert len(threads) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_an_interruption_of_the_decoder_loses_no_record(whole: bool) -> None:
    decoding = Decoding(1)
    decoding.error = KeyboardInterrupt()
    desk = ThreadDesk(decoding.plain)
    with desk.loop_thread:
        shard = hold()
        desk.put(shard, 1, 2)
        asked: Any = desk.records.batches() if whole else desk.records
        with pytest.raises(KeyboardInterrupt):
            next(asked)
        assert (desk.done(shard), shard.is_idle) == (0, True)
        decoding.bad = []
        assert next(desk.records).sequence_number == "1"
        assert next(desk.records).sequence_number == "2"
        assert desk.done(shard) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_a_lease_that_lapses_during_decoding_delays_the_record(whole: bool) -> None:
    shard = hold()
    deadlines = [shard.lease.deadline]

    def decode(record: Record) -> str:
        shard.lease.deadline = deadlines.pop() if len(calls) else 0.0
        calls.append(record.sequence_number)
        if len(calls) == 1:
            desk.loop_thread.loop.call_soon_threadsafe(renew)
        return "value"

    def renew() -> None:
        desk.loop_thread.loop.call_later(0.05, renewed)

    def renewed() -> None:
        shard.lease.deadline = deadlines[0]

    calls: list[str] = []
    desk = ThreadDesk(decode)
    with desk.loop_thread:
        desk.put(shard, 1)
        asked: Any = desk.records.batches() if whole else desk.records
        next(asked)
    assert calls == ["1", "1"]
