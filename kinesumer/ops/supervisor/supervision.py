"""Decide which processes of an application to start, to stop and to start again.

This is a state machine without I/O. The time is an argument, in seconds. Each process
is a number from 0. Its phases, with what ends each of them::

    Running ── it ends with an error ──→ Waiting ── the wait is over ──→ Running
       └────── it ends otherwise ──────→ Ended ──── a file changes ────→ Running
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

# The waits before a process starts again double from the first one to the longest.
# Kubernetes begins with ten seconds. Here the other processes go on, so a process that
# died by chance should come back soon.
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0
# A process that ran for so long has started well, and its deaths are counted anew. It
# is twice the longest wait.
STABLE_SECONDS = 60.0
# After so many deaths in a row, the supervisor ends, so that the orchestrator sees the
# failure. A record that kills its process is found after five deaths, so there must be
# clearly more. They take about three minutes.
MAX_DEATHS = 10
# The exit status of a process whose options or module are wrong: trying again is no
# use.
WRONG_USE = 2
FAILED = 1
# As shells report a program that SIGINT has ended.
KILLED = 128 + signal.SIGINT


class Start(NamedTuple):
    """Start this process."""

    process: int


class Send(NamedTuple):
    """Send this process a signal."""

    process: int
    number: signal.Signals


Action = Start | Send


@dataclass(frozen=True, slots=True)
class Running:
    """The process runs, or is about to be started."""

    since: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """The process has died, and starts again at a time."""

    until: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The process has ended, and stays so unless a file changes."""

    status: int


Phase = Running | Waiting | Ended


class Supervision:
    """The phases of a supervisor's processes. Each method returns what to do next.

    Without ``reloads``, processes that die start again. With it, all processes start
    again when a file changes, and those that die wait for that.
    """

    def __init__(self, count: int, *, reloads: bool = False) -> None:
        self.phases: dict[int, Phase] = dict.fromkeys(range(count), Ended(0))
        # How often each process has started again after its death.
        self.restarts: dict[int, int] = dict.fromkeys(range(count), 0)
        # Why the supervisor ends although nobody asked for it.
        self.failure: str = ""
        self._reloads = reloads
        # The deaths of each process in a row.
        self._deaths: dict[int, int] = dict.fromkeys(range(count), 0)
        # Those that were told to end because a file has changed.
        self._outdated: set[int] = set()
        # The exit status of the supervisor from the moment that it is to end.
        self._stopping: int | None = None
        self._is_killing = False

    def exit_status(self) -> int | None:
        """Return the supervisor's exit status when all is over, and None before."""
        if any(isinstance(phase, Running) for phase in self.phases.values()):
            return None
        if self._stopping is not None:
            return self._stopping
        is_over = all(isinstance(phase, Ended) for phase in self.phases.values())
        return 0 if is_over and not self._reloads else None

    def wake_at(self) -> float | None:
        """Return the time at which ``on_time()`` is to be called next."""
        if self._stopping is not None:
            return None
        waits = [p.until for p in self.phases.values() if isinstance(p, Waiting)]
        return min(waits, default=None)

    def begin(self, now: float) -> list[Action]:
        """Start all processes."""
        return [self._start(process, now) for process in self.phases]

    def on_time(self, now: float) -> list[Action]:
        """Start the processes whose waits are over."""
        if self._stopping is not None:
            return []
        due = [
            process
            for process, phase in self.phases.items()
            if isinstance(phase, Waiting) and phase.until <= now
        ]
        for process in due:
            self.restarts[process] += 1
        return [self._start(process, now) for process in due]

    def on_exit(self, process: int, status: int, now: float) -> list[Action]:
        """Note that a process has ended. A negative status is a signal's number."""
        phase = self.phases[process]
        assert isinstance(phase, Running)
        self.phases[process] = Ended(status)
        if self._stopping is not None:
            # A process that SIGTERM has ended had not begun to consume.
            if status not in (0, -signal.SIGTERM) and not self._is_killing:
                self._stopping = self._stopping or FAILED
            return []
        if process in self._outdated:
            self._outdated.discard(process)
            return [self._start(process, now)]
        if status == 0 or self._reloads:
            return []
        if status == WRONG_USE:
            return self._fail(f"process {process} can't be started", WRONG_USE)
        if now - phase.since >= STABLE_SECONDS:
            self._deaths[process] = 0
        self._deaths[process] += 1
        if self._deaths[process] >= MAX_DEATHS:
            died = f"process {process} died {MAX_DEATHS} times in a row"
            return self._fail(f"{died}, each within {STABLE_SECONDS:g} s", FAILED)
        wait = FIRST_WAIT_SECONDS * 2 ** (self._deaths[process] - 1)
        self.phases[process] = Waiting(now + min(LONGEST_WAIT_SECONDS, wait))
        return []

    def on_change(self, now: float) -> list[Action]:
        """Let all processes start again, because a file has changed."""
        if self._stopping is not None:
            return []
        running = set(self._running())
        actions: list[Action] = [
            Send(process, signal.SIGTERM) for process in running - self._outdated
        ]
        self._outdated |= running
        return actions + [self._start(i, now) for i in self.phases.keys() - running]

    def on_stop(self) -> list[Action]:
        """Let all processes leave the group and end. Start none any more."""
        if self._stopping is None:
            self._stopping = 0
        return [Send(process, signal.SIGTERM) for process in self._running()]

    def on_kill(self) -> list[Action]:
        """Kill all processes."""
        self._stopping, self._is_killing = KILLED, True
        return [Send(process, signal.SIGKILL) for process in self._running()]

    def _start(self, process: int, now: float) -> Start:
        self.phases[process] = Running(now)
        return Start(process)

    def _fail(self, why: str, status: int) -> list[Action]:
        self.failure = why
        self._stopping = status
        return [Send(process, signal.SIGTERM) for process in self._running()]

    def _running(self) -> Iterator[int]:
        for process, phase in self.phases.items():
            if isinstance(phase, Running):
                yield process
