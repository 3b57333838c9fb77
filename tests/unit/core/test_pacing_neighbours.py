"""Test that apps get fair shares of a shard's reads."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import median

import pytest

from tests.support.neighbours import (
    App,
    FixedSecond,
    Foreign,
    Reads,
    RollingSecond,
    Shard,
    TokenBucket,
    refused,
)

SETTLED, OVER = 30.0, 180.0
SEEDS = range(3)
LIMITS = pytest.mark.parametrize("reads", [TokenBucket, RollingSecond, FixedSecond])
# The time within which 99 of 100 records are read, by the number of apps.
MOST_SECONDS = {1: 0.3, 2: 0.7, 3: 1.3, 5: 1.5}


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
    assert max(slowest) <= MOST_SECONDS[count]
    assert max(parts) < 0.03
    if count == 1:
        assert max(parts) == 0.0


@LIMITS
@pytest.mark.parametrize("count", [1, 4])
def test_an_app_that_comes_late_gets_its_share_within_ten_seconds(
    reads: type[Reads], count: int
) -> None:
    for seed in SEEDS:
        apps = [App() for _ in range(count)] + [App(begins=60.0)]
        run(reads, apps, seed, 120.0)
        fair = 5 / (count + 1)
        assert min(app.rate(70, 120) for app in apps) >= 0.65 * fair
        assert refused(apps, 70, 120) < 0.02


@LIMITS
@pytest.mark.parametrize("count", [2, 5])
def test_an_app_that_is_left_alone_is_as_fast_as_before_within_five_minutes(
    reads: type[Reads], count: int
) -> None:
    for seed in SEEDS:
        stays = App()
        run(reads, [stays, *(App(ends=60.0) for _ in range(count - 1))], seed, 500.0)
        assert stays.p99(370, 500) < 0.3


@LIMITS
@pytest.mark.parametrize("count", [6, 10])
def test_each_of_many_apps_gets_its_share(reads: type[Reads], count: int) -> None:
    for seed in SEEDS:
        random = Random(seed)
        apps = [App(begins=15.0 * random.random()) for _ in range(count)]
        run(reads, apps, seed)
        assert min(app.rate(60, OVER) for app in apps) >= 0.6 * 5 / count


@LIMITS
@pytest.mark.parametrize("count", [2, 3, 5])
def test_apps_of_other_state_stores_share_by_refused_reads(
    reads: type[Reads], count: int
) -> None:
    for seed in SEEDS:
        apps = [App(begins=float(i), is_known=False) for i in range(count)]
        run(reads, apps, seed, 300.0)
        assert min(app.rate(60, 300) for app in apps) >= 0.5 * 5 / count
        assert refused(apps, 60, 300) < 0.09


@LIMITS
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("pace", [0.2, 0.1, 0.02])
def test_apps_go_on_beside_a_consumer_that_never_slows_down(
    reads: type[Reads], count: int, pace: float
) -> None:
    rates = []
    for seed in SEEDS:
        apps = [App(begins=float(i)) for i in range(count)]
        run(reads, [*apps, App(Foreign(pace, pace), begins=60.0)], seed, 360.0)
        rates.append(min(app.rate(90, 360) for app in apps))
    assert median(rates) >= 0.15


@LIMITS
def test_apps_recover_when_a_consumer_that_never_slows_down_ends(
    reads: type[Reads],
) -> None:
    for seed in SEEDS:
        apps = [App(begins=float(i)) for i in range(3)]
        run(reads, [*apps, App(Foreign(0.1, 0.1), ends=60.0)], seed, 240.0)
        assert max(app.p99(120, 240) for app in apps) <= 1.4
        assert refused(apps, 120, 240) < 0.03


def test_apps_that_catch_up_share_the_bytes() -> None:
    for count in (2, 3):
        for seed in SEEDS:
            apps = [App(begins=2.0 * i, backlog_bytes=1e12) for i in range(count)]
            run(TokenBucket, apps, seed)
            got = [app.megabytes_per_second(SETTLED, OVER) for app in apps]
            assert min(got) >= 0.8 * 2 / count
            assert max(got) <= 1.3 * min(got)
            assert refused(apps, SETTLED, OVER) < 0.03


def test_an_app_that_catches_up_alone_gets_all_bytes() -> None:
    app = App(backlog_bytes=1e12)
    run(TokenBucket, [app], 0)
    assert app.megabytes_per_second(SETTLED, OVER) >= 1.95
    assert not app.refused_at


def test_an_app_that_catches_up_does_not_hold_up_one_at_the_tip() -> None:
    for seed in SEEDS:
        apps = [App(backlog_bytes=1e12), App(begins=5.0)]
        run(TokenBucket, apps, seed)
        assert apps[1].p99(SETTLED, OVER) <= 0.7
