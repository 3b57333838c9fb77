"""A child process ends with its parent, however that one ends."""

from __future__ import annotations

import os
import threading

STDIN = 0


def end_with_parent() -> None:
    """End this process as soon as its standard input, a pipe of the parent, closes."""

    def wait() -> None:
        # Not sys.stdin: its lock, held here, would be missed when Python shuts down.
        while os.read(STDIN, 1024):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
