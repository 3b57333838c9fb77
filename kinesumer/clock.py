"""The clock of a real machine."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SystemClock:
    """Time as this machine sees it; ``now()`` goes on while the machine is suspended.

    On Linux that is CLOCK_BOOTTIME. Elsewhere ``time.monotonic()``, which may stop:
    then a lease may be trusted for too long after a suspend.
    """

    now: Callable[[], float]
    wall: Callable[[], float]

    def __init__(self) -> None:
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        # Asked once per record: a C function is half the price of a method.
        self.now = time.monotonic if boot is None else partial(time.clock_gettime, boot)
        self.wall = time.time
