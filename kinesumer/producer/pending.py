"""Records that wait for Kinesis: their checks, queue and future results."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Hashable, Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from kinesumer.errors import (
    ConfigurationError,
    FailedRecord,
    KinesumerError,
    PutFailedError,
)
from kinesumer.model.streams import StreamInfo
from kinesumer.model.validation import is_unicode
from kinesumer.wire.put_records import (
    KEY_CHARACTERS,
    Entry,
    EntryResult,
    aggregate,
    refusal,
)

# Most records share this. A dictionary of each would keep the garbage collector busy.
NOTHING_MOVED: Mapping[int, tuple[PendingRecord, int]] = MappingProxyType({})


class PutResult(NamedTuple):
    """The place at which Kinesis has stored a record."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int | None = None
    """The record's index in its aggregate; None for a record that isn't aggregated."""


class PendingRecord:
    """One Kinesis record to put: its user records, and the result of putting it.

    A record that isn't an aggregate has one user record.
    """

    __slots__ = (
        "_awaited",
        "_changed",
        "_encoded",
        "cost",
        "entries",
        "error",
        "moved",
        "number",
        "order_key",
        "result",
        "rows",
        "size",
        "traceparents",
    )

    def __init__(self, number: int, order_key: Hashable) -> None:
        self.number: int = number  # the place in the order in which records were added
        # An ordered producer puts the records of one key one after the other. Records
        # without a key have no order.
        self.order_key: Hashable | None = order_key
        self.entries: list[Entry] = []
        self.rows: int = 0  # number of user records that are put with this record
        # Size of the Kinesis record in bytes; a maximum until it is encoded.
        self.size: int = 0
        self.cost: int = 0  # bytes of the producer's buffer
        self.result: EntryResult | None = None
        self.error: Exception | None = None
        # By index, the traceparents of the user records that have one.
        self.traceparents: dict[int, str] | None = None
        # By index, the user records that were moved to another Kinesis record.
        self.moved: Mapping[int, tuple[PendingRecord, int]] = NOTHING_MOVED
        # Indexes of the user records whose results somebody waits for or has read.
        self._awaited: set[int] | None = None
        self._encoded: Entry | None = None
        self._changed: asyncio.Future[None] | None = None

    def add(self, entry: Entry, size: int, cost: int, traceparent: str = "") -> None:
        """Append a user record that takes up to ``size`` bytes."""
        if traceparent:
            self.traceparents = self.traceparents or {}
            self.traceparents[self.rows] = traceparent
        self.entries.append(entry)
        self.rows += 1
        self.size += size
        self.cost += cost

    def traceparent_of(self, index: int) -> str:
        """Return a user record's traceparent; empty if it has none."""
        return (self.traceparents or {}).get(index, "")

    def encode(self) -> Entry:
        """Return the Kinesis record."""
        if self._encoded is None:
            first = self._encoded = self.entries[0]
            # An aggregate of one record would be larger than the record.
            if self.rows > 1:
                self._encoded = Entry(
                    aggregate(self.entries),
                    first.partition_key,
                    first.explicit_hash_key,
                )
            self.size = self._encoded.size
        return self._encoded

    def accept(self, result: EntryResult) -> None:
        """Set the result, and release the memory of the data."""
        self.result = result
        self._settle()

    def fail(self, error: Exception) -> None:
        """Set the error. The data stays for the error's list of records."""
        self.error = error
        self._encoded = None
        self.wake()

    def move(self, places: dict[int, tuple[PendingRecord, int]]) -> None:
        """Set the new places of the user records that were moved."""
        self.moved = places
        self._settle()

    def _settle(self) -> None:
        self._encoded = None
        self.entries = []
        self.wake()

    def wake(self) -> None:
        """Wake all tasks that wait for a change."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    @property
    def is_settled(self) -> bool:
        """Return True if there is a result, an error or a move."""
        return self.result is not None or self.error is not None or bool(self.moved)

    async def change(self) -> None:
        """Wait for a result, an error or a move."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        # Other tasks wait for the same future, so this task must not cancel it.
        await asyncio.shield(self._changed)

    def note_reader(self, index: int) -> None:
        """Remember that somebody waits for a user record's result, or has read it."""
        if self._awaited is None:
            self._awaited = set()
        self._awaited.add(index)

    def forget_reader(self, index: int) -> None:
        """Remember that a wait for a user record's result was cancelled."""
        assert self._awaited is not None
        self._awaited.discard(index)

    async def settled(self) -> None:
        """Wait until each user record has been accepted or has failed."""
        while not self.is_settled:
            await self.change()
        for record, _ in self.moved.values():
            await record.settled()

    def failed_records(self) -> list[FailedRecord]:
        """Return the failed user records whose results no task awaits or has read."""
        return [
            failed_record(entry, self.error)
            for index, entry in enumerate(self.entries)
            if self.error is not None and index not in (self._awaited or ())
        ]


