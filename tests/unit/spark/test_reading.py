"""Executors read exactly the ranges that the driver planned."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import (
    AccessDeniedError,
    DataLossError,
    ExpiredIteratorError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.spark.offsets.model import BEGINNING, END, After, At
from kinesumer.spark.planning.tasks import Task
from kinesumer.spark.reading.memory import max_waiting_bytes
from kinesumer.wire.put_records import UserRecord, aggregate
from tests.system.spark.reading_bench import DAY, Bench, StreamState
from tests.unit.spark.jumping import EPOCH, JumpingClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.model.records import Page
    from kinesumer.ports import Reservation

ONE, OTHER = "shardId-000000000000", "shardId-000000000001"


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    assert not asyncio.all_tasks(bench.loop)
    bench.loop.close()


def test_a_range_excludes_its_beginning_and_includes_its_end(bench: Bench) -> None:
    bench.put(100)
    task = bench.task(
        (ONE, bench.after(ONE, 3), bench.after(ONE, 20)),
        (OTHER, BEGINNING, bench.after(OTHER, -2)),
    )
    assert bench.read_numbers(task) == {
        ONE: bench.numbers[ONE][4:21],
        OTHER: bench.numbers[OTHER][:-1],
    }


def test_a_range_without_records_asks_nothing(bench: Bench) -> None:
    bench.put(10)
    here = bench.after(ONE, 2)
    assert bench.rows(bench.task((ONE, here, here))) == []
    assert bench.source.calls == []


def test_batches_have_a_thousand_to_ten_thousand_rows(bench: Bench) -> None:
    bench.put(30_000)
    task = bench.task(
        (ONE, BEGINNING, bench.after(ONE, -1)),
        (OTHER, BEGINNING, bench.after(OTHER, -1)),
    )
    *full, last = [batch.num_rows for batch in bench.batches(task)]
    assert min(full) >= 1000
    assert max([*full, last]) <= 10_000
    assert sum(full) + last == 30_000


def test_a_batch_computed_again_gives_the_same_rows_in_the_same_order(
    bench: Bench,
) -> None:
    bench.put(25_000)
    task = bench.task((ONE, bench.after(ONE, 10), bench.after(ONE, -10)))
    first = bench.rows(task)
    bench.put(100)
    assert bench.rows(task) == first


def test_a_closed_shard_is_read_to_its_end(bench: Bench) -> None:
    bench.put(50)
    bench.kinesis.split("orders", ONE)
    assert bench.read_numbers(bench.task((ONE, bench.after(ONE, 1), END))) == {
        ONE: bench.numbers[ONE][2:]
    }


def test_a_start_by_time_leaves_out_what_came_before(bench: Bench) -> None:
    bench.put(20)
    bench.loop.seconds += 0.4
    before = len(bench.numbers[ONE])
    bench.put(20)
    start = Start.at(datetime.fromtimestamp(EPOCH + 0.3, UTC))
    task = bench.task((ONE, start, bench.after(ONE, -1)))
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][before:]}


# --- aggregates -----------------------------------------------------------------------


def packed(place: int) -> bytes:
    return aggregate([UserRecord(b"%d.%d" % (place, sub), "k") for sub in range(5)])


def test_an_aggregate_is_begun_and_ended_within(bench: Bench) -> None:
    bench.put(20, packed)
    first, last = bench.after(ONE, 0, 3), bench.after(ONE, 2, 1)
    rows = bench.rows(
        bench.task((ONE, first, last)), "sequence_number", "sub_sequence_number"
    )
    numbers = bench.numbers[ONE]
    assert [(row["sequence_number"], row["sub_sequence_number"]) for row in rows] == [
        (numbers[0], 4),
        *((numbers[1], sub) for sub in range(5)),
        (numbers[2], 0),
        (numbers[2], 1),
    ]


def test_aggregates_are_delivered_raw_on_request(bench: Bench) -> None:
    bench.put(20, packed)
    task = bench.task((ONE, bench.after(ONE, 0), bench.after(ONE, 3)))
    rows = bench.rows(task, deaggregate=False)
    assert [row["sequence_number"] for row in rows] == bench.numbers[ONE][1:4]
    assert all(row["data"].startswith(b"\xf3\x89\x9a\xc2") for row in rows)


# --- data loss ------------------------------------------------------------------------


def lost(bench: Bench, task: Task) -> None:
    """Expect an error that names all that somebody needs to know."""
    with pytest.raises(DataLossError, match=r"failOnDataLoss=false") as caught:
        list(bench.batches(task))
    assert bench.stream.arn in str(caught.value)
    assert ONE in str(caught.value)
    last = task.ranges[0].last
    assert isinstance(last, After)
    assert last.position.sequence_number in str(caught.value)


def test_records_that_never_come_are_lost(bench: Bench) -> None:
    bench.put(20)
    missing = After(Position(str(10**55 + 10**6)), EPOCH)
    task = bench.task((ONE, bench.after(ONE, 5), missing))
    lost(bench, task)
    found = bench.read_numbers(task, fail_on_data_loss=False)
    assert found == {ONE: bench.numbers[ONE][6:]}


def test_a_shard_that_ends_before_the_last_position_has_lost_it(bench: Bench) -> None:
    bench.put(20)
    bench.kinesis.split("orders", ONE)
    missing = After(Position(str(10**55 + 10**6)), EPOCH)
    task = bench.task((ONE, bench.after(ONE, 5), missing))
    lost(bench, task)
    found = bench.read_numbers(task, fail_on_data_loss=False)
    assert found == {ONE: bench.numbers[ONE][6:]}


def test_a_last_position_that_retention_has_passed_is_lost(bench: Bench) -> None:
    bench.put(20)
    last = bench.after(ONE, 5)
    bench.loop.seconds += 25 * 3600
    bench.kinesis.apply_retention()
    bench.put(20)
    task = bench.task((ONE, BEGINNING, last))
    lost(bench, task)
    assert bench.read_numbers(task, fail_on_data_loss=False) == {}


def test_a_first_position_that_retention_has_passed_is_lost(bench: Bench) -> None:
    bench.put(20)
    count, first = len(bench.numbers[ONE]), bench.after(ONE, 5)
    bench.loop.seconds += 25 * 3600
    bench.kinesis.apply_retention()
    bench.put(20)
    task = bench.task((ONE, first, bench.after(ONE, -1)))
    lost(bench, task)
    found = bench.read_numbers(task, fail_on_data_loss=False)
    assert found == {ONE: bench.numbers[ONE][count:]}


def test_an_old_first_position_that_is_still_there_is_no_loss(bench: Bench) -> None:
    bench.put(20)
    task = bench.task((ONE, bench.after(ONE, 5), bench.after(ONE, -1)))
    bench.loop.seconds += 2 * DAY
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][6:]}


def test_a_first_record_that_expired_alone_is_no_loss(bench: Bench) -> None:
    bench.put(20)
    old = bench.after(ONE, -1)
    bench.loop.seconds += 25 * 3600
    bench.kinesis.apply_retention()
    count = len(bench.numbers[ONE])
    bench.put(20)
    # The shard was seen at its tip an hour ago: nothing had come after the record.
    first = After(old.position, EPOCH + 24 * 3600)
    task = bench.task((ONE, first, bench.after(ONE, -1)))
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][count:]}


def at(bench: Bench, shard: str, place: int) -> At:
    """Return the place just before a shard's record."""
    return At(bench.numbers[shard][place], EPOCH)


