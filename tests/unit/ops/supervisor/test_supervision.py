"""Test which processes are started, stopped and started again, and when."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.ops.supervisor.supervision import (
    FAILED,
    FIRST_WAIT_SECONDS,
    KILLED,
    LONGEST_WAIT_SECONDS,
    MAX_DEATHS,
    STABLE_SECONDS,
    WRONG_USE,
    Action,
    Running,
    Send,
    Start,
    Supervision,
)

TERM, KILL = signal.SIGTERM, signal.SIGKILL
CRASH = -signal.SIGSEGV


def begun(count: int = 2, *, reloads: bool = False) -> Supervision:
    supervision = Supervision(count, reloads=reloads)
    assert supervision.begin(0.0) == [Start(number) for number in range(count)]
    return supervision


def test_all_processes_start_at_once() -> None:
    supervision = begun(3)
    assert supervision.exit_status() is None
    assert supervision.wake_at() is None


def test_a_process_that_died_starts_again_after_a_wait_and_the_others_go_on() -> None:
    supervision = begun()
    assert supervision.on_exit(1, CRASH, 5.0) == []
    assert supervision.wake_at() == 5.0 + FIRST_WAIT_SECONDS
    assert supervision.on_time(5.0) == []
    assert supervision.on_time(5.0 + FIRST_WAIT_SECONDS) == [Start(1)]
    assert supervision.wake_at() is None
    assert supervision.restarts == {0: 0, 1: 1}


def waits(supervision: Supervision, deaths: int, ran_seconds: float) -> list[float]:
    """Let process 0 die and start again; return the waits in between."""
    found, now = [], 0.0
    for _ in range(deaths):
        now += ran_seconds
        assert supervision.on_exit(0, 1, now) == []
        wake_at = supervision.wake_at()
        assert wake_at is not None
        found.append(wake_at - now)
        now = wake_at
        assert supervision.on_time(now) == [Start(0)]
    return found


def test_the_waits_double_up_to_a_longest_one() -> None:
    found = waits(begun(), MAX_DEATHS - 1, 1.0)
    assert found[:5] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert {*found[5:]} == {LONGEST_WAIT_SECONDS}


def test_a_process_that_ran_for_long_is_started_soon_and_as_often_as_it_takes() -> None:
    found = waits(begun(), 3 * MAX_DEATHS, STABLE_SECONDS)
    assert {*found} == {FIRST_WAIT_SECONDS}


def test_a_process_that_always_dies_soon_ends_all_with_a_status() -> None:
    supervision = begun()
    waits(supervision, MAX_DEATHS - 1, 0.0)
    phase = supervision.phases[0]
    assert isinstance(phase, Running)
    assert supervision.on_exit(0, CRASH, phase.since) == [Send(1, TERM)]
    assert "died 10 times in a row" in supervision.failure
    assert supervision.exit_status() is None
    assert supervision.on_exit(1, 0, 2000.0) == []
    assert supervision.exit_status() == FAILED


def test_wrong_use_ends_all_at_once() -> None:
    supervision = begun()
    assert supervision.on_exit(1, WRONG_USE, 0.5) == [Send(0, TERM)]
    assert supervision.on_exit(0, WRONG_USE, 0.6) == []
    assert supervision.exit_status() == WRONG_USE
    assert supervision.failure == "process 1 can't be started"


def test_processes_that_have_finished_stay_ended() -> None:
    supervision = begun()
    assert supervision.on_exit(0, 0, 100.0) == []
    assert (supervision.exit_status(), supervision.wake_at()) == (None, None)
    assert supervision.on_exit(1, 0, 101.0) == []
    assert supervision.exit_status() == 0


def test_a_stop_lets_all_leave_and_starts_none_any_more() -> None:
    supervision = begun(3)
    supervision.on_exit(2, 1, 1.0)
    assert supervision.on_stop() == [Send(0, TERM), Send(1, TERM)]
    assert supervision.wake_at() is None
    assert supervision.on_time(100.0) == []
    assert supervision.on_exit(0, 0, 3.0) == []
    assert supervision.exit_status() is None
    assert supervision.on_exit(1, 0, 4.0) == []
    assert (supervision.exit_status(), supervision.failure) == (0, "")


@pytest.mark.parametrize(("status", "expected"), [(-TERM, 0), (1, 1), (CRASH, 1)])
def test_the_status_after_a_stop_says_whether_all_have_ended_well(
    status: int, expected: int
) -> None:
    """SIGTERM ends a process that has not begun to handle it: there is nothing lost."""
    supervision = begun()
    supervision.on_stop()
    supervision.on_exit(0, status, 1.0)
    supervision.on_exit(1, 0, 1.0)
    assert supervision.exit_status() == expected


def test_a_second_stop_kills_those_that_still_run() -> None:
    supervision = begun()
    supervision.on_stop()
    supervision.on_exit(0, 0, 1.0)
    assert supervision.on_kill() == [Send(1, KILL)]
    assert supervision.on_exit(1, -KILL, 1.1) == []
    assert supervision.exit_status() == KILLED


# --- with --reload ---


def test_a_change_lets_all_processes_leave_and_start_again() -> None:
    supervision = begun(reloads=True)
    assert supervision.on_change(1.0) == [Send(0, TERM), Send(1, TERM)]
    assert supervision.on_change(1.1) == []  # they are on their way
    assert supervision.on_exit(0, 0, 2.0) == [Start(0)]
    assert supervision.on_exit(1, -TERM, 2.5) == [Start(1)]
    assert supervision.exit_status() is None


@pytest.mark.parametrize("status", [0, 1, WRONG_USE, CRASH])
def test_a_process_that_ended_waits_for_a_change(status: int) -> None:
    supervision = begun(1, reloads=True)
    assert supervision.on_exit(0, status, 1.0) == []
    assert (supervision.exit_status(), supervision.wake_at()) == (None, None)
    assert supervision.on_change(7.0) == [Start(0)]


def test_a_stop_ends_a_supervisor_that_waits_for_a_change() -> None:
    supervision = begun(1, reloads=True)
    supervision.on_exit(0, WRONG_USE, 1.0)
    assert supervision.on_stop() == []
    assert supervision.exit_status() == 0
    assert supervision.on_change(2.0) == []


def test_a_change_during_a_stop_starts_nothing() -> None:
    supervision = begun(1, reloads=True)
    supervision.on_change(1.0)
    supervision.on_stop()
    assert supervision.on_change(1.5) == []
    assert supervision.on_exit(0, 0, 2.0) == []
    assert supervision.exit_status() == 0


EVENTS = st.sampled_from(["exit 0", "exit 1", "exit 2", "time", "stop", "change"])


@given(st.booleans(), st.lists(st.tuples(EVENTS, st.integers(0, 2)), max_size=60))
def test_no_process_is_started_twice_and_a_stop_always_comes_to_its_end(
    reloads: bool, events: list[tuple[str, int]]
) -> None:
    supervision, now = begun(3, reloads=reloads), 0.0
    running = {0, 1, 2}
    for event, number in events:
        now += 1.0
        actions: list[Action] = []
        if event.startswith("exit") and number in running:
            running.discard(number)
            actions = supervision.on_exit(number, int(event[-1]), now)
        elif event == "time" and (wake_at := supervision.wake_at()) is not None:
            now = max(now, wake_at)
            actions = supervision.on_time(now)
        elif event == "stop":
            actions = supervision.on_stop()
        elif event == "change" and reloads:
            actions = supervision.on_change(now)
        for action in actions:
            if isinstance(action, Start):
                assert action.process not in running
                running.add(action.process)
            else:
                assert action.process in running
        assert (supervision.exit_status() is None) or not running
    assert {action.process for action in supervision.on_stop()} == running
    for number in sorted(running):
        assert supervision.on_exit(number, 0, now) == []
    assert supervision.exit_status() is not None
