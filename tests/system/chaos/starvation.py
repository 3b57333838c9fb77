"""How much time a loaded machine took from a fleet, so that bounds can allow for it."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

NAP_SECONDS = 0.02
LATE_SECONDS = 0.01
"""What is later than this is written down; less is how sleeping works."""
LOOK_SECONDS = 0.1


class Canary:
    """Notes when it woke up late, and how long processes waited for a processor.

    The first tells of the embedded AWS, which runs in this process; the second is kept
    by Linux for each process. Who is stopped by a signal doesn't wait.
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
        """Return how many seconds were taken from a move in a span of time.

        It takes two clients: those that lost most are counted.
        """
        first = bisect_left(self._late, (began, 0.0))
        last = bisect_left(self._late, (ended + NAP_SECONDS, 0.0))
        overslept = sum(late for _, late in self._late[first:last])
        return overslept + sum(sorted(self._waits(began, ended))[-2:])

    def lapses(self, began: float, ended: float, seconds: float) -> int:
        """Return how often somebody wasn't run for so long in a span of time."""
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
        """Return the longest single time that it overslept."""
        return max((late for _, late in self._late), default=0.0)

    def share(self) -> float:
        """Return for which part of its time a client waited for a processor."""
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
    """Return for how long a process was ready to run and didn't (0 if unknown)."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
