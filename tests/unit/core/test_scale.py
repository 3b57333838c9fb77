"""Test the demand of shards, and that a fleet that follows the wanted clients rests."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.scale import (
    MIN_REMAINING_SHARE,
    MIN_SPEED_SECONDS,
    SHARD_SECONDS,
    SMOOTHING_SECONDS,
    DemandEstimator,
    ShardDemand,
    ShardSample,
    clients_wanted,
)
from kinesumer.model.rows import MemberRow
from tests.support.scaled_fleet import (
    EVERY_SECONDS,
    LIMIT_SECONDS,
    TARGET,
    ScaledFleet,
)

costs = st.floats(0.01, 5.0)


class ReadShard:
    """A shard whose records need some seconds of work for each second of arrivals."""

    def __init__(self, cost: float, lag_seconds: float = 0.0) -> None:
        self.cost, self.lag_seconds, self.now = cost, lag_seconds, 0.0
        self.estimator = DemandEstimator[str](LIMIT_SECONDS)

    def read(self, capacity: float, seconds: float = EVERY_SECONDS) -> ShardDemand:
        """Read with so many seconds of work per second, and return the demand."""
        for _ in range(round(seconds / EVERY_SECONDS)):
            self.now += EVERY_SECONDS
            backlog = self.cost * (self.lag_seconds + EVERY_SECONDS)
            done = min(backlog, capacity * EVERY_SECONDS)
            self.lag_seconds = max(0.0, (backlog - done) / self.cost)
            work = SHARD_SECONDS + done / EVERY_SECONDS
            sample = ShardSample(work, self.lag_seconds)
            found = self.estimator.update({"s": sample}, self.now)
        return found["s"]


# --- the demand of a shard ------------------------------------------------------------


@given(costs)
def test_a_shard_that_is_caught_up_needs_the_work_that_it_causes(cost: float) -> None:
    found = ReadShard(cost).read(capacity=10)
    assert found == pytest.approx((cost + SHARD_SECONDS,) * 2)


@given(costs, st.floats(0.15, 10.0))
def test_the_demand_doesnt_depend_on_the_speed_at_which_the_shard_is_read(
    cost: float, speed: float
) -> None:
    shard = ReadShard(cost, lag_seconds=3600.0)
    found = shard.read(capacity=cost * speed, seconds=SMOOTHING_SECONDS + EVERY_SECONDS)
    assert found.keep_up == pytest.approx(cost + SHARD_SECONDS)


def test_a_backlog_needs_the_work_that_removes_it_in_time() -> None:
    shard = ReadShard(0.5, lag_seconds=300.0)
    shard.read(capacity=0.5, seconds=MIN_SPEED_SECONDS + EVERY_SECONDS)
    found = shard.read(capacity=0.5)
    # The shard has been seen behind for 40 s, and is 300 s behind.
    assert found.catch_up == pytest.approx(found.keep_up + 0.5 * 300 / (600 - 40))


def test_the_demand_stays_the_same_until_the_shard_has_almost_caught_up() -> None:
    shard = ReadShard(0.5, lag_seconds=300.0)
    shard.read(capacity=0.5, seconds=MIN_SPEED_SECONDS + EVERY_SECONDS)
    first = found = shard.read(capacity=0.5)
    while shard.lag_seconds > 30.0:
        assert found.catch_up == pytest.approx(first.catch_up, rel=0.1)
        found = shard.read(capacity=found.catch_up - SHARD_SECONDS)
    assert shard.now <= LIMIT_SECONDS


def test_a_late_backlog_needs_a_bounded_demand() -> None:
    shard = ReadShard(0.5, lag_seconds=60.0)
    found = shard.read(capacity=0.5, seconds=10 * LIMIT_SECONDS)
    least = LIMIT_SECONDS * MIN_REMAINING_SHARE
    assert found.catch_up == pytest.approx(found.keep_up + 0.5 * 60 / least)


def test_the_time_to_catch_up_begins_again_after_the_shard_has_caught_up() -> None:
    shard = ReadShard(0.5, lag_seconds=60.0)
    late = shard.read(capacity=0.5, seconds=LIMIT_SECONDS)
    shard.read(capacity=5.0, seconds=2 * SMOOTHING_SECONDS)
    shard.lag_seconds = 60.0
    assert shard.read(capacity=0.5).catch_up < late.catch_up


@pytest.mark.parametrize("sample", [ShardSample(None, 90.0), ShardSample(0.001, 90.0)])
def test_a_shard_that_nobody_reads_keeps_its_demand(sample: ShardSample) -> None:
    shard = ReadShard(0.5)
    before = shard.read(capacity=1.0, seconds=SMOOTHING_SECONDS)
    for behind in range(10, 3600, 10):
        seen = sample._replace(lag_seconds=float(behind))
        found = shard.estimator.update({"s": seen}, shard.now + behind)["s"]
        assert found.keep_up == pytest.approx(before.keep_up)
    assert found.catch_up > 10 * before.catch_up


def test_a_seek_back_doesnt_change_the_demand_of_the_arriving_records() -> None:
    shard = ReadShard(0.5)
    before = shard.read(capacity=1.0, seconds=SMOOTHING_SECONDS)
    shard.lag_seconds = 3600.0
    found = shard.read(capacity=1.0)
    assert found.keep_up == before.keep_up
    assert found.catch_up > 2 * before.catch_up


Samples = list[tuple[float, float | None, float | None]]  # times, works and lags
SLOW: Samples = [(0, 0.4, 50), (10, 0.4, 50), (20, 0.4, 50)]


@pytest.mark.parametrize(
    ("samples", "keep_up"),
    [
        # the demand of a backlog is unknown until its speed is known
        (SLOW[:1], None),
        (SLOW[:2], None),
        (SLOW, None),
        ([*SLOW, (30, 0.4, 50)], 0.4),
        # a shard that stands still shows no cost
        ([(now, 0.9, 50 + now) for now in range(0, 200, 10)], None),
        # without lags, the present work is the demand
        ([(now, 0.4, None) for now in range(0, 100, 10)], 0.4),
        # a first sample counts until there are more
        ([(0, 0.4, 0)], 0.4),
        ([(0, 0.4, 0), (10, 0.6, 0)], 0.6),
        # an idle shard needs only its own work
        ([(0, SHARD_SECONDS / 2, 0)], SHARD_SECONDS),
        # slow readings still have two samples
        ([(0, 0.4, 100), (300, 0.4, 250)], 2 * (0.4 - SHARD_SECONDS)),
    ],
)
def test_the_demand_follows_from_samples(
    samples: Samples, keep_up: float | None
) -> None:
    estimator, lag = DemandEstimator[str](LIMIT_SECONDS), None
    for now, work, lag in samples:
        found = estimator.update({"s": ShardSample(work, lag)}, now)
    assert bool(found) is (keep_up is not None)
    for demand in found.values():
        assert demand.keep_up == pytest.approx(keep_up, rel=0.01)
        assert lag or demand.catch_up == demand.keep_up


def test_a_lag_that_cant_be_read_stays_the_last_one_for_a_window() -> None:
    shard = ReadShard(0.5, lag_seconds=300.0)
    before = shard.read(capacity=0.5, seconds=SMOOTHING_SECONDS)
    unknown = ShardSample(0.5 + SHARD_SECONDS, None)
    found = shard.estimator.update({"s": unknown}, shard.now + 10)["s"]
    assert found.catch_up == pytest.approx(before.catch_up, rel=0.02)
    for after in range(20, 200, 10):
        found = shard.estimator.update({"s": unknown}, shard.now + after)["s"]
    assert found.catch_up == found.keep_up


def test_a_shard_of_unknown_cost_counts_as_an_average_shard() -> None:
    estimator = DemandEstimator[str](LIMIT_SECONDS)
    samples = {
        "a": ShardSample(0.2, 0.0),
        "b": ShardSample(0.4, 0.0),
        "new": ShardSample(None, 0.0),
    }
    assert estimator.update(samples, 0.0)["new"].keep_up == pytest.approx(0.3)


def test_a_shard_that_is_gone_is_forgotten() -> None:
    estimator = DemandEstimator[str](LIMIT_SECONDS)
    estimator.update({"a": ShardSample(0.2, 0.0)}, 0.0)
    assert estimator.update({"b": ShardSample(None, 0.0)}, 1.0) == {}
    assert estimator.update({"a": ShardSample(None, 0.0)}, 2.0) == {}


def test_the_demand_is_an_average_over_the_window() -> None:
    estimator = DemandEstimator[str](LIMIT_SECONDS)
    for now in range(0, 1000, 10):
        work = 0.9 if now % 20 else 0.1
        found = estimator.update({"s": ShardSample(work, 0.0)}, float(now))["s"]
        if now >= SMOOTHING_SECONDS:
            assert found.keep_up == pytest.approx(0.5, rel=0.2)


# --- the number of clients ------------------------------------------------------------


def client(weight: int = 1, max_shards: int | None = None) -> MemberRow:
    return MemberRow("c", "session", weight=weight, max_shards=max_shards)


@pytest.mark.parametrize(
    ("demands", "expected"),
    [
        ([], 1),
        ([0.0], 1),
        ([0.1] * 7, 1),
        ([0.1] * 8, 2),
        ([0.7] * 3, 3),
        ([0.35] * 100, 50),
        # A shard has one client at a time, however much work it needs.
        ([5.0], 1),
        ([5.0, 0.1], 2),
        ([5.0, 0.1, 0.1, 0.1], 2),
        ([5.0] * 4, 4),
    ],
)
def test_the_clients_have_the_target_utilization(
    demands: list[float], expected: int
) -> None:
    assert clients_wanted(demands, [client()], 0.7) == expected


def test_a_heavier_client_has_the_target_and_the_others_less() -> None:
    demands = [0.07] * 60
    assert clients_wanted(demands, [client(5), client(5)], 0.7) == 6
    # With weights 1 and 3, the heavier client has 1.5 times the average work.
    assert clients_wanted(demands, [client(1), client(3)], 0.7) == 9


@pytest.mark.parametrize(
    ("limits", "expected"),
    [((4,), 3), ((2, 4), 4), ((4, None), 1), ((1,), 10), ((20,), 1)],
)
def test_all_shards_fit_into_the_clients_limits(
    limits: tuple[int | None, ...], expected: int
) -> None:
    clients = [client(max_shards=limit) for limit in limits]
    assert clients_wanted([0.001] * 10, clients, 0.7) == expected


loads = st.lists(st.floats(0.0, 3.0), max_size=50)
fleets = st.lists(st.builds(client, st.integers(1, 9)), max_size=5)
targets = st.floats(0.1, 4.0)


@given(loads, fleets, targets)
def test_the_number_is_at_least_one_and_at_most_that_of_the_shards(
    demands: list[float], clients: list[MemberRow], target: float
) -> None:
    assert 1 <= clients_wanted(demands, clients, target) <= max(1, len(demands))


@given(loads, fleets, targets, st.integers(0, 49))
def test_more_work_never_needs_fewer_clients(
    demands: list[float], clients: list[MemberRow], target: float, index: int
) -> None:
    before = clients_wanted(demands, clients, target)
    more = [d + (0.5 if at == index else 0) for at, d in enumerate(demands)]
    assert clients_wanted(more, clients, target) >= before
    assert clients_wanted([*demands, 0.0], clients, target) >= before
    assert clients_wanted(demands, clients, target / 2) >= before


@given(loads, st.lists(st.builds(client), max_size=5), targets)
def test_so_many_clients_have_at_most_the_target_and_one_less_has_more(
    demands: list[float], clients: list[MemberRow], target: float
) -> None:
    wanted = clients_wanted(demands, clients, target)
    work = sum(min(demand, target) for demand in demands)
    assert wanted == max(1, ceil(work / target - 1e-9))


def turns(clients: list[int]) -> int:
    """Return how often the number of clients begins to rise or to fall."""
    steps = [after - before for before, after in pairwise(clients) if after != before]
    return sum((before > 0) != (after > 0) for before, after in pairwise(steps))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("shards", "work", "lag_seconds"), [(16, 4.0, 300.0), (64, 8.0, 600.0)]
)
def test_a_backlog_is_removed_soon_and_then_the_clients_go(
    shards: int, work: float, lag_seconds: float, seed: int
) -> None:
    run = ScaledFleet(shards, work, lag_seconds, seed).run(3600)
    assert run.caught_up_at is not None
    # The fleet first grows for five minutes. Shards cannot be divided between clients.
    assert run.caught_up_at <= 1.7 * LIMIT_SECONDS
    assert turns(run.clients) == 1
    assert abs(run.clients[-1] - work / TARGET) < 2


@pytest.mark.parametrize("seed", range(3))
def test_a_saturated_fleet_grows_to_what_the_load_needs_and_stays(seed: int) -> None:
    run = ScaledFleet(16, 4.0, 0.0, seed).run(3600)
    assert max(run.clients) <= 2 * run.clients[-1]
    assert turns(run.clients) <= 1
    assert abs(run.clients[-1] - 4.0 / TARGET) < 2
