"""Test that apps get fair shares of a shard's reads."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.unit.core.neighbours import (
    App,
    FixedSecond,
    Foreign,
    RollingSecond,
    Shard,
    TokenBucket,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.core.neighbours import Reads

SETTLED, OVER = 30.0, 180.0
SEEDS = range(3)
LIMITS = pytest.mark.parametrize("reads", [TokenBucket, RollingSecond, FixedSecond])
MOST_SECONDS = {1: 0.4, 2: 0.8, 3: 1.3, 5: 2.0}


def run(
    reads: type[Reads], apps: Sequence[App], seed: int, seconds: float = OVER
) -> None:
    Shard(reads, seed).run(apps, seconds)


@LIMITS
@pytest.mark.parametrize("count", MOST_SECONDS)
def test_every_app_reads_within_its_time_and_few_reads_are_refused(
    reads: type[Reads], count: int
) -> None:
    slowest, parts = [], []
    for seed in SEEDS:
        random = Random(seed)
        spread = 15.0 if seed % 2 else 1.0
        apps = [App(begins=spread * random.random()) for _ in range(count)]
        run(reads, apps, seed)
        slowest.append(max(app.p99(SETTLED, OVER) for app in apps))
        parts.append(refused(apps, SETTLED, OVER))
    assert median(slowest) <= 0.9 * MOST_SECONDS[count]
    assert max(slowest) <= 1.1 * MOST_SECONDS[count]
    assert median(parts) < 0.015
    if count == 1:
        assert max(parts) == 0.0


@LIMITS
def test_apps_that_run_for_minutes_have_few_refused_reads(reads: type[Reads]) -> None:
    parts = []
    for seed in range(6):
        random = Random(seed)
        apps = [App(begins=15.0 * random.random()) for _ in range(5)]
        run(reads, apps, seed, 600.0)
        parts.append(refused(apps, OVER, 600.0))
    assert median(parts) < 0.016
    assert max(parts) < 0.02


@LIMITS
@pytest.mark.parametrize("count", [1, 4])
def test_an_app_that_comes_late_gets_its_share_within_ten_seconds(
    reads: type[Reads], count: int
) -> None:
    for seed in SEEDS:
        apps = [App() for _ in range(count)] + [App(begins=60.0)]
        run(reads, apps, seed, 120.0)
        fair = 5 / (count + 1)
        assert min(app.rate(70, 120) for app in apps) >= 0.55 * fair
        assert refused(apps, 70, 120) < 0.05


@LIMITS
@pytest.mark.parametrize("count", [2, 5])
def test_an_app_that_is_left_alone_is_as_fast_as_before_within_two_minutes(
    reads: type[Reads], count: int
) -> None:
    for seed in SEEDS:
        stays = App()
        run(reads, [stays, *(App(ends=60.0) for _ in range(count - 1))], seed, 240.0)
        assert stays.p99(180, 240) < 0.3


@LIMITS
@pytest.mark.parametrize("count", [6, 10])
def test_each_of_many_apps_gets_its_share(reads: type[Reads], count: int) -> None:
    lowest = []
    for seed in SEEDS:
        random = Random(seed)
        apps = [App(begins=15.0 * random.random()) for _ in range(count)]
        run(reads, apps, seed)
        lowest.append(min(app.rate(60, OVER) for app in apps))
    assert median(lowest) >= 0.7 * 5 / count
    assert min(lowest) >= 0.55 * 5 / count


FOREIGN_BEGINS, NOTICED, LONG_OVER = 60.0, 180.0, 360.0
# The least rate of each app, by the number of apps and the seconds between two reads
# of the foreign consumer.
READS_PER_SECOND = {
    (1, 0.2): 1.5,
    (1, 0.1): 2.0,
    (1, 0.02): 1.1,
    (2, 0.2): 1.5,
    (2, 0.1): 1.5,
    (2, 0.02): 0.95,
}


@pytest.mark.parametrize("reads", [TokenBucket, RollingSecond])
@pytest.mark.parametrize(("count", "pace"), READS_PER_SECOND)
def test_a_consumer_that_never_slows_down_leaves_apps_their_share(
    reads: type[Reads], count: int, pace: float
) -> None:
    rates = []
    for seed in SEEDS:
        apps = [App(begins=float(i)) for i in range(count)]
        foreign = App(Foreign(pace, pace), begins=FOREIGN_BEGINS)
        run(reads, [*apps, foreign], seed, LONG_OVER)
        rates.append(min(app.rate(NOTICED, LONG_OVER) for app in apps))
        assert max(app.p99(NOTICED, LONG_OVER) for app in apps) <= 6.0
    least = READS_PER_SECOND[count, pace]
    assert median(rates) >= least
    assert min(rates) >= 0.6 * least


def test_in_fixed_seconds_a_foreign_consumer_leaves_an_app_a_read_a_second() -> None:
    for seed in SEEDS:
        app, foreign = App(), App(Foreign(0.02, 0.02), begins=FOREIGN_BEGINS)
        run(FixedSecond, [app, foreign], seed, LONG_OVER)
        assert app.rate(NOTICED, LONG_OVER) >= 0.9


@LIMITS
@pytest.mark.parametrize("pace", [0.1, 0.02])
def test_an_app_goes_on_reading_when_a_foreign_consumer_begins(
    reads: type[Reads], pace: float
) -> None:
    for seed in SEEDS:
        app = App()
        run(reads, [app, App(Foreign(pace, pace), begins=60.0)], seed, 120.0)
        assert max(b - a for a, b in pairwise(app.read_at) if b > 60) <= 7.0


@LIMITS
def test_apps_recover_when_a_foreign_consumer_ends(reads: type[Reads]) -> None:
    for seed in SEEDS:
        random = Random(seed)
        apps = [
            App(begins=float(i), clock_error=random.uniform(-0.3, 0.3))
            for i in range(3)
        ]
        run(reads, [*apps, App(Foreign(0.1, 0.1), ends=60.0)], seed, 240.0)
        assert max(app.p99(90, 240) for app in apps) <= 1.4
        assert refused(apps, 90, 240) < 0.03


def test_apps_that_catch_up_share_the_bytes() -> None:
    for count in (2, 3):
        for seed in SEEDS:
            apps = [App(begins=2.0 * i, backlog_bytes=1e12) for i in range(count)]
            run(TokenBucket, apps, seed)
            got = [app.megabytes_per_second(SETTLED, OVER) for app in apps]
            assert min(got) >= 0.55 * 2 / count
            assert max(got) <= 2.5 * min(got)
            assert refused(apps, SETTLED, OVER) < 0.1


def test_an_app_that_catches_up_alone_gets_all_bytes() -> None:
    app = App(backlog_bytes=1e12)
    run(TokenBucket, [app], 0)
    assert app.megabytes_per_second(SETTLED, OVER) >= 1.95
    assert not app.refused_at


def test_an_app_that_catches_up_does_not_hold_up_one_at_the_tip() -> None:
    for seed in SEEDS:
        apps = [App(backlog_bytes=1e12), App(begins=5.0)]
        run(TokenBucket, apps, seed)
        assert apps[1].p99(SETTLED, OVER) <= 0.8
