"""Simulates jumps of a machine's wall clock, and lack of memory and other resources.

Leases and timers don't use the wall clock, so its jumps don't affect them.
"""

from __future__ import annotations

import datetime as module
import resource
import threading
import time
from pathlib import Path
from typing import Any

_Real = module.datetime
_real_time = time.time
_ahead = 0.0


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Real)


class _Datetime(_Real, metaclass=_AnyDatetime):
    @classmethod
    def now(cls, tz: module.tzinfo | None = None) -> Any:
        return _Real.now(tz) + module.timedelta(seconds=_ahead)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(module.UTC).replace(tzinfo=None)


def install() -> None:
    """Replace this process's wall clock. Must run before other imports."""
    time.time = lambda: _real_time() + _ahead
    module.datetime = _Datetime  # type: ignore[misc]


def jump(seconds: float) -> None:
    """Set the wall clock ahead of the true time, or back if ``seconds`` is negative."""
    global _ahead
    assert module.datetime is _Datetime, "the clock must be replaced before imports"
    _ahead = seconds


# --- memory ---------------------------------------------------------------------------

ROOM = 8 << 20
PIECE = 1 << 16


def squeeze(seconds: float, left: int) -> None:
    """Leave this process only ``left`` bytes of free memory for some seconds."""
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


# --- threads and descriptors ----------------------------------------------------------

FEW_DESCRIPTORS = 16  # what ``ulimit -n 16`` permits; a client has more
THREADS, DESCRIPTORS = "threads", "descriptors"
NO_THREAD = "can't start new thread"
_start = threading.Thread.start
_files = resource.getrlimit(resource.RLIMIT_NOFILE)


def refuse(kinds: list[str], seconds: float) -> None:
    """Give this process no new threads or descriptors for some seconds."""
    threading.Thread(target=_refuse, args=(kinds, seconds), daemon=True).start()


def _refuse(kinds: list[str], seconds: float) -> None:
    try:
        if THREADS in kinds:  # root has no limit of them that could be set
            threading.Thread.start = _start_nothing  # type: ignore[method-assign]
        if DESCRIPTORS in kinds:
            resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, _files[1]))
        time.sleep(seconds)
    finally:
        threading.Thread.start = _start  # type: ignore[method-assign]
        resource.setrlimit(resource.RLIMIT_NOFILE, _files)


def _start_nothing(self: threading.Thread) -> None:
    raise RuntimeError(NO_THREAD)
