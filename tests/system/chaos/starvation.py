"""Measures the time that a fleet lost on a loaded machine, to extend time limits."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Self

from kinesumer.testing.trial.journal import now

NAP_SECONDS = 0.02
# Longer delays are recorded; shorter ones are normal for a sleep.
LATE_SECONDS = 0.01
LOOK_SECONDS = 0.1
TIME = itemgetter(0)


class Canary:
    """Measures how late its thread wakes up, and how long processes wait for a CPU.

    Late wake-ups show that the embedded AWS, which runs in this process, was delayed.
    Linux counts how long each process waits. The time for which a signal has stopped a
    process doesn't count.
    """

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes
        self._late: list[tuple[float, float]] = []
        # The times at which it looked, and how long each process had waited by then.
        self._looks: list[tuple[float, dict[int, float]]] = []
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
        overslept = sum(self._overslept(began, ended))
        return overslept + sum(sorted(self._waits(began, ended))[-2:])

    def lapses(self, began: float, ended: float, seconds: float) -> int:
        """Return how often a process couldn't run for ``seconds`` in a span of time."""
        first = max(1, bisect_right(self._looks, began, key=TIME))
        last = bisect_left(self._looks, ended, key=TIME)
        waits = (
            max(
                (wait - before.get(pid, wait) for pid, wait in after.items()), default=0
            )
            for (_, before), (_, after) in pairwise(self._looks[first - 1 : last])
        )
        late = [*self._overslept(began, ended), *waits]
        return sum(wait > seconds for wait in late)

    @property
    def worst(self) -> float:
        return max((late for _, late in self._late), default=0.0)

    def share(self) -> float:
        """Return the share of their time for which clients waited for a processor."""
        seconds = sum(
            wait - before.get(pid, wait)
            for (_, before), (_, after) in pairwise(self._looks)
            for pid, wait in after.items()
        )
        looks = sum(len(waited) for _, waited in self._looks)
        return seconds / max(1.0, LOOK_SECONDS * looks)

    def _overslept(self, began: float, ended: float) -> list[float]:
        first = bisect_left(self._late, began, key=TIME)
        last = bisect_right(self._late, ended + NAP_SECONDS, key=TIME)
        return [late for _, late in self._late[first:last]]

    def _waits(self, began: float, ended: float) -> Iterable[float]:
        if not self._looks:
            return []
        first = max(0, bisect_right(self._looks, began, key=TIME) - 1)
        last = bisect_left(self._looks[:-1], ended, key=TIME)
        (_, before), (_, after) = self._looks[first], self._looks[last]
        return [wait - before.get(pid, 0.0) for pid, wait in after.items()]

    def _run(self) -> None:
        look_at = 0.0
        while not self._over.is_set():
            asked = now()
            if asked >= look_at:
                look_at = asked + LOOK_SECONDS
                found = {pid: waited(pid) for pid in list(self._processes())}
                self._looks.append((asked, found))
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
