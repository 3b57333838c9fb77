"""Test how loads are averaged, how long they stay known, and what work they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.load import (
    MIN_MEASURED_SECONDS,
    SHARD_MICROSECONDS,
    UNKNOWN_SECONDS,
    KnownLoads,
    LoadAverages,
    LoadMeter,
    report_loads,
    work_of,
    work_of_report,
)
from kinesumer.model.reports import Load, LoadReport
from kinesumer.model.streams import ShardKey

A, B = "stream a", "stream b"
BUSY = Load(1000.0, 10.0, 0.5)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (Load(), 1_000),
        (Load(bytes_per_second=1e6), 21_000),
        (Load(records_per_second=1000.0), 11_000),
        (Load(handler_seconds_per_second=1.5), 1_501_000),
        (Load(1e6, 1000.0, 1.5), 1_531_000),
    ],
)
def test_work_is_the_time_of_a_processor(load: Load, expected: int) -> None:
    assert work_of(load) == expected


def test_a_report_of_several_shards_has_the_costs_of_each_of_them() -> None:
    reports = [LoadReport(A, 0, shards, Load(0.0, 0.0, 0.5)) for shards in (1, 3)]
    assert [work_of_report(report) for report in reports] == [501_000, 503_000]


def measure(averages: LoadAverages[str], rate: float, *times: float) -> dict[str, Load]:
    """Return the load of a meter that counts at one rate until each of the times."""
    meter, found, last = LoadMeter(), dict[str, Load](), times[0]
    for now in times:
        meter.size += round(100 * rate * (now - last))
        meter.records += round(rate * (now - last))
        meter.handler_seconds += rate * (now - last) / 100
        last, found = now, averages.update({"s": meter}, now)
    return found


def test_a_load_is_known_after_it_was_measured_for_a_while() -> None:
    averages = LoadAverages[str]()
    assert measure(averages, 10, 5.0) == {}
    assert measure(averages, 10, 5.0, MIN_MEASURED_SECONDS + 4.9) == {}
    found = measure(LoadAverages(), 10, 5.0, 9.0, 13.0, MIN_MEASURED_SECONDS + 5.0)
    assert found["s"] == pytest.approx(Load(1000.0, 10.0, 0.1))


def test_the_first_average_is_that_since_the_beginning() -> None:
    averages, meter = LoadAverages[str](), LoadMeter()
    averages.update({"s": meter}, 0.0)
    meter.records = 100  # as after a backlog
    averages.update({"s": meter}, 2.0)
    assert averages.update({"s": meter}, 8.0)["s"].records_per_second == 12.5


def follow(*rates: Callable[[], float]) -> list[float]:
    """Return the average after each beat, for two minutes at each of the rates."""
    averages, meter = LoadAverages[str](), LoadMeter()
    found, at = list[float](), 0
    for rate in rates:
        for _ in range(60):
            load = averages.update({"s": meter}, float(at)).get("s", Load())
            found.append(load.handler_seconds_per_second)
            meter.handler_seconds += 2 * rate()
            at += 2
    return found


@pytest.mark.parametrize("rate", [0.1, 0.6, 1.4, 1.8, 2.5, 10.0])
def test_an_average_is_exact_fifteen_seconds_after_a_great_change(rate: float) -> None:
    found = follow(lambda: 1.0, lambda: rate)
    assert found[60] == pytest.approx(1.0)
    assert found[60 + 8 :] == pytest.approx([rate] * (60 - 8), rel=0.05)


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [(0.75, 30), (1.25, 30), (0.8, 35), (1.2, 35), (0.84, 65), (1.18, 65)],
)
def test_an_average_follows_a_small_change_within_a_minute(
    rate: float, seconds: int
) -> None:
    found = follow(lambda: 1.0, lambda: 1.0, lambda: rate)
    after = 120 + (seconds + 1) // 2
    assert found[120 + 2] == pytest.approx(1.0, rel=0.01)
    assert found[after:] == pytest.approx([rate] * (180 - after), rel=0.02)


def test_an_average_follows_a_tiny_change_within_three_minutes() -> None:
    found = follow(*[lambda: 1.0] * 2, *[lambda: 1.05] * 2)
    assert found[120 + 45] == pytest.approx(1.025, rel=0.005)
    assert found[120 + 93] == pytest.approx(1.05)


def test_noise_is_averaged_out_over_three_minutes() -> None:
    draw = random.Random(1)
    found = follow(*[lambda: draw.uniform(0.7, 1.3)] * 20)[91:]
    assert min(found) > 0.94
    assert max(found) < 1.06
    # The averages of ten seconds differ by four times as much.
    assert pstdev(found) < 0.02


def test_few_counts_are_kept_and_a_shard_with_hardly_any_work_does_not_change() -> None:
    averages, meter = LoadAverages[str](), LoadMeter()
    for at in range(1000):
        averages.update({"s": meter}, at / 2)
    assert len(averages._histories["s"].counts) <= 37
    meter.records = 10
    load = averages.update({"s": meter}, 500.0)["s"]
    assert load.records_per_second == pytest.approx(10 / 180, rel=0.05)


def test_a_shard_that_was_lost_is_measured_anew() -> None:
    averages, meter = LoadAverages[str](), LoadMeter()
    averages.update({"s": meter}, 0.0)
    assert averages.update({}, 20.0) == {}
    assert averages.update({"s": meter}, 30.0) == {}


# --- what the leader knows ---


def report(first: int, load: Load = BUSY, shards: int = 1, arn: str = A) -> LoadReport:
    return LoadReport(arn, first, shards, load)


def test_reported_loads_are_those_of_the_next_shards() -> None:
    known = KnownLoads()
    # A reported hash key is rounded down.
    known.observe(
        [report(9), report(0, Load()), report(5, arn=B)], {A: [0, 10, 20], B: [5]}
    )
    assert known.loads == {(A, 0): Load(), (A, 10): BUSY, (B, 5): BUSY}
    work, is_known = known.work({A: [0, 10], B: [5]}, 0.0)
    assert work == {A: [1000, work_of(BUSY)], B: [work_of(BUSY)]}
    assert is_known


def test_a_report_of_several_shards_is_shared_among_them() -> None:
    known = KnownLoads()
    known.observe([report(0, shards=3), report(20)], {A: [0, 10, 20, 30]})
    work, is_known = known.work({A: [0, 10, 20]}, 0.0)
    half = Load(*(rate / 2 for rate in BUSY))
    assert work == {A: [work_of(half), work_of(half), work_of(BUSY)]}
    assert is_known


def test_a_report_covers_no_more_shards_than_it_says() -> None:
    known = KnownLoads()
    known.observe([report(0, shards=2), report(0, arn=B)], {A: [0, 10, 20], B: [0]})
    assert not known.work({A: [0, 10, 20]}, 0.0)[1]
    known.observe([report(25)], {A: [0, 10, 20]})  # there is no such shard
    assert known.work({A: [0, 10]}, 0.0)[1]


def test_a_load_stays_known_while_its_shard_moves() -> None:
    known = KnownLoads()
    shards = {A: [0, 10]}
    known.observe([report(0), report(10, Load())], shards)
    known.observe([report(10, BUSY)], shards)
    assert known.work(shards, 0.0) == ({A: [work_of(BUSY)] * 2}, True)
    # A shard that isn't open any more is forgotten.
    known.observe([], {A: [0]})
    known.observe([], shards)
    assert not known.work(shards, 0.0)[1]


def test_an_unknown_shard_counts_as_usual_and_delays_plans_for_a_minute() -> None:
    known, shards = KnownLoads(), {A: [0, 10, 20]}
    known.observe([report(0), report(10, Load())], shards)
    usual = (work_of(BUSY) + SHARD_MICROSECONDS) // 2
    for now, is_known in ((5.0, False), (4.9 + UNKNOWN_SECONDS, False)):
        work = {A: [work_of(BUSY), SHARD_MICROSECONDS, usual]}
        assert known.work(shards, now) == (work, is_known)
    assert known.work(shards, 5.0 + UNKNOWN_SECONDS)[1]
    # If it is unknown again later, the minute begins again.
    known.observe([report(20)], shards)
    assert known.work(shards, 70.0)[1]
    assert not known.work({A: [0, 10, 20, 30]}, 71.0)[1]


def test_without_any_load_nothing_is_known() -> None:
    known = KnownLoads()
    assert known.work({A: [0]}, 0.0) == ({A: [SHARD_MICROSECONDS]}, False)
    assert known.work({A: [0]}, 2 * UNKNOWN_SECONDS)[1] is False


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 4))),
    st.sets(st.integers(0, 50)),
)
def test_any_reports_give_work_for_every_shard(
    reports: list[tuple[int, int]], starts: set[int]
) -> None:
    known, shards = KnownLoads(), {A: [0, *sorted(starts - {0})]}
    known.observe([report(first, shards=count) for first, count in reports], shards)
    work, _ = known.work(shards, 0.0)
    assert all(SHARD_MICROSECONDS <= size <= work_of(BUSY) for size in work[A])
    assert len(work[A]) == len(shards[A])


def loads(*seconds: float, arn: str = A) -> dict[tuple[ShardKey, int], Load]:
    """Return the loads of successive shards, by key and starting hash key."""
    return {
        (ShardKey(arn, f"shardId-{at}"), 10 * at): Load(0.0, 0.0, each)
        for at, each in enumerate(seconds)
    }


def test_a_few_shards_are_reported_singly_and_in_order() -> None:
    given = loads(0.5, arn=B) | dict(reversed(loads(0.1, 0.2).items()))
    assert report_loads(given, 3) == [
        LoadReport(A, 0, 1, Load(0.0, 0.0, 0.1)),
        LoadReport(A, 10, 1, Load(0.0, 0.0, 0.2)),
        LoadReport(B, 0, 1, Load(0.0, 0.0, 0.5)),
    ]
    assert report_loads({}, 3) == []


def test_a_busy_shard_is_reported_singly_and_the_others_together() -> None:
    found = report_loads(loads(*[0.25] * 4, 10.0, *[0.25] * 8), 4)
    assert [report.shards for report in found] == [4, 1, 4, 4]
    assert [report.first_hash for report in found] == [0, 40, 50, 90]
    assert [report.load[2] for report in found] == [1.0, 10.0, 1.0, 1.0]


def test_each_stream_has_a_report() -> None:
    given = loads()
    for number in range(12):
        given |= loads(0.1, 0.1, arn=f"stream {number:02}")
    assert [report.shards for report in report_loads(given, 10)] == [2] * 12


@given(
    st.lists(st.sampled_from([0.0, 0.001, 0.1, 5.0]), max_size=60),
    st.lists(st.sampled_from([0.0, 0.01, 1.0]), max_size=60),
    st.integers(2, 30),
)
def test_reports_cover_all_shards_and_share_the_work(
    first: list[float], second: list[float], most: int
) -> None:
    given = loads(*first) | loads(*second, arn=B)
    found = report_loads(given, most)
    assert len(found) == min(most, len(given)) or len(found) < most
    ordered = sorted(given, key=lambda shard: (shard[0].stream_arn, shard[1]))
    total = sum(map(work_of, given.values()))
    for report in found:
        covered, ordered = ordered[: report.shards], ordered[report.shards :]
        assert (covered[0][0].stream_arn, covered[0][1]) == report[:2]
        assert {key.stream_arn for key, _ in covered} == {report.stream_arn}
        sums = map(sum, zip(*(given[shard] for shard in covered), strict=True))
        assert report.load == pytest.approx(Load(*sums))
        if report.shards > 1:
            work = sum(work_of(given[shard]) for shard in covered)
            assert work <= 2 * total / (most - 1) + 1
    assert not ordered
