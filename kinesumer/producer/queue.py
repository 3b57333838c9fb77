"""The queue of the records that wait for a request."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from kinesumer.producer.pending import PendingRecord

REQUEST_RECORDS = 500  # AWS's limit
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
