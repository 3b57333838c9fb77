"""Measure work in executed lines and in memory, whatever the machine's speed."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python a call executes, including repeated lines."""
    count = 0

    def trace(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    # Collections would run finalizers of what other tests have left.
    gc.collect()
    gc.disable()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


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