def test_a_range_that_begins_at_a_record_holds_it_and_all_its_parts(
    bench: Bench,
) -> None:
    bench.put(20, packed)
    task = bench.task((ONE, at(bench, ONE, 2), bench.after(ONE, 4)))
    rows = bench.rows(task)
    assert {row["sequence_number"] for row in rows} == {*bench.numbers[ONE][2:5]}
    assert len(rows) == 3 * 5


def test_a_range_whose_first_record_is_gone_is_lost(bench: Bench) -> None:
    bench.put(20)
    bench.stream.shard(ONE).trimmed = 3
    task = bench.task((ONE, at(bench, ONE, 2), bench.after(ONE, 5)))
    lost(bench, task)
    left = bench.read_numbers(task, fail_on_data_loss=False)
    assert left == {ONE: bench.numbers[ONE][3:6]}


def test_records_that_expire_while_a_query_begins_with_the_oldest_are_no_loss(
    bench: Bench,
) -> None:
    bench.put(20)
    bench.loop.seconds += DAY + 60
    bench.stream.shard(ONE).trimmed = 3
    task = bench.task((ONE, at(bench, ONE, 2), bench.after(ONE, 5)))
    lost(bench, task)
    soon = EPOCH + DAY + 600
    ranges = tuple(replace(part, expiring_until=soon) for part in task.ranges)
    just_begun = Task(task.streams, ranges)
    assert bench.read_numbers(just_begun) == {ONE: bench.numbers[ONE][3:6]}


