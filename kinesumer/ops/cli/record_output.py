"""The record formats and the standard output of ``consume`` and ``tail``."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Sequence

import msgspec

from kinesumer import Record

TICK_SECONDS = 1.0  # the interval of news about records that come, or don't come


class LineFormat:
    """Writes one line for each record, and nothing else."""

    def __init__(self, line: Callable[[Record], bytes]) -> None:
        self._line = line

    def records(self, records: Sequence[Record]) -> bytes:
        """Return a line for each record."""
        return b"".join([self._line(record) + b"\n" for record in records])

    def tick(self) -> bytes:
        """Return nothing, since only records are written."""
        return b""

    def end(self) -> bytes:
        """Return nothing, since only records are written."""
        return b""


class CountFormat:
    """Writes a count of the records: each second if it has grown, and at the end."""

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()
        self._count = self._last_count = 0

    def records(self, records: Sequence[Record]) -> bytes:
        """Count the records, and return nothing."""
        self._count += len(records)
        return b""

    def tick(self) -> bytes:
        """Return the count if it has changed."""
        now, new = time.monotonic(), self._count - self._last_count
        seconds = max(now - self._last, 1e-9)
        self._last, self._last_count = now, self._count
        return b"%d records, %.0f/s\n" % (self._count, new / seconds) if new else b""

    def end(self) -> bytes:
        """Return the total."""
        seconds = time.monotonic() - self._started
        return b"%d records in %.1f s\n" % (self._count, seconds)


Format = LineFormat | CountFormat
FORMATS: dict[str, Callable[[], Format]] = {
    "jsonl": lambda: LineFormat(as_json),
    "text": lambda: LineFormat(lambda record: record.data),
    "count": CountFormat,
}


def as_json(record: Record) -> bytes:
    """Return a record as a JSON object. Data that isn't UTF-8 text is in base64."""
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
    return _encode(fields | data_fields(record.data))


_encode = msgspec.json.Encoder().encode


def data_fields(data: bytes) -> dict[str, str]:
    """Return the field that has a record's data in JSON."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": b64encode(data).decode()}


class ClosedOutputError(Exception):
    """The reader of standard output has closed it."""


class Output:
    """Reserves standard output for records: other prints go to standard error."""

    def __enter__(self) -> Output:
        sys.stdout.flush()
        # Replacing sys.stdout isn't enough, since C code writes to descriptor 1.
        self._file = os.dup(1)
        os.dup2(2, 1)
        self._stdout, sys.stdout = sys.stdout, sys.stderr
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout = self._stdout
        os.dup2(self._file, 1)
        os.close(self._file)

    async def write(self, data: bytes) -> None:
        """Write all of the data without blocking the loop. Raises ClosedOutputError."""
        rest = memoryview(data)
        try:
            while rest:
                await self._ready()
                # A pipe that is reported as writable takes PIPE_BUF without blocking.
                rest = rest[os.write(self._file, rest[: select.PIPE_BUF]) :]
        except BrokenPipeError:
            raise ClosedOutputError from None

    def check(self) -> None:
        """Raise ClosedOutputError if the reader has closed the pipe. Writes nothing."""
        poll, closed = select.poll(), select.POLLERR | select.POLLHUP
        # poll() reports errors and hang-ups even if no events are requested.
        poll.register(self._file, 0)
        if any(events & closed for _, events in poll.poll(0)):
            raise ClosedOutputError

    async def keep_ticking(
        self, tick: Callable[[], bytes], on_closed: Callable[[], object]
    ) -> None:
        """Write a tick each second. Call ``on_closed`` when the reader has gone."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self.write(tick())
                self.check()
            except ClosedOutputError:
                on_closed()
                return

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_writer(self._file, _resolve, ready)
        except OSError as error:
            if error.errno != errno.EPERM:
                raise
            return  # a regular file is always ready, and can't be polled
        try:
            await ready
        finally:
            loop.remove_writer(self._file)


def _resolve(ready: asyncio.Future[None]) -> None:
    # The loop may call this again before remove_writer().
    if not ready.done():
        ready.set_result(None)
