"""Test that the long run's verdict distinguishes growth from variation."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.flatness import MEASURES, MIB, Samples, Trend, trends

BEGAN = 1e9
HOURS = 2


def samples(measure: str, at: Callable[[float], float]) -> Samples:
    """Return samples of two hours in which only ``measure`` changes with the minute."""
    steady = dict.fromkeys(MEASURES, 40.0)
    return [
        {**steady, "at": BEGAN + second, measure: at(second / 60)}
        for second in range(10, HOURS * 3600, 10)
    ]


def trend(measure: str, at: Callable[[float], float]) -> Trend:
    found = trends(samples(measure, at), BEGAN, BEGAN + HOURS * 3600, 600)
    return next(one for one in found if one.measure == measure)


def test_memory_that_grows_while_warming_up_only_is_flat() -> None:
    assert trend("memory", lambda minute: min(minute, 10) * 10 * MIB).flat


def test_memory_that_goes_on_growing_is_not_flat() -> None:
    found = trend("memory", lambda minute: (70 + minute / 10) * MIB)
    assert found.flat is False
    assert round(found.per_hour / MIB, 3) == 6


def test_connections_that_come_and_go_are_flat() -> None:
    assert trend("connections", lambda minute: 30 + 15 * (int(minute) % 2)).flat


def test_one_task_left_behind_by_each_restart_is_not_flat() -> None:
    found = trend("tasks", lambda minute: 36 + (minute + 10) // 20)
    assert found.flat is False


def test_a_process_without_enough_samples_after_its_warm_up_has_no_trends() -> None:
    short = samples("memory", lambda _: 1.0)[:61]
    assert trends(short, BEGAN, BEGAN + 620, 600) == []
