"""Run a command in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from typing import Any, Self

from tests.support.clock import PATIENCE_SECONDS


class Terminal:
    """A pseudo-terminal of 80 columns and 20 rows, and the command that it shows.

    The command's standard output is the terminal too, unless ``stdout`` is a pipe.
    """

    def __init__(
        self, command: Sequence[str], stdout: int | None = None, **environment: str
    ) -> None:
        self._ours, self._theirs = pty.openpty()
        self._resize(80, 20)
        self._before = termios.tcgetattr(self._theirs)
        # COLUMNS and LINES would override the size of the terminal. Readline sets them,
        # so a worker of pytest-xdist has them.
        inherited = {k: os.environ[k] for k in os.environ.keys() - {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            command,
            stdin=self._theirs,
            stdout=self._theirs if stdout is None else stdout,
            stderr=self._theirs,
            start_new_session=True,
            env={**inherited, "TERM": "xterm-256color", **environment},
        )
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._ours)
        os.close(self._theirs)

    def until(self, words: str) -> str:
        """Read until the text appears. Return all output."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in self.text:
            left_seconds = max(0.0, deadline - time.monotonic())
            assert select.select([self._ours], [], [], left_seconds)[0], self.text
            self.text += os.read(self._ours, 65536).decode(errors="replace")
        return self.text

    def resize(self, columns: int, rows: int) -> None:
        self._resize(columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def _resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def ended(self) -> int:
        """Wait until the command ends. Return its exit status."""
        return self.process.wait(PATIENCE_SECONDS)

    @property
    def is_as_it_was(self) -> bool:
        """True if the terminal has the settings that it had at first."""
        return termios.tcgetattr(self._theirs) == self._before
