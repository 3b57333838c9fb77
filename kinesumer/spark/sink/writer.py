"""The sink: puts rows into one stream, at least once.

A task that fails, or that Spark runs twice, puts its rows again: consumers must
tolerate repeated records. A refused record is retried until Kinesis accepts it.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kinesumer.errors import StreamMissingError
from kinesumer.producer.aggregation import Aggregator
from kinesumer.producer.batching import PendingRecord, PutCounts, RecordProducer
from kinesumer.runtime.clock import SystemClock
from kinesumer.spark.runtime.event_loop import event_loop_thread, with_retries
from kinesumer.spark.runtime.sources import sources
from kinesumer.spark.sink.rows import (
    DeadLetters,
    RejectedRow,
    check_columns,
    open_directory,
    read_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kinesumer.model.streams import Shard, Stream
    from kinesumer.spark.options.parser import WriteOptions
    from kinesumer.spark.runtime.sources import Sources
    from kinesumer.wire.put_records import Entry

LOGGER = logging.getLogger("kinesumer")

ROWS_AT_ONCE = 2_000
"""The number of rows that are passed to the loop at once."""
DESCRIBED_SECONDS = 60.0
"""AWS allows 20 descriptions a second. A worker takes one a minute."""
CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class WriteResult(WriterCommitMessage):
    """The result of one task."""

    counts: PutCounts
    dead_letters: int = 0
    dead_letter_file: str | None = None


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: puts the rows of one query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        """Put a task's rows."""
        return write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the records that were put."""
        LOGGER.info("%s: put %s", self._options.stream.name, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the records that were put although the query failed."""
        LOGGER.error(
            "%s: the query failed; tasks that had finished put %s, which stays",
            self._options.stream.name,
            summary(messages),
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: puts the rows of each batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        """Put a task's rows."""
        return write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the records that were put."""
        name = self._options.stream.name
        LOGGER.info("%s: batch %d: put %s", name, batchId, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the records that were put, and will be put again."""
        LOGGER.error(
            "%s: batch %d failed; tasks that had finished put %s, which will be put "
            "again",
            self._options.stream.name,
            batchId,
            summary(messages),
        )


def check(options: WriteOptions, schema: StructType) -> None:
    """Raise ConfigurationError for columns or options that can't work."""
    check_columns(schema)
    if options.dead_letter_path is not None:
        open_directory(options.dead_letter_path)


def summary(messages: Iterable[WriterCommitMessage | None]) -> str:
    """Return one line about the records of all tasks."""
    written = [message for message in messages if isinstance(message, WriteResult)]

    def total(name: str) -> int:
        return sum(getattr(message.counts, name) for message in written)

    text = (
        f"{total('rows'):,} rows as {total('records'):,} records "
        f"({total('bytes'):,} bytes) in {total('requests'):,} requests, "
        f"{total('retried'):,} records again"
    )
    files = [m.dead_letter_file for m in written if m.dead_letter_file is not None]
    if files:
        rows = sum(message.dead_letters for message in written)
        text += f"; {rows:,} rows can't be put: {', '.join(sorted(files))}"
    return text


def write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> WriteResult:
    """Put a task's rows; return when Kinesis has accepted all of them."""
    loop = event_loop_thread()
    task = loop.run(_open(options))
    try:
        with DeadLetters(options.dead_letter_path) as dead:
            for batch in batches:
                entries = _entries(batch, task.record_bytes, dead)
                units = task.units(entries)
                while part := list(islice(units, ROWS_AT_ONCE)):
                    loop.run(task.producer.add(part))
            loop.run(task.producer.add(task.rest()))
            counts = loop.run(task.producer.finish())
        return WriteResult(counts, dead.rows, dead.name)
    except BaseException:
        loop.run(task.producer.abandon())
        raise


def _entries(
    batch: pa.RecordBatch, record_bytes: int, dead: DeadLetters
) -> Iterator[Entry]:
    for row in read_rows(batch, record_bytes):
        if isinstance(row, RejectedRow):
            dead.add(row)
        else:
            yield row


@dataclass(frozen=True, slots=True)
class _Task:
    producer: RecordProducer
    record_bytes: int
    aggregator: Aggregator | None

    def units(self, entries: Iterator[Entry]) -> Iterator[PendingRecord]:
        """Return records to put: one for each row, or aggregates."""
        if self.aggregator is not None:
            return self.aggregator.pack(entries)
        return (PendingRecord(e, e.size, order_key=e.partition_key) for e in entries)

    def rest(self) -> Iterator[PendingRecord]:
        """Return the last, incomplete aggregates."""
        return iter(()) if self.aggregator is None else self.aggregator.flush()


async def _open(options: WriteOptions) -> _Task:
    stream = options.stream
    shared = sources(options.connection)
    source = await shared.open(stream)
    record_bytes = await _record_bytes(shared, stream)
    shards: Sequence[Shard] = ()
    if options.aggregate:
        shards = await with_retries(source.list_shards, CLOCK)
    chance = random.Random()
    return _Task(
        RecordProducer(source.put_records, ordered=options.ordered, chance=chance),
        record_bytes,
        Aggregator(shards) if options.aggregate else None,
    )


async def _record_bytes(shared: Sources, stream: Stream) -> int:
    """Return the maximum size of a record. It is read again after a minute."""
    at, found = shared.record_bytes.get(stream, (0.0, 0))
    if not found or CLOCK.now() - at >= DESCRIBED_SECONDS:
        source = await shared.open(stream)
        info = await with_retries(source.describe, CLOCK)
        if info.status == "DELETING":
            raise StreamMissingError(f"stream {info.arn} is being deleted")
        found = info.max_record_bytes
        shared.record_bytes[stream] = CLOCK.now(), found
    return found
