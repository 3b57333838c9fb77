"""A client's log of processed records, with 29 bytes for each record.

A client writes each entry without a buffer before the record counts as processed, so
that a SIGKILL loses no entry.
"""

from __future__ import annotations

import os
import time
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer import Record

# After a crash, at most this many records of a shard may be processed again. A low
# limit makes the demo a harder test.
MAX_UNCOMMITTED_RECORDS = 1000
_ENTRY = Struct("<dQBIQ")


class LogEntry(NamedTuple):
    """A processed record."""

    # The time on the machine's monotonic clock, which is the same in all processes.
    at: float
    number: int
    stream: int
    shard: int
    epoch: int


class RecordLogWriter:
    """Appends entries to a log. Each client process has a writer."""

    def __init__(self, path: str, arns: list[str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._streams = {arn: index for index, arn in enumerate(arns)}

    def write(self, record: Record) -> None:
        """Append an entry for a record."""
        entry = LogEntry(
            time.monotonic(),
            int(record.data[:20]),
            self._streams[record.stream_arn],
            shard_number(record.shard_id),
            record.fence.epoch,
        )
        os.write(self._file, _ENTRY.pack(*entry))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class RecordLogReader:
    """Reads new entries of a client's log. The parent process has the readers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read_new(self) -> list[LogEntry]:
        """Return the entries that were added since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        # If the client is still writing an entry, leave that entry to the next call.
        complete = len(data) - len(data) % _ENTRY.size
        self._offset += complete
        return [LogEntry(*fields) for fields in _ENTRY.iter_unpack(data[:complete])]


def shard_number(shard_id: str) -> int:
    """Return the number in a shard's ID."""
    return int(shard_id.rpartition("-")[2])
