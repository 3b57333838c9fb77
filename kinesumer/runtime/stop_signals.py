"""Handle SIGINT and SIGTERM: the first one asks to stop, the second one stops."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

from kinesumer.errors import ConfigurationError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# `timeout` signals a process and its group, so a signal arrives twice but counts once.
# Nobody presses Ctrl-C twice in this time on purpose.
DUPLICATE_SECONDS = 0.2


class StopSignals:
    """Handles SIGINT and SIGTERM within a ``with`` block in the main thread.

    The first signal calls ``on_first``. The second one restores the former handlers and
    calls ``on_second``; without ``on_second`` the signal is delivered to the restored
    handlers. A repeat of the same signal within 0.2 seconds is ignored as a duplicate.
    Both functions are called as signal handlers are: in the main thread, between any
    two instructions.
    """

    def __init__(
        self,
        on_first: Callable[[], object],
        on_second: Callable[[], object] | None = None,
    ) -> None:
        self._on_first, self._on_second = on_first, on_second
        self._former: dict[signal.Signals, object] = {}
        self._has_first = False
        self._last_received: dict[int, float] = {}
        self._process = os.getpid()

    def __enter__(self) -> Self:
        """Install the handlers. Raise ConfigurationError outside the main thread."""
        self._process = os.getpid()
        for number in SIGNALS:
            try:
                self._former[number] = signal.signal(number, self._received)
            except ValueError as error:
                raise ConfigurationError(
                    f"signals can't be handled here ({error}): leave stop_signals=True "
                    "out, and let the main thread call leave()"
                ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        former, self._former = self._former, {}
        for number, handler in former.items():
            # None stands for a handler of C code, which Python can't install again.
            signal.signal(number, handler or signal.SIG_DFL)  # type: ignore[arg-type]

    def _received(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A forked process has copies of the handlers, but not what they would stop.
            self._restore()
            signal.raise_signal(number)
            return
        now = time.monotonic()
        before = self._last_received.get(number, -math.inf)
        self._last_received[number] = now
        if now - before < DUPLICATE_SECONDS:
            return
        if not self._has_first:
            self._has_first = True
            self._on_first()
            return
        self._restore()
        if self._on_second is None:
            signal.raise_signal(number)
        else:
            self._on_second()


class _FailedExit:
    """Ends the process when the interpreter deletes it."""

    def __init__(self) -> None:
        self._exit = os._exit  # this module may be gone by then

    def __del__(self) -> None:
        self._exit(1)


def fail_at_exit() -> None:
    """Let the process end with status 1. Call it while the interpreter exits.

    A function that ``atexit`` calls can't change the status in another way. All other
    such functions still run, and files are closed as usual, because the interpreter
    clears the module ``sys`` after everything else.
    """
    vars(sys)["_kinesumer_failed_exit"] = _FailedExit()
