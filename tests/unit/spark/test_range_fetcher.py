"""Test that executors read exactly the ranges that the driver planned."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from kinesumer.core.pacing import CALL_SECONDS
from kinesumer.errors import (
    AccessDeniedError,
    DataLossError,
    ExpiredIteratorError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.positions import BEGINNING, END, After, At, Position
from kinesumer.model.streams import Start
from kinesumer.spark.planning.tasks import Task
from kinesumer.wire.put_records import Entry, aggregate
from tests.support.clock import ClockAhead
from tests.support.jumping_loop import EPOCH
from tests.support.spark_reading import DAY, Bench

ONE, OTHER = "shardId-000000000000", "shardId-000000000001"


def test_a_range_without_records_sends_no_request(bench: Bench) -> None:
    bench.put(10)
    here = bench.after(ONE, 2)
    assert bench.rows(bench.task((ONE, here, here))) == []
    assert bench.source.calls == []


def test_a_batch_computed_again_gives_the_same_rows(bench: Bench) -> None:
    bench.put(5_000)
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


# --- aggregates -----------------------------------------------------------------------


def packed(place: int) -> bytes:
    return aggregate([Entry(b"%d.%d" % (place, sub), "k") for sub in range(5)])


def test_a_range_may_begin_and_end_within_an_aggregate(bench: Bench) -> None:
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


def test_aggregates_that_cannot_be_opened_are_delivered_whole_with_one_warning(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put(20, lambda place: packed(place)[:-1])
    rows = bench.rows(bench.whole(ONE, OTHER))
    whole = sorted(packed(place)[:-1] for place in range(20))
    assert sorted(row["data"] for row in rows) == whole
    assert sorted(caplog.messages) == [
        f"orders {shard}: records that begin like KPL aggregates can't be opened, and "
        f"are delivered whole (the first has the sequence number {numbers[0]})"
        for shard, numbers in sorted(bench.numbers.items())
    ]


@pytest.mark.parametrize("subscribes", [False, True])
def test_aggregates_are_delivered_raw_on_request(
    bench: Bench, subscribes: bool
) -> None:
    bench.put(20, packed)
    pair = (ONE, bench.after(ONE, 0), bench.after(ONE, 3))
    rows = bench.rows(bench.task(pair, subscribes=subscribes), deaggregate=False)
    assert [row["sequence_number"] for row in rows] == bench.numbers[ONE][1:4]
    assert all(row["data"].startswith(b"\xf3\x89\x9a\xc2") for row in rows)


# --- data loss ------------------------------------------------------------------------


def lost(bench: Bench, task: Task, left: list[str]) -> None:
    """Check that the error names the range, or ``left`` is read if loss is allowed."""
    with pytest.raises(DataLossError, match=r"failOnDataLoss=false") as caught:
        list(bench.batches(task))
    assert bench.stream.arn in str(caught.value)
    assert ONE in str(caught.value)
    last = task.ranges[0].last
    assert isinstance(last, After)
    assert last.position.sequence_number in str(caught.value)
    found = bench.read_numbers(task, fail_on_data_loss=False)
    assert found == ({ONE: left} if left else {})


@pytest.mark.parametrize("closed", [False, True])
def test_a_last_position_that_never_comes_is_lost(bench: Bench, closed: bool) -> None:
    bench.put(20)
    if closed:
        bench.kinesis.split("orders", ONE)
    missing = After(Position(str(10**55 + 10**6)), EPOCH)
    task = bench.task((ONE, bench.after(ONE, 5), missing))
    lost(bench, task, bench.numbers[ONE][6:])


def test_a_position_that_retention_has_passed_is_lost(bench: Bench) -> None:
    bench.put(20)
    count, passed = len(bench.numbers[ONE]), bench.after(ONE, 5)
    bench.expire()
    bench.put(20)
    lost(bench, bench.task((ONE, BEGINNING, passed)), [])
    task = bench.task((ONE, passed, bench.after(ONE, -1)))
    lost(bench, task, bench.numbers[ONE][count:])


def test_an_old_first_position_within_retention_is_not_lost(bench: Bench) -> None:
    bench.put(20)
    bench.loop.seconds += 2 * DAY
    assert_rest(bench)


def test_an_expired_record_before_the_range_is_not_lost(bench: Bench) -> None:
    bench.put(20)
    old = bench.after(ONE, -1)
    bench.expire()
    count = len(bench.numbers[ONE])
    bench.put(20)
    # An hour ago, the shard was read to its tip, and no record had followed this one.
    first = After(old.position, EPOCH + 24 * 3600)
    task = bench.task((ONE, first, bench.after(ONE, -1)))
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][count:]}


def test_a_missing_first_record_is_lost_unless_it_expired_while_a_query_began(
    bench: Bench,
) -> None:
    bench.put(20)
    bench.stream.shard(ONE).trimmed = 3
    first = At(bench.numbers[ONE][2], EPOCH)
    task = bench.task((ONE, first, bench.after(ONE, 5)))
    lost(bench, task, bench.numbers[ONE][3:6])
    bench.loop.seconds += DAY + 60
    lost(bench, task, bench.numbers[ONE][3:6])
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
    lost(bench, task, bench.numbers[ONE][3:6])


def test_a_fast_executor_clock_reports_no_loss(bench: Bench) -> None:
    bench.put(20)
    first = bench.after(ONE, 2)
    bench.stream.shard(ONE).trimmed = 3
    bench.loop.seconds += DAY - 60
    task = bench.task((ONE, first, bench.after(ONE, 5)))
    bench.executor_clock = ClockAhead(bench.loop, 1800)
    assert bench.read_numbers(task) == {ONE: bench.numbers[ONE][3:6]}


def test_a_shard_that_is_gone_is_lost(bench: Bench) -> None:
    bench.put(20)
    bench.kinesis.split("orders", ONE)
    task = bench.task((ONE, BEGINNING, bench.after(ONE, 5)))
    bench.expire()
    lost(bench, task, [])


# --- faults ---------------------------------------------------------------------------


def rest(bench: Bench) -> Task:
    """Return a task that reads all records of a shard but the first six."""
    return bench.task((ONE, bench.after(ONE, 5), bench.after(ONE, -1)))


def assert_rest(bench: Bench) -> None:
    assert bench.read_numbers(rest(bench)) == {ONE: bench.numbers[ONE][6:]}


def test_an_expired_iterator_is_renewed_after_the_last_record(bench: Bench) -> None:
    bench.put(40_000)
    bench.source.fail(ExpiredIteratorError("too old"), 1, 3, call="records")
    assert_rest(bench)
    assert bench.source.count("iterator") == 3


def test_throttles_and_outages_only_delay(bench: Bench) -> None:
    bench.put(20_000)

    def fail(call: str, count: int) -> None:
        if count % 3:
            raise (SourceThrottledError if count % 2 else SourceUnavailableError)(call)

    bench.source.mishap = fail
    assert_rest(bench)


def test_pages_without_an_iterator_neither_end_a_range_nor_lose_it(
    bench: Bench,
) -> None:
    bench.put(40_000)
    bench.source.without_iterator = 12
    assert_rest(bench)
    assert bench.source.without_iterator < 12


def test_empty_pages_without_an_iterator_are_no_proof_of_a_loss(bench: Bench) -> None:
    bench.put(100)
    log = bench.stream.shard(ONE).log
    kept, log[:] = list(log), log[:20]
    bench.source.without_iterator = 20

    def later(call: str, count: int) -> None:
        if call == "records" and count == 12:
            log[:] = kept

    bench.source.mishap = later
    assert_rest(bench)


def test_a_task_fails_after_ten_minutes_without_an_answer(bench: Bench) -> None:
    bench.put(100)
    bench.source.fail(SourceThrottledError("too many reads"))
    with pytest.raises(SourceThrottledError):
        list(bench.batches(rest(bench)))
    assert 600 < bench.loop.seconds < 620
    assert bench.source.count("iterator") > 100


def test_a_task_waits_for_credentials_as_long_as_there_are_none(bench: Bench) -> None:
    bench.put(100)
    missing = SourceUnavailableError("AWS has refused the credentials")
    missing.lacks_credentials = True
    bench.source.fail(missing, *range(1, 1000), call="iterator")
    assert_rest(bench)
    assert bench.loop.seconds > 1200


def test_a_pause_of_spark_does_not_count_as_an_outage(bench: Bench) -> None:
    bench.put(40_000)
    count = 0
    bench.source.fail(SourceUnavailableError("no answer"), 2)
    for batch in bench.batches(rest(bench)):
        count += batch.num_rows
        bench.loop.seconds += 3600
    assert count == len(bench.numbers[ONE]) - 6


def test_denied_access_is_raised_at_once(bench: Bench) -> None:
    bench.put(100)
    bench.source.fail(AccessDeniedError("kinesis:GetRecords", "orders"))
    task = bench.whole(ONE, OTHER)
    with pytest.raises(AccessDeniedError):
        list(bench.batches(task))
    assert bench.loop.seconds == 0


# --- pace, room, and what is kept -----------------------------------------------------


@pytest.mark.parametrize("apps", [1, 4])
def test_all_apps_together_read_a_shard_four_times_a_second_at_most(
    bench: Bench, apps: int
) -> None:
    data = bytes(2_000)
    bench.put(60_000, lambda place: data)
    task = bench.whole(ONE)
    task = Task(task.streams, (replace(task.ranges[0], apps=apps),))
    list(bench.batches(task, max_fetch_rate=1e9))
    times = [at for call, at in bench.source.calls if call == "records"]
    assert len(times) > 4
    least = 0.25 if apps == 1 else apps * CALL_SECONDS
    assert min(later - at for at, later in pairwise(times)) >= least


def test_a_range_is_over_as_soon_as_its_last_record_came(bench: Bench) -> None:
    bench.put(1_000)
    task = bench.whole(ONE)
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
    # A retried task gets a new iterator.
    assert bench.read_numbers(task) == found
    assert bench.source.count("iterator") == 2
