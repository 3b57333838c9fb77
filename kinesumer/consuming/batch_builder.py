"""Build batches of user records from the pages of one shard."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch, OpenedStep
from kinesumer.core import handout
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position
from kinesumer.model.records import (
    RECORD_OVERHEAD_BYTES,
    PackedRecords,
    Record,
    memory_size,
)
from kinesumer.model.streams import Start
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.threads import refusal_errors
from kinesumer.wire.aggregation import OpenedRecords, open_in_steps, with_source


class BatchBuilder:
    """Builds the batches of one shard, from its checkpoint or its start.

    Reading continues after the position ``after``: the last record of which batches
    were built. A batch has at most half of ``max_uncommitted_records``.
    """

    def __init__(self, owned: OwnedShard, context: ClientContext) -> None:
        self.after: Position | Start = owned.row.position or owned.row.start
        self._skip_to: Position | Start | None = self.after
        self._owned, self._context = owned, context
        self._batch_records = max(1, context.config.max_uncommitted_records // 2)

    def build(
        self, records: Sequence[Record], millis_behind: int
    ) -> list[FetchedBatch]:
        """Return the batches of records of which none is an aggregate.

        Raise SourceUnavailableError if the system refuses the memory for them. Then
        ``after`` is unchanged, so the records can be read again.
        """
        with self._kept_in_place():
            opened = with_source(records, self._owned.source)
            return list(self._batches(opened, millis_behind))

    def open(
        self, records: Sequence[Record], millis_behind: int
    ) -> Iterator[OpenedStep]:
        """Open aggregates step by step, and yield the batches of their user records.

        Remove objects from their list as they are opened. Count the user records
        outside the shard's range of hash keys, and the aggregates that can't be opened.
        Raise errors as ``build()`` does.
        """
        is_packed = isinstance(records, PackedRecords)
        taken = records if is_packed else _taken(records)
        steps = open_in_steps(taken, self._owned.source)
        while True:
            with self._kept_in_place():
                if (step := next(steps, None)) is None:
                    return
                batches = list(self._batches(step.opened, millis_behind))
            self._report(step.opened)
            raw_bytes = step.data_bytes + RECORD_OVERHEAD_BYTES * step.done
            yield OpenedStep(batches, raw_bytes, step.held_bytes)

    @contextmanager
    def _kept_in_place(self) -> Iterator[None]:
        """Continue after the last batches if the system refuses the block memory."""
        after = self.after
        try:
            with refusal_errors("a page's records", SourceUnavailableError):
                yield
        except SourceUnavailableError:
            self.after = self._skip_to = after
            raise

    def _report(self, opened: OpenedRecords) -> None:
        if opened.outside:
            self._context.telemetry.count(
                "records_outside_hash_range", self._owned.key.stream_arn, opened.outside
            )
        if opened.unopened:
            self._context.failure_log.record_corrupt_aggregates(opened.unopened)
            error = f"sequence number {opened.unopened[0].sequence_number}"
            kind, key = IncidentKind.CORRUPT_AGGREGATE, self._owned.key
            self._context.incidents.note(kind, *key, error=error)

    def _batches(
        self, opened: OpenedRecords, millis_behind: int
    ) -> Iterator[FetchedBatch]:
        """Yield user records in batches that fit ``max_uncommitted_records``."""
        last = None if opened.last is None else Position(opened.last)
        records = self._skip(opened.records)
        if last is None and not records:
            return
        self.after = last or records[-1].position
        step = self._batch_records
        for first in range(0, max(1, len(records)), step):
            part = records
            if len(records) > step:
                part = records[first : first + step]
                if isinstance(part, PackedRecords):  # do not keep the whole page
                    part = part.copied()
            is_last = first + step >= len(records)
            end = last if is_last else None
            size = memory_size(part)
            yield handout.FetchedBatch(part, millis_behind, size, end, self._owned)

    def _skip(self, records: Sequence[Record]) -> Sequence[Record]:
        """Drop records up to the checkpoint, or those that arrived before the start."""
        # A checkpoint may lie inside an aggregate, which Kinesis returns whole. An
        # iterator for a time may begin too early, since the service may round the time.
        skip_to = self._skip_to
        if skip_to is None:
            return records
        for index, record in enumerate(records):
            if _is_after(record, skip_to):
                self._skip_to = None
                return records[index:] if index else records
        return []


def _taken(records: Sequence[Record]) -> Iterator[Record]:
    """Yield records, and remove them from their list, so that memory becomes free."""
    rest = deque(records)
    if isinstance(records, list):
        records.clear()
    while rest:
        yield rest.popleft()


def _is_after(record: Record, after: Position | Start) -> bool:
    if isinstance(after, Position):
        # Other consumers store the index 0 for a record that isn't an aggregate, too.
        if record.sub_sequence_number is None and record.sequence_number == after[0]:
            return False
        return record.position > after
    arrived = record.approximate_arrival_timestamp
    if arrived is None or after.timestamp is None:
        return True
    return arrived >= after.timestamp