class PutFuture:
    """The future result of one ``put()``: ``result = await future``.

    Cancelling a task that waits for it doesn't cancel the put. If no task awaits it,
    the producer itself raises the error of a failed put.
    """

    __slots__ = ("_index", "_record")

    def __init__(self, record: PendingRecord, index: int) -> None:
        self._record, self._index = record, index

    def done(self) -> bool:
        """Return whether Kinesis has accepted the record, or putting it has failed."""
        record = self._locate()
        return record.result is not None or record.error is not None

    def result(self) -> PutResult:
        """Return the result of a put that is done.

        Raise PutFailedError if the put failed, and KinesumerError if it isn't done.
        """
        error = self.exception()
        if error is not None:
            raise error from error.__cause__
        result = self._record.result
        assert result and result.shard_id and result.sequence_number
        sub_number = self._index if self._record.rows > 1 else None
        return PutResult(result.shard_id, result.sequence_number, sub_number)

    def exception(self) -> PutFailedError | None:
        """Return the error of a put that is done, or None if it succeeded.

        Raise KinesumerError if it isn't done.
        """
        if not self.done():
            raise KinesumerError(
                "the put isn't done yet; wait for it: await the future"
            )
        record, index = self._record, self._index
        if record.error is None:
            return None
        record.note_reader(index)
        failure = PutFailedError([failed_record(record.entries[index], record.error)])
        failure.__cause__ = record.error
        return failure

    def __await__(self) -> Generator[object, None, PutResult]:
        while not self.done():
            yield from self._change().__await__()
        return self.result()

    async def _change(self) -> None:
        record, index = self._record, self._index
        record.note_reader(index)
        try:
            await record.change()
        except asyncio.CancelledError:
            record.forget_reader(index)
            raise

    def _locate(self) -> PendingRecord:
        while self._index in self._record.moved:
            self._record, self._index = self._record.moved[self._index]
        return self._record


def failed_record(entry: Entry, error: Exception) -> FailedRecord:
    """Return what an error lists for a record."""
    key, hash_key = entry.partition_key, entry.explicit_hash_key
    return FailedRecord(entry.data, key, hash_key, str(error))


UTF8_BYTES = 4  # maximum number of bytes of a character


def valid_entry(
    data: bytes, key: str | None, hash_key: str | None, stream: StreamInfo
) -> Entry | None:
    """Return a record, or None if the stream would refuse it.

    Raise ConfigurationError for a value of another type.
    """
    if type(data) is bytes and type(key) is str and hash_key is None:
        entry = Entry(data, key)
        # This condition is true for most records. It is much faster than refusal().
        if (
            0 < len(key) <= KEY_CHARACTERS
            and len(data) + UTF8_BYTES * len(key) <= stream.max_record_bytes
            and (key.isascii() or is_unicode(key))
        ):
            return entry
    entry = to_entry(data, key, hash_key)
    return entry if refusal(entry, stream) is None else None


def to_entry(data: Any, key: Any, hash_key: Any) -> Entry:
    """Return a record. Raise ConfigurationError for a value of another type."""
    for name, text in (("partition_key", key), ("explicit_hash_key", hash_key)):
        if text is not None and not isinstance(text, str):
            raise ConfigurationError(f"{name}={text!r:.100} must be text: use str()")
    if isinstance(data, bytes | bytearray | memoryview):
        return Entry(bytes(data), key, hash_key)
    raise ConfigurationError(
        f"data is of type {type(data).__name__}, but must be bytes: encode it"
    )


REQUEST_RECORDS = 500  # AWS's limit
# AWS's limit was 5 MiB before it became 10 MiB. Other servers may keep the former one.
# A larger record is alone in its request.
REQUEST_BYTES = 5 << 20


class Queue:
    """Records in the order in which they were added.

    If ``ordered`` is true, a record waits until Kinesis has accepted the previous
    record of its key. Each request thus has at most one record per key. This is needed
    because PutRecords doesn't keep the order of a request's records.
    """

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._records: deque[PendingRecord] = deque()
        # By key, the records that must wait for an earlier record of the key, which is
        # in ``_records`` or in a request.
        self._backlogs: dict[Hashable, deque[PendingRecord]] = {}
        self._backlog_records = 0
        self._ready_bytes = 0  # size of ``_records``

    def add(self, record: PendingRecord) -> None:
        """Add a record at the end of the queue, or at the end of its key's backlog."""
        if self._ordered and record.order_key is not None:
            backlog = self._backlogs.get(record.order_key)
            if backlog is not None:
                backlog.append(record)
                self._backlog_records += 1
                return
            self._backlogs[record.order_key] = deque()
        self._make_ready(record)

    def take(self, *, full: bool) -> list[PendingRecord]:
        """Return the next request's records; if ``full``, only if it is full."""
        if (
            full
            and len(self._records) < REQUEST_RECORDS
            and self._ready_bytes < REQUEST_BYTES
        ):
            return []
        taken: list[PendingRecord] = []
        size = 0
        while self._records and len(taken) < REQUEST_RECORDS:
            if taken and size + self._records[0].size > REQUEST_BYTES:
                break
            taken.append(self._records.popleft())
            size += taken[-1].size
        self._ready_bytes -= size
        return taken

    def release(self, records: Iterable[PendingRecord]) -> None:
        """Queue the next record of each key after ``records`` are done."""
        for record in records if self._ordered else ():
            if record.order_key is None:
                continue
            backlog = self._backlogs[record.order_key]
            if backlog:
                self._make_ready(backlog.popleft())
                self._backlog_records -= 1
            else:
                del self._backlogs[record.order_key]

    def waiting(self) -> list[PendingRecord]:
        """Return the records that haven't been sent yet."""
        return [*self._records, *chain.from_iterable(self._backlogs.values())]

    def __bool__(self) -> bool:
        return bool(self._records) or self._backlog_records > 0

    def _make_ready(self, record: PendingRecord) -> None:
        self._records.append(record)
        self._ready_bytes += record.size
