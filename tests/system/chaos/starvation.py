"""Measures the time that a fleet lost on a loaded machine, to extend time limits."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from kinesumer.testing.trial.journal import now

NAP_SECONDS = 0.02
# Longer delays are recorded; shorter ones are normal for a sleep.
LATE_SECONDS = 0.01
LOOK_SECONDS = 0.1


class Canary:
    """Measures how late its thread wakes up, and how long processes wait for a CPU.

    Late wake-ups show that the embedded AWS, which runs in this process, was delayed.
    Linux counts how long each process waits. The time for which a signal has stopped a
    process doesn't count.
    """

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes
        self._late: list[tuple[float, float]] = []
        self._looks: list[float] = []
        self._waited: list[dict[int, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def lost(self, began: float, ended: float) -> float:
        """Return how long the machine's load delayed a shard's move in a span of time.

        A move needs two clients, so the two longest waits are added up.
        """
        first = bisect_left(self._late, (began, 0.0))
        last = bisect_left(self._late, (ended + NAP_SECONDS, 0.0))
        overslept = sum(late for _, late in self._late[first:last])
        return overslept + sum(sorted(self._waits(began, ended))[-2:])

    def lapses(self, began: float, ended: float, seconds: float) -> int:
        """Return how often a process couldn't run for ``seconds`` in a span of time."""
        overslept = sum(
            late > seconds and began <= at <= ended + NAP_SECONDS
            for at, late in self._late
        )
        first = max(1, bisect_right(self._looks, began))
        last = bisect_left(self._looks, ended)
        waits = (
            max((w - b[pid] for pid, w in a.items() if pid in b), default=0.0)
            for b, a in zip(
                self._waited[first - 1 : last], self._waited[first:last], strict=False
            )
        )
        return overslept + sum(wait > seconds for wait in waits)

    @property
    def worst(self) -> float:
        return max((late for _, late in self._late), default=0.0)

    def share(self) -> float:
        """Return the share of their time for which clients waited for a processor."""
        seconds = sum(
            wait - before.get(pid, wait)
            for before, after in zip(self._waited, self._waited[1:], strict=False)
            for pid, wait in after.items()
        )
        return seconds / max(1.0, LOOK_SECONDS * sum(map(len, self._waited)))

    def _waits(self, began: float, ended: float) -> Iterable[float]:
        if not self._looks:
            return []
        first = max(0, bisect_right(self._looks, began) - 1)
        last = min(len(self._looks) - 1, bisect_left(self._looks, ended))
        before, after = self._waited[first], self._waited[last]
        return [wait - before.get(pid, 0.0) for pid, wait in after.items()]

    def _run(self) -> None:
        look_at = 0.0
        while not self._over.is_set():
            asked = now()
            if asked >= look_at:
                look_at = asked + LOOK_SECONDS
                self._looks.append(asked)
                self._waited.append(
                    {pid: waited(pid) for pid in list(self._processes())}
                )
                asked = now()
            time.sleep(NAP_SECONDS)
            woke = now()
            if (late := woke - asked - NAP_SECONDS) > LATE_SECONDS:
                self._late.append((woke, late))


def waited(pid: int) -> float:
    """Return how long a process was ready to run but not running (0 if unknown)."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
