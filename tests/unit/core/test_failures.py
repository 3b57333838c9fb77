"""Test how failures of records and calls are counted over the last minute."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.core.failures import (
    FailureWindows,
    MinuteCounts,
    OutcomeMeter,
)
from kinesumer.model.incidents import QUIET_SECONDS
from kinesumer.model.positions import Position
from kinesumer.model.reports import LastError, Outcomes, StreamFailures
from kinesumer.model.streams import ShardKey

WALL = 1_700_000_000.0
ONE, TWO = ShardKey("arn:a", "shardId-1"), ShardKey("arn:a", "shardId-2")
OTHER = ShardKey("arn:b", "shardId-1")


class Shards:
    """Shards whose records a test lets succeed and fail, and their windows."""

    def __init__(self, *keys: ShardKey) -> None:
        self.meters = {key: OutcomeMeter() for key in keys}
        self.done = dict.fromkeys(keys, 0)
        self.windows: FailureWindows[ShardKey] = FailureWindows()

    def fail(self, key: ShardKey = ONE, number: int = 1) -> None:
        self.meters[key].calls += 1
        self.meters[key].failed += 1
        self.meters[key].fail(ValueError("a secret"), Position(str(number)))

    def succeed(self, key: ShardKey = ONE, count: int = 1) -> None:
        self.meters[key].calls += count
        self.done[key] += count

    def at(self, now: float) -> list[StreamFailures]:
        readings = {
            key: meter.read(key, self.done[key]) for key, meter in self.meters.items()
        }
        return self.windows.update(readings, now, WALL + now)


def test_streams_without_failures_are_not_reported() -> None:
    shards = Shards(ONE, OTHER)
    shards.succeed(count=100)
    assert shards.at(2) == []
    assert shards.windows.added["arn:a"] == Outcomes(done=100, calls=100)


def test_a_failure_is_reported_with_its_type_and_place_but_without_text() -> None:
    shards = Shards(ONE, TWO, OTHER)
    shards.succeed(TWO, 9)
    shards.fail(ONE, 7)
    [found] = shards.at(2)
    error = LastError("ValueError", "shardId-1", "7", WALL + 2)
    assert found == StreamFailures("arn:a", WALL + 2, Outcomes(9, 10, 1), error)
    assert found.outcomes.problems == 1


def test_counts_are_those_of_the_last_minute() -> None:
    shards = Shards(ONE)
    for now in range(0, 200, 2):
        shards.succeed()
        shards.fail()
        [found] = shards.at(now)
    assert found.since == WALL
    assert found.outcomes == Outcomes(done=30, calls=60, failed=30)


def test_failures_end_after_a_minute_without_one() -> None:
    shards = Shards(ONE)
    shards.fail()
    assert shards.at(0)
    assert shards.at(QUIET_SECONDS - 1)
    assert shards.at(QUIET_SECONDS) == []
    shards.fail()
    [found] = shards.at(100)
    assert found.since == WALL + 100


def test_the_last_error_is_kept_until_another_one_or_the_end() -> None:
    shards = Shards(ONE, TWO)
    shards.fail(ONE, 1)
    shards.at(0)
    shards.fail(TWO, 2)
    [found] = shards.at(10)
    assert found.error == LastError("ValueError", "shardId-2", "2", WALL + 10)
    [found] = shards.at(20)
    assert found.error == LastError("ValueError", "shardId-2", "2", WALL + 10)
    shards.fail(ONE, 1)  # the same record again
    [found] = shards.at(30)
    assert found.error == LastError("ValueError", "shardId-1", "1", WALL + 30)


def test_letters_and_skipped_records_are_failures_too() -> None:
    shards = Shards(ONE)
    meter = shards.meters[ONE]
    meter.letters += 3
    meter.skip(Position("8", 2))
    [found] = shards.at(0)
    assert found.outcomes == Outcomes(letters=3, skipped=1)
    assert found.error == LastError("DecodeError", "shardId-1", "8:2", WALL)


def test_what_a_lost_shard_counted_stays_in_the_window() -> None:
    shards = Shards(ONE)
    shards.fail()
    shards.at(0)
    shards.meters = {ONE: OutcomeMeter()}  # claimed again
    shards.meters[ONE].calls = 5
    readings: dict[Any, Any] = {}
    [found] = shards.windows.update(readings, 1, WALL)
    assert found.outcomes.failed == 1
    [found] = shards.at(2)
    assert found.outcomes == Outcomes(calls=6, failed=1)


def test_the_worst_stream_comes_first() -> None:
    shards = Shards(ONE, OTHER)
    shards.fail(ONE)
    shards.fail(OTHER)
    shards.fail(OTHER)
    assert [found.stream_arn for found in shards.at(0)] == ["arn:b", "arn:a"]


@pytest.mark.parametrize("steps", [1, 7])
def test_counts_are_told_a_minute_after_the_first_one(steps: int) -> None:
    counts = MinuteCounts()
    for now in range(steps):
        assert counts.add({"a": 2, "b": 0}, now) == {}
    assert counts.add({}, 59.9) == {}
    assert counts.add({"a": 1}, 60) == {"a": 2 * steps + 1}
    assert counts.add({}, 500) == {}
