"""Let a process fail although its program is over."""

from __future__ import annotations

import os
import sys

STATUS = 1


class _FailedExit:
    """Ends the process when the interpreter deletes it."""

    def __init__(self) -> None:
        self._exit = os._exit  # this module may be gone by then

    def __del__(self) -> None:
        self._exit(STATUS)


def fail_at_exit() -> None:
    """Let the process end with status 1. Call it while the interpreter exits.

    A function that ``atexit`` calls can't change the status in another way. All other
    such functions still run, and files are closed as usual, because the interpreter
    clears the module ``sys`` after everything else.
    """
    vars(sys)["_kinesumer_failed_exit"] = _FailedExit()
