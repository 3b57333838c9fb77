"""What a client tells of each record that it has processed: 29 bytes in a file.

Each entry is one unbuffered write made before the record counts as done, so that a
SIGKILL loses none.
"""

from __future__ import annotations

import os
import time
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer import Record

_ENTRY = Struct("<dQBIQ")


class Entry(NamedTuple):
    """A record was processed."""

    at: float
    """On the machine's monotonic clock, which all processes share."""
    number: int
    stream: int
    shard: int
    epoch: int


class JournalWriter:
    """Appends entries, in the client process."""

    def __init__(self, path: str, arns: list[str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._streams = {arn: index for index, arn in enumerate(arns)}

    def processed(self, record: Record) -> None:
        """Note one record."""
        entry = Entry(
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


class JournalReader:
    """Reads what was appended since the last time, in the parent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def news(self) -> list[Entry]:
        """Return the entries since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = len(data) - len(data) % _ENTRY.size
        self._offset += whole
        return [Entry(*fields) for fields in _ENTRY.iter_unpack(data[:whole])]


def shard_number(shard_id: str) -> int:
    """Return the number in a shard's id."""
    return int(shard_id.rpartition("-")[2])
