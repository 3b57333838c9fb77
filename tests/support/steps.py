"""Measure work in executed lines and in memory, whatever the machine's speed."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python a call executes, including repeated lines."""
    with _counting() as lines:
        work()
    return lines[0]


def steps_of_each(items: Iterator[object]) -> list[int]:
    """Return how many lines each item of an iterator takes, and its end."""
    counts: list[int] = []
    with _counting() as lines:
        is_over = False
        while not is_over:
            before = lines[0]
            is_over = next(items, None) is None
            counts.append(lines[0] - before)
    return counts


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Count the lines that the block executes."""
    lines = [0]

    def trace(_: FrameType, event: str, __: Any) -> Any:
        lines[0] += event == "line"
        return trace

    # Collections would run finalizers of what other tests have left.
    gc.collect()
    gc.disable()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)
        gc.enable()


def growth(work: Callable[[int], Callable[[], object]], size: int = 100) -> float:
    """Return the factor by which the steps grow if the size is quadrupled."""
    return steps(work(4 * size)) / steps(work(size))


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the peak memory of a call, including its result."""
    gc.collect()
    tracemalloc.start()
    try:
        result = work()
        peak = tracemalloc.get_traced_memory()[1]
        del result
    finally:
        tracemalloc.stop()
    return peak