def test_a_start_by_time_that_retention_has_passed_is_lost(bench: Bench) -> None:
    bench.put(20)
    start = Start(type="AT_TIMESTAMP", timestamp=EPOCH)
    task = bench.task((ONE, start, bench.after(ONE, 5)))
    bench.loop.seconds += DAY - 60
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][:6]}
    bench.loop.seconds += 120
    bench.stream.shard(ONE).trimmed = 3
    lost(bench, task)


def test_an_executor_clock_that_is_ahead_raises_no_false_alarm(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put(20)
    first = bench.after(ONE, 2)
    bench.stream.shard(ONE).trimmed = 3
    bench.loop.seconds += DAY - 60
    ahead = JumpingClock(bench.loop)
    monkeypatch.setattr(ahead, "wall", lambda: EPOCH + bench.loop.seconds + 1800)
    task = bench.task((ONE, first, bench.after(ONE, 5)))
    bench.executor_clock = ahead
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][3:6]}


def test_a_shard_that_is_gone_is_lost(bench: Bench) -> None:
    bench.put(20)
    bench.kinesis.split("orders", ONE)
    task = bench.task((ONE, BEGINNING, bench.after(ONE, 5)))
    bench.loop.seconds += 25 * 3600
    bench.kinesis.apply_retention()
    lost(bench, task)
    assert bench.read_numbers(task, fail_on_data_loss=False) == {}


# --- faults ---------------------------------------------------------------------------


def test_an_expired_iterator_is_renewed_after_the_last_record(bench: Bench) -> None:
    bench.put(40_000)

    def expire(call: str, count: int) -> None:
        if call == "records" and count in (1, 3):
            raise ExpiredIteratorError("too old")

    bench.source.mishap = expire
    task = bench.task((ONE, bench.after(ONE, 5), bench.after(ONE, -1)))
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][6:]}
    assert bench.source.count("iterator") == 3


def test_throttles_and_outages_only_delay(bench: Bench) -> None:
    bench.put(20_000)

    def fail(call: str, count: int) -> None:
        if count % 3:
            raise (SourceThrottledError if count % 2 else SourceUnavailableError)(call)

    bench.source.mishap = fail
    task = bench.task((ONE, bench.after(ONE, 5), bench.after(ONE, -1)))
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][6:]}


def test_a_task_fails_after_ten_minutes_without_an_answer(bench: Bench) -> None:
    bench.put(100)

    def throttle(call: str, count: int) -> None:
        raise SourceThrottledError("too many reads")

    bench.source.mishap = throttle
    task = bench.task((ONE, bench.after(ONE, 5), bench.after(ONE, -1)))
    with pytest.raises(SourceThrottledError):
        list(bench.batches(task))
    assert 600 < bench.loop.seconds < 620
    assert bench.source.count("iterator") > 100


def test_a_pause_of_spark_is_no_silence_of_kinesis(bench: Bench) -> None:
    bench.put(40_000)

    def fail_once(call: str, count: int) -> None:
        if count == 2:
            raise SourceUnavailableError("no answer")

    task = bench.task((ONE, bench.after(ONE, 5), bench.after(ONE, -1)))
    count = 0
    bench.source.mishap = fail_once
    for batch in bench.batches(task):
        count += batch.num_rows
        bench.loop.seconds += 3600
    assert count == len(bench.numbers[ONE]) - 6


def test_what_no_retry_helps_is_raised_at_once(bench: Bench) -> None:
    bench.put(100)

    def deny(call: str, count: int) -> None:
        raise AccessDeniedError("kinesis:GetRecords", "orders")

    bench.source.mishap = deny
    task = bench.task(
        (ONE, BEGINNING, bench.after(ONE, -1)),
        (OTHER, BEGINNING, bench.after(OTHER, -1)),
    )
    with pytest.raises(AccessDeniedError):
        list(bench.batches(task))
    assert bench.loop.seconds == 0


# --- pace, room, and what is kept -----------------------------------------------------


