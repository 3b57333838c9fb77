"""Test the delivery to a thread: decoding, lost leases, hand-overs and interrupts."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.errors import ConfigurationError, DecodeError
from kinesumer.model.records import Record
from tests.support.clock import wait_until
from tests.support.delivery import ThreadDesk
from tests.support.world import hold

PATIENCE_SECONDS = 30.0


@contextmanager
def open_desk(*decoding: Any, **options: Any) -> Iterator[ThreadDesk]:
    desk = ThreadDesk(*decoding, **options)
    with desk.loop_thread:
        yield desk


def number(record: Record) -> int:
    return int(record.sequence_number)


@contextmanager
def thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run work in a thread that must end before the block does."""
    running = threading.Thread(target=work)
    running.start()
    yield running
    running.join(PATIENCE_SECONDS)
    assert not running.is_alive()


def test_records_of_a_batch_cost_no_way_to_the_loop_each() -> None:
    with open_desk() as desk:
        desk.put(hold(), *range(100))
        taken = iter(desk.records)
        next(taken)
        before = desk.crossings
        for _ in range(99):
            next(taken)
        assert desk.crossings == before


def test_shards_take_turns_and_a_turn_is_bounded_by_time() -> None:
    with open_desk() as desk:
        one, other = hold(), hold()
        desk.put(one, *range(1, 100))
        desk.put(one, *range(100, 200))
        desk.put(other, *range(201, 300))
        seen = []
        for record in desk.records:
            seen.append(number(record))
            desk.clock.seconds += 0.02
            if len(seen) == 12:
                break
        assert seen == [1, 2, 3, 201, 202, 203, 4, 5, 6, 204, 205, 206]
        assert (desk.done(one), desk.done(other)) == (6, 5)
        assert number(next(desk.records.batches()).records[0]) == 7


@pytest.mark.parametrize("what", ["records", "batches"])
def test_ctrl_c_in_a_pause_of_the_lease_loses_no_record(what: str) -> None:
    with open_desk() as desk:
        shard = hold()
        desk.put(shard, 1, 2, 3, 4)
        assert number(next(desk.records)) == 1
        pause(desk, shard, what)
        assert [number(next(desk.records)) for _ in range(3)] == [2, 3, 4]
        assert desk.done(shard) == 3


def pause(desk: ThreadDesk, shard: OwnedShard, what: str) -> None:
    """Ask for more while the lease has lapsed, until Ctrl-C ends the wait."""
    asked = desk.records if what == "records" else desk.records.batches()
    deadline, shard.lease.deadline = shard.lease.deadline, 0.0

    def interrupt() -> None:
        wait_until(lambda: (desk.done(shard), shard.is_idle) == (1, True))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with thread(interrupt), pytest.raises(KeyboardInterrupt):
        next(asked)
    shard.lease.deadline = deadline


def test_no_record_is_handed_out_once_its_lease_has_lapsed() -> None:
    with open_desk() as desk:
        shard = hold()
        desk.put(shard, 1, 2)
        assert number(next(desk.records)) == 1
        deadline, shard.lease.deadline = shard.lease.deadline, 0.0
        seen: list[int] = []
        with thread_of(desk, lambda: seen.append(number(next(desk.records)))):
            wait_until(lambda: (desk.done(shard), shard.is_idle) == (1, True))
            assert seen == []
            shard.lease.deadline = deadline
        assert seen == [2]
        assert (desk.done(shard), shard.is_idle) == (1, False)


def thread_of(desk: ThreadDesk, work: Callable[[], object]) -> Any:
    """Run work in a thread that takes this thread's place as the consumer."""
    desk.delivery.user = None
    return thread(work)


def test_a_revoked_shard_waits_for_the_record_in_hand_and_for_no_other() -> None:
    with open_desk() as desk:
        lost, kept = hold(), hold()
        desk.put(lost, 1, 2)
        desk.put(kept, 7)
        assert number(next(desk.records)) == 1
        desk.on_loop(lost.revoke)
        assert (desk.done(lost), lost.is_idle) == (0, False)
        assert number(next(desk.records)) == 7
        assert (desk.done(lost), lost.is_idle) == (1, True)


def test_what_is_revoked_while_others_hand_over_is_never_lost_or_handed_out() -> None:
    handed: dict[int, int] = {}
    with open_desk() as desk:
        shards = [hold() for _ in range(50)]
        for shard in shards:
            desk.put(shard, *range(1, 21))
        desk.put(hold(), 999)

        def consume() -> None:
            for record in desk.records:
                if number(record) == 999:
                    return
                place = id(record.source)
                handed[place] = handed.get(place, 0) + 1

        released: dict[int, int] = {}
        with thread(consume) as running:
            for shard in shards:
                desk.on_loop(shard.revoke)
                wait_until(lambda s=shard: (desk.done(s), s.is_idle)[1])  # type: ignore[misc]
                released[id(shard.source)] = shard.progress.done
            running.join(PATIENCE_SECONDS)
        # Each shard was released only after the records handed out from it were done.
        assert {k: n for k, n in released.items() if n} == handed


