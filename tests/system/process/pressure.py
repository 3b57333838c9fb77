"""Memory pressure: a process that is refused more memory for a while."""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path

ROOM = 8 << 20
PIECE = 1 << 16


def squeeze(seconds: float, left: int) -> None:
    """Leave this process so many bytes for a while, from a thread of its own."""
    threading.Thread(target=_hold, args=(seconds, left), daemon=True).start()


def _hold(seconds: float, left: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + ROOM
    balloon: list[bytearray] = []
    resource.setrlimit(resource.RLIMIT_AS, (limit, unlimited[1]))
    try:
        try:
            while True:
                balloon.append(bytearray(PIECE))
        except MemoryError:
            del balloon[-max(1, left // PIECE) :]
        time.sleep(seconds)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