def test_a_shard_is_read_four_times_a_second_at_most(bench: Bench) -> None:
    bench.put(60_000, lambda place: bytes(2_000))
    task = bench.task((ONE, BEGINNING, bench.after(ONE, -1)))
    list(bench.batches(task, max_fetch_rate=1e9))
    times = [at for call, at in bench.source.calls if call == "records"]
    assert len(times) > 4
    assert min(later - at for at, later in pairwise(times)) >= 0.25


def test_a_range_is_over_as_soon_as_its_last_record_came(bench: Bench) -> None:
    bench.put(1_000)
    task = bench.task((ONE, BEGINNING, bench.after(ONE, -1)))
    list(bench.batches(task))
    assert bench.loop.seconds == 0
    assert bench.source.count("records") == 1


def test_the_next_batch_goes_on_with_the_iterator_of_the_last_one(bench: Bench) -> None:
    bench.put(1_000)
    middle = bench.after(ONE, -1)
    list(bench.batches(bench.task((ONE, BEGINNING, middle))))
    bench.put(1_000)
    task = bench.task((ONE, middle, bench.after(ONE, -1)))
    found = bench.read_numbers(task)
    assert bench.source.count("iterator") == 1
    # A task that is tried again gets a new one.
    assert bench.read_numbers(task) == found
    assert bench.source.count("iterator") == 2


def test_a_query_with_a_limit_stops_fetching(bench: Bench) -> None:
    bench.put(60_000)
    task = bench.task(
        (ONE, BEGINNING, bench.after(ONE, -1)),
        (OTHER, BEGINNING, bench.after(OTHER, -1)),
    )
    batches = bench.batches(task)
    next(batches)
    made = len(bench.source.calls)
    batches.close()
    assert len(bench.source.calls) == made


def test_shards_are_read_at_once(bench: Bench) -> None:
    bench.put(60_000)
    task = bench.task(
        (ONE, BEGINNING, bench.after(ONE, -1)),
        (OTHER, BEGINNING, bench.after(OTHER, -1)),
    )
    shards = [batch.column("shard_id")[0].as_py() for batch in bench.batches(task)]
    assert shards.index(OTHER) < len(shards) - 1 - shards[::-1].index(ONE)


def test_what_waits_for_spark_is_bounded_in_bytes() -> None:
    bench = Bench(shards=40, reads_per_second=0)
    bench.put(4_000, lambda place: bytes(100_000))
    pairs = [
        (shard, BEGINNING, bench.after(shard, -1)) for shard in sorted(bench.numbers)
    ]
    batches = bench.batches(bench.task(*pairs), min_fetch_period=0.0)
    next(batches)
    # 400 MB are there; the first pages, of unknown size, are allowed 4 MB each.
    assert bench.source.count("records") <= 18
    batches.close()
    bench.loop.close()


class SlowSource(StreamState):
    """Takes a while for each page, and counts how many it is asked for at once."""

    asked_now = asked_at_most = 0

    async def get_records(
        self, iterator: str, limit: int, room: Reservation | None = None
    ) -> Page:
        self.asked_now += 1
        self.asked_at_most = max(self.asked_at_most, self.asked_now)
        await asyncio.sleep(0.4)
        self.asked_now -= 1
        return await super().get_records(iterator, limit, room)


def test_a_task_of_many_shards_reads_them_all_at_once() -> None:
    bench = Bench(32)
    bench.put(1_000)
    source = bench.source = SlowSource(bench.kinesis, "orders")
    task = bench.task(*((i, BEGINNING, bench.after(i, -1)) for i in bench.numbers))
    large = (replace(given, estimated_bytes=2_000_000) for given in task.ranges)
    assert len(bench.rows(Task(task.streams, tuple(large)))) == 1_000
    assert source.asked_at_most == 32
    bench.loop.close()


@pytest.mark.parametrize(
    ("shards", "memory_bytes", "waiting"),
    [
        (1, None, 16_000_000),
        (20, None, 40_000_000),
        (1_000, None, 64_000_000),
        (32, 1 << 30, 64_000_000),
        (32, 1 << 28, 1 << 25),
        (32, 1 << 20, 16_000_000),
    ],
)
def test_what_waits_in_a_task_is_bounded_by_shards_and_memory(
    shards: int, memory_bytes: int | None, waiting: int
) -> None:
    assert max_waiting_bytes(shards, memory_bytes) == waiting
