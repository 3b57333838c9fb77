"""Write the lines of a client's history to a file, and open what environments name."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from kinesumer.errors import ConfigurationError
from kinesumer.ports import Clock
from kinesumer.telemetry.history import History, Line, Sink, encode_line
from kinesumer.telemetry.recording import RECORD_VARIABLE, Recording

HISTORY_VARIABLE = "KINESUMER_HISTORY"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Only a replay needs these lines. There may be one for each record.
OF_REPLAYS = frozenset(("ask", "consume", "refresh", "leave", "end"))


def history_text(line: Line) -> bytes:
    """Return a line of a history; empty for a line that only a replay needs."""
    return b"" if line["kind"] in OF_REPLAYS else encode_line(line) + b"\n"


class TextSink:
    """A sink that passes the text of each line of a history to a function."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def append(self, line: Line) -> None:
        """Pass a line on, unless only a replay needs it."""
        if text := history_text(line):
            self._write(text)

    def close(self) -> None:
        """Do nothing."""


class HistoryFile:
    """A new file in a directory, to which lines are appended.

    Raises ConfigurationError if a line can't be written: a history with a gap would
    accuse clients of losses.
    """

    def __init__(self, directory: str) -> None:
        name = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}.jsonl"
        self._path = Path(directory) / name
        self._file: int | None = None

    def append(self, line: Line) -> None:
        """Write a line. The first one creates the file."""
        if not (text := history_text(line)):
            return
        try:
            if self._file is None:
                self._file = self._open()
            written = os.write(self._file, text)
        except OSError as error:
            raise self._incomplete(error) from error
        if written < len(text):
            raise self._incomplete("the disk is full")

    def close(self) -> None:
        """Close the file. Another line opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _incomplete(self, cause: object) -> ConfigurationError:
        return ConfigurationError(
            f"{HISTORY_VARIABLE}={self._path.parent}: the history can't be written "
            f"({cause}): name a directory that has room and that this process may "
            "write to, or unset the variable; then start the client again"
        )


def open_history(clock: Clock, environment: Mapping[str, str]) -> History | None:
    """Return a history for the directory that ``KINESUMER_HISTORY`` names, if any."""
    return _open(_histories(environment), clock)


def open_client_history(clock: Clock, environment: Mapping[str, str]) -> History | None:
    """Return a history that also goes to the file that ``KINESUMER_RECORD`` names.

    ``{pid}`` in its name becomes the id of the process. None if neither variable is
    set.
    """
    sinks = _histories(environment)
    if file := environment.get(RECORD_VARIABLE):
        sinks.append(Recording(Path(file.replace("{pid}", str(os.getpid())))))
    return _open(sinks, clock)


def _histories(environment: Mapping[str, str]) -> list[Sink]:
    directory = environment.get(HISTORY_VARIABLE)
    return [HistoryFile(directory)] if directory else []


def _open(sinks: list[Sink], clock: Clock) -> History | None:
    return History(sinks, clock, _boot_id()) if sinks else None


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:  # not Linux
        return socket.gethostname()
