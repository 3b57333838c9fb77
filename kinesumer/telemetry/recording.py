"""Keep the last minutes of what a client was told, in a file that a replay reads.

``docs/recordings.md`` describes it. The file is a history that begins late, with what
the client knew at that time, and that counts records instead of naming them.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from threading import Lock

from kinesumer.telemetry.history import Line, encode_line
from kinesumer.telemetry.recording_state import ToldState

try:
    import fcntl
except ImportError:  # not Unix
    fcntl = None  # type: ignore[assignment]

RECORD_VARIABLE = "KINESUMER_RECORD"
# A segment is replaced when it is as old, so that five to ten minutes are kept. A lost
# lease, a dead session or a hand-over takes less than one; the rest led to it.
SEGMENT_SECONDS = 300.0
# And when it is as large. Chosen: two segments take little of a disk, and most clients
# write less in five minutes.
SEGMENT_BYTES = 32 * 1024 * 1024
# Requests and deliveries of records within this time become one line.
COUNT_SECONDS = 0.05
COUNTED = frozenset(("ask", "deliver", "done", "give up"))

logger: logging.Logger = logging.getLogger("kinesumer")


class Recording:
    """A sink of a history that keeps the last lines in a file and the one before it.

    A line that can't be written ends the recording, with one warning. The client goes
    on.
    """

    def __init__(
        self,
        path: Path,
        segment_seconds: float = SEGMENT_SECONDS,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._path = path
        self._seconds, self._bytes = segment_seconds, segment_bytes
        self._file: int | None = None
        self._begun_at, self._written = 0.0, 0
        self._client: Line = {}
        self._told = ToldState()
        self._counts: dict[tuple[object, ...], Line] = {}
        self._counted_at = 0.0
        self._has_failed = False
        # The client's loop, its heartbeats, and handlers run on several threads.
        self._lock = Lock()

    def append(self, line: Line) -> None:
        """Take a line."""
        with self._lock:
            if self._has_failed:
                return
            try:
                self._take(line)
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        """Write what was counted, and close the file."""
        with self._lock:
            try:
                if self._file is not None:
                    self._write_counts()
            except OSError as error:
                self._fail(error)
            self._close()

    def _take(self, line: Line) -> None:
        if line["kind"] in COUNTED:
            self._count(line)
            # The first request comes before the client starts.
            is_due = line["at"] - self._counted_at >= COUNT_SECONDS
            if is_due and self._file is not None:
                self._counted_at = line["at"]
                self._write_counts()
        elif line["kind"] == "client":  # the client starts, perhaps once more
            self._client, self._told = line, ToldState()
            self._begin_segment(line["at"])
        elif self._file is not None:
            self._write_counts()
            self._write(line)
            self._told.learn(line)

    def _count(self, line: Line) -> None:
        """Add a line to the others of its loop, or of its shard."""
        about = {name: line[name] for name in NAMED if name in line}
        key = (line["kind"], *about.values())
        records = len(line.get("positions", "1"))
        if key in self._counts:
            records += self._counts.pop(key)["count"]
        times = {"kind": line["kind"], "at": line["at"], "count": records}
        self._counts[key] = times | about

    def _write_counts(self) -> None:
        counted, self._counts = self._counts, {}
        for line in counted.values():
            self._write(line)

    def _write(self, line: Line) -> None:
        age = line["at"] - self._begun_at
        if age >= self._seconds or self._written >= self._bytes:
            self._begin_segment(line["at"])
        self._put(line)

    def _begin_segment(self, at: float) -> None:
        """Begin a new file with what the client knows. Keep the file before it."""
        self._close()
        self._file = self._open()
        self._begun_at, self._written = at, 0
        self._put(self._client)
        if self._told.consume is not None:
            self._put(self._told.line(at))

    def _put(self, line: Line) -> None:
        assert self._file is not None
        text = encode_line(line) + b"\n"
        if os.write(self._file, text) < len(text):
            raise OSError("the disk is full")
        self._written += len(text)

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            os.close(self._locked())
            os.replace(self._path, previous_segment(self._path))
        return self._locked()

    def _locked(self) -> int:
        """Open the file. Raise OSError if another client writes it."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        file = os.open(self._path, flags, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            raise OSError("another client writes it") from error
        except OSError:  # a file system without locks
            return file
        return file

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _fail(self, error: OSError) -> None:
        self._has_failed = True
        self._close()
        logger.warning(
            "%s=%s: the recording ends, since it can't be written: %s",
            RECORD_VARIABLE,
            self._path,
            error,
        )


# What tells counted lines of a kind apart.
NAMED = ("loop", "items", "shard", "epoch", "by")


def previous_segment(path: Path) -> Path:
    """Return the path of the file that holds what came before a recording."""
    return path.with_name(f"{path.name}.1")