def test_batches_are_whole_and_asking_for_the_next_marks_all_of_them() -> None:
    with open_desk() as desk:
        shard = hold()
        desk.put(shard, 1, 2)
        desk.put(shard, 3)
        batches = desk.records.batches()
        assert [number(r) for r in next(batches).records] == [1, 2]
        assert desk.done(shard) == 0
        assert [number(r) for r in next(batches).records] == [3]
        assert desk.done(shard) == 2


def test_another_thread_is_refused_and_the_first_goes_on() -> None:
    with open_desk() as desk:
        desk.put(hold(), 1, 2)
        taken = iter(desk.records)
        next(taken)
        refused: list[BaseException] = []

        def ask() -> None:
            for ask_again in (desk.records, desk.records.batches()):
                try:
                    next(ask_again)
                except ConfigurationError as error:
                    refused.append(error)

        with thread(ask):
            pass
        assert [str(e)[:19] for e in refused] == ["thread 'MainThread'"] * 2
        assert number(next(taken)) == 2


def test_a_thread_may_follow_one_that_has_ended() -> None:
    with open_desk() as desk:
        desk.put(hold(), 1, 2)
        seen: list[int] = []
        for _ in range(2):
            with thread(lambda: seen.append(number(next(desk.records)))) as running:
                pass
            # Threads are compared as objects: on Linux both often have the same id.
            assert desk.delivery.user is running
        assert seen == [1, 2]


def test_ctrl_c_ends_the_wait_for_a_record_and_loses_none() -> None:
    with open_desk() as desk:
        shard = hold()

        def interrupt() -> None:
            wait_until(lambda: desk.buffer._receivers)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        with thread(interrupt), pytest.raises(KeyboardInterrupt):
            next(desk.records)
        desk.put(shard, 1)
        assert number(next(desk.records)) == 1


def test_an_error_ends_the_iteration_each_time() -> None:
    with open_desk() as desk:
        error = ValueError("the reason")
        desk.delivery.close(error)
        for _ in range(2):
            with pytest.raises(ValueError, match="the reason"):
                next(desk.records)


def test_iterating_ends_with_the_block_and_needs_it() -> None:
    desk = ThreadDesk()
    with pytest.raises(ConfigurationError, match="use the client in `with"):
        next(desk.records)
    with desk.loop_thread:
        desk.put(hold(), 1)
        next(desk.records)
    assert list(desk.records) == []
    assert list(desk.records.batches()) == []
    with pytest.raises(ConfigurationError, match="entered once"), desk.loop_thread:
        pass


def test_marks_come_over_together_from_any_thread() -> None:
    with open_desk(acks_by_asking=False) as desk:
        shard = hold()
        desk.put(shard, *range(100))
        records = [next(desk.records) for _ in range(100)]
        before = desk.crossings

        def mark() -> None:
            for record in records:
                desk.delivery.ack_soon(record)

        with thread(mark):
            wait_until(lambda: len(desk.acked) == 100)
        assert desk.crossings == before
        assert list(map(int, desk.acked)) == list(range(100))


def test_the_watchdog_is_told_where_the_thread_is() -> None:
    with open_desk() as desk:
        desk.put(hold(), 1)
        next(desk.records)
        work = desk.delivery.oldest_work()
        assert work is not None
        assert work.what == "user code at orders shardId-000000000000"
        assert "test_the_watchdog_is_told_where_the_thread_is" in work.stack()


def test_what_is_begun_and_not_waited_for_runs_on_the_loop() -> None:
    done = threading.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        done.set()

    with open_desk() as desk:
        desk.loop_thread.begin(work)
        assert done.wait(PATIENCE_SECONDS)


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
    with open_desk(getattr(decoding, name)) as desk:
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

    with open_desk(Decoding(1).plain, put_aside) as desk:
        desk.put(hold(), 1, 2)
        assert next(desk.records).sequence_number == "2"
    assert threading.current_thread() not in threads
    assert len(threads) == 1


@pytest.mark.parametrize("whole", [True, False])
def test_an_interruption_of_the_decoder_loses_no_record(whole: bool) -> None:
    decoding = Decoding(1)
    decoding.error = KeyboardInterrupt()
    with open_desk(decoding.plain) as desk:
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
    with open_desk(decode) as desk:
        desk.put(shard, 1)
        asked: Any = desk.records.batches() if whole else desk.records
        next(asked)
    assert calls == ["1", "1"]
