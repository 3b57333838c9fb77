"""Sets how often the driver's Python process looks for cyclic garbage."""

from __future__ import annotations

import gc

# Python's default is 700 new objects (2,000 as of Python 3.13).
NEW_OBJECTS = 100_000


def collect_garbage_rarely() -> None:
    """Let Python look for cyclic garbage after NEW_OBJECTS new objects.

    A plan makes many small objects without cycles. With Python's default, the search
    for cycles among them and all imported objects takes half of the plan's CPU time.
    """
    gc.set_threshold(NEW_OBJECTS)
