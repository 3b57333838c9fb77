"""How Spark ends the driver's Python process, made into a call of ``stop()``."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM


def stop_on_sigterm() -> None:
    """Let SIGTERM unwind the main thread: Spark's worker then calls ``stop()``.

    Spark sends it when a query ends, sometimes twice; the second one is ignored.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _unwind)


def _unwind(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(EXIT_CODE)
