"""How ``kinesumer consume`` and ``tail`` write records."""

from __future__ import annotations

import time
from base64 import b64encode
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesumer import Record


class Format(Protocol):
    """Turns records into what is written."""

    def records(self, records: Sequence[Record]) -> bytes:
        """Return what to write for some records."""
        ...

    def tick(self) -> bytes:
        """Return what to write when a second has passed."""
        ...

    def end(self) -> bytes:
        """Return what to write at the end."""
        ...


class Lines:
    """A line for each record, and nothing else."""

    def __init__(self, line: Callable[[Record], bytes]) -> None:
        self._line = line

    def records(self, records: Sequence[Record]) -> bytes:
        """Return a line for each record."""
        return b"".join([self._line(record) + b"\n" for record in records])

    def tick(self) -> bytes:
        """Return nothing."""
        return b""

    def end(self) -> bytes:
        """Return nothing."""
        return b""


class Counts:
    """How many records have come: each second in which some came, and at the end."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started = self._last = now()
        self._count = self._before = 0

    def records(self, records: Sequence[Record]) -> bytes:
        """Count them, and write nothing."""
        self._count += len(records)
        return b""

    def tick(self) -> bytes:
        """Return the count if it has changed."""
        now, new = self._now(), self._count - self._before
        seconds = max(now - self._last, 1e-9)
        self._last, self._before = now, self._count
        return b"%d records, %.0f/s\n" % (self._count, new / seconds) if new else b""

    def end(self) -> bytes:
        """Return the sum."""
        seconds = self._now() - self._started
        return b"%d records in %.1f s\n" % (self._count, seconds)


FORMATS: dict[str, Callable[[], Format]] = {
    "jsonl": lambda: Lines(as_json),
    "text": lambda: Lines(lambda record: record.data),
    "count": Counts,
}


def as_json(record: Record) -> bytes:
    """Return a record as one JSON object: its data as text, or else as base64."""
    arrived = record.arrived_at
    fields: dict[str, object] = {
        "stream": record.stream,
        "stream_arn": record.stream_arn,
        "shard_id": record.shard_id,
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "partition_key": record.partition_key,
        "explicit_hash_key": record.explicit_hash_key,
        "arrived_at": None if arrived is None else arrived.isoformat(),
        "epoch": record.fence.epoch,
    }
    try:
        fields["data"] = record.data.decode()
    except UnicodeDecodeError:
        fields["data_base64"] = b64encode(record.data).decode()
    return _encode(fields)


_encode = msgspec.json.Encoder().encode
