"""Puts each row into a stream at least once.

If a task fails, or Spark runs it twice, its rows are put again. So consumers must
tolerate repeated records. A refused record is retried until Kinesis accepts it.
"""

from __future__ import annotations

import json
import math
import os
import random
import uuid
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from kinesumer.consuming.read_place import FRESH_SECONDS
from kinesumer.errors import (
    ConfigurationError,
    FailedRecord,
    FatalError,
    KinesumerError,
    PutFailedError,
)
from kinesumer.model.streams import StreamInfo
from kinesumer.producer.client import open_record_producer
from kinesumer.producer.put_stream import PutCounts, PutStream
from kinesumer.producer.record_producer import RecordProducer
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.failure_log import logger
from kinesumer.spark.options.parser import WriteOptions
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.process import PLAN_RETRIES, run_on_loop
from kinesumer.spark.process_cache import sources
from kinesumer.wire.put_records import Entry, refusal

if TYPE_CHECKING:
    import pyarrow as pa


# The columns that a sink writes, with their types. explicit_hash_key is optional, and
# so is partition_key for a stream that distributes records by AUTO.
SINK_COLUMNS = {
    "data": (BinaryType, StringType),
    "partition_key": (StringType,),
    "explicit_hash_key": (StringType,),
}
# Rows are passed to the event loop's thread in parts of about this size. One by one
# would be slow; a whole batch of large rows would be in memory twice. A part is larger
# than a request (REQUEST_BYTES), so that requests are full.
PART_BYTES = 8 << 20
CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class WriteResult(WriterCommitMessage):
    """The result of one task, which Spark passes to the driver."""

    counts: PutCounts
    dead_letters: int = 0
    dead_letter_file: str | None = None


class _TaskWriter:
    """Writes the rows of a task; Spark pickles it to the executors."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema)
        if "partition_key" not in schema.fieldNames():
            _require_no_keys(options)
        if options.dead_letter_path is not None:
            open_directory(options.dead_letter_path)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        """Put a task's rows, and return when Kinesis has accepted all of them."""
        options = self._options
        refused: deque[FailedRecord] = deque()  # the event loop's thread appends to it
        producer = run_on_loop(_open(options, refused.append))
        try:
            with closing(DeadLetters(options.dead_letter_path)) as dead_letters:
                for batch in iterator:
                    for part in parts(batch):
                        entries = list(_entries(part, producer.stream, dead_letters))
                        run_on_loop(_add(producer, entries))
                        dead_letters.add_refused(refused)
                counts = run_on_loop(producer.flush())
                dead_letters.add_refused(refused)
            return WriteResult(counts, dead_letters.rows, dead_letters.name)
        except PutFailedError as error:
            # Spark puts the task's rows again, so the list of records isn't needed.
            raise (error.__cause__ or error) from None
        finally:
            # The event loop outlives the task. Without this, retries would continue.
            ended = KinesumerError("the task ended early; run it again")
            run_on_loop(producer.abandon(ended))


class BatchWriter(_TaskWriter, DataSourceArrowWriter):
    """Puts the rows of one query, for ``df.write``."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log how many records were put."""
        logger.info("%s: put %s", self._options.stream.name, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log how many records were put although the query failed."""
        logger.error(
            "%s: the query failed; finished tasks put %s, which stay in the stream",
            self._options.stream.name,
            summary(messages),
        )


class StreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """Puts the rows of each batch, for ``df.writeStream``."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log how many records were put."""
        name = self._options.stream.name
        logger.info("%s: batch %d: put %s", name, batchId, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log how many records were put before the batch failed."""
        logger.error(
            "%s: batch %d failed; tasks that had finished put %s, which will be put "
            "again",
            self._options.stream.name,
            batchId,
            summary(messages),
        )


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


# --- a task's records -----------------------------------------------------------------


def parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts, of which one at a time is copied as Python objects."""
    bytes_per_row = batch.nbytes // max(1, len(batch))
    rows = max(1, PART_BYTES // max(1, bytes_per_row))
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)


async def _add(producer: RecordProducer, entries: list[Entry]) -> None:
    for entry in entries:
        await producer.add(entry)


def _entries(
    batch: pa.RecordBatch, stream: PutStream, dead_letters: DeadLetters
) -> Iterator[Entry]:
    """Yield the rows that the stream takes as records, and put the others aside."""
    for data, key, hash_key in read_rows(batch):
        if data is None:
            dead_letters.add("data is null", key, hash_key, data)
            continue
        entry = Entry(data, key, hash_key)
        reason = refusal(entry, stream.info)
        if reason is not None:  # the stream may have changed since
            reason = run_on_loop(stream.refusal(entry))
        if reason is None:
            yield entry
        else:
            dead_letters.add(reason, key, hash_key, data)


async def _open(
    options: WriteOptions, on_refused: Callable[[FailedRecord], object]
) -> RecordProducer:
    return await open_record_producer(
        await sources(options.connection).open_kinesis(options.stream),
        await _info(options),
        aggregate=options.aggregate,
        ordered=options.ordered,
        chance=random.Random(),
        on_refused=on_refused,
        waits_for_credentials=True,
    )


def _require_no_keys(options: WriteOptions) -> None:
    """Raise ConfigurationError if the stream needs partition keys."""
    info = run_on_loop(_info(options))
    if info.routes_by_key:
        raise ConfigurationError(
            "column partition_key is missing: give the columns data (binary or "
            "string), partition_key and, if wanted, explicit_hash_key (string); only a "
            "stream that distributes records by AUTO needs no keys"
        )


async def _info(options: WriteOptions) -> StreamInfo:
    """Return the stream's description. Read it again after FRESH_SECONDS."""
    shared, stream = sources(options.connection), options.stream
    described_at, info = shared.infos.get(stream, (-math.inf, None))
    if info is None or CLOCK.now() - described_at >= FRESH_SECONDS:
        source = await shared.open_kinesis(stream)
        info = await PLAN_RETRIES.call(source.describe)
        shared.infos[stream] = CLOCK.now(), info
    return info


# --- rows -----------------------------------------------------------------------------


def check_columns(schema: StructType) -> None:
    """Raise ConfigurationError unless a query has the columns of a sink.

    The source's other columns are ignored, so that a query can copy a stream.
    """
    types = {field.name: field.dataType for field in schema.fields}
    for name in types:
        if name.lower() in SINK_COLUMNS and name not in SINK_COLUMNS:
            raise ConfigurationError(
                f"column {name} has no place in a Kinesis record, because names are "
                f"lower-case: rename it to {name.lower()}"
            )
    if "data" not in types:
        raise ConfigurationError(
            "column data is missing: give the columns data (binary or string), "
            "partition_key and, if wanted, explicit_hash_key (string)"
        )
    for name, kind in types.items():
        if name not in SINK_COLUMNS and name not in COLUMNS:
            close = get_close_matches(name.lower(), SINK_COLUMNS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigurationError(
                f"column {name} has no place in a Kinesis record{hint} "
                "(drop it, or put it into data)"
            )
        if name in SINK_COLUMNS and not isinstance(kind, SINK_COLUMNS[name]):
            types_text = " or ".join(type_.typeName() for type_ in SINK_COLUMNS[name])
            raise ConfigurationError(
                f"column {name} is {kind.simpleString()}, but must be {types_text}"
            )


def read_rows(
    batch: pa.RecordBatch,
) -> Iterator[tuple[bytes | None, str | None, str | None]]:
    """Return each row's data, partition key and explicit hash key."""
    import pyarrow as pa

    # Depending on its version and settings, Spark passes text as Arrow's string or
    # large_string.
    data = batch.column("data")
    if pa.types.is_large_string(data.type):
        data = data.cast(pa.large_binary())
    elif pa.types.is_string(data.type):
        data = data.cast(pa.binary())
    keys, hash_keys = _texts(batch, "partition_key"), _texts(batch, "explicit_hash_key")
    return zip(data.to_pylist(), keys, hash_keys, strict=True)


def _texts(batch: pa.RecordBatch, name: str) -> list[str | None]:
    """Return the values of a column, which are null if there is no such column."""
    if name not in batch.schema.names:
        return [None] * len(batch)
    values: list[str | None] = batch.column(name).to_pylist()
    return values


class RejectedRowError(FatalError):
    """A row can't be a Kinesis record. The message names the row's partition key."""


class DeadLetters:
    """The dead-letter file of a task attempt. The first rejected row creates it.

    Each line is a JSON object with reason, partition_key, explicit_hash_key, and data
    in base64. If the sink has no path for the file, such a row makes the task fail.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: Any = None
        self.rows: int = 0
        self.name: str | None = None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def add_refused(self, refused: deque[FailedRecord]) -> None:
        """Take all rows that Kinesis has refused, and write them as ``add()`` does."""
        while refused:
            data, key, hash_key, reason = refused.popleft()
            self.add(reason, key, hash_key, data)

    def add(
        self, reason: str, key: str | None, hash_key: str | None, data: bytes | None
    ) -> None:
        """Write a rejected row. Raise RejectedRowError if there is no path for it."""
        if self._path is None:
            raise RejectedRowError(
                f"the row with partition key {key!r} can't be put: {reason}; filter "
                "such rows out, or give the option deadLetterPath to put them aside"
            )
        if self._file is None:
            filesystem, directory = open_directory(self._path)
            self.name = f"{directory.rstrip('/')}/{_attempt()}-{uuid.uuid4()}.jsonl"
            filesystem.create_dir(directory, recursive=True)
            self._file = filesystem.open_output_stream(self.name)
        line = {"reason": reason, "partition_key": key, "explicit_hash_key": hash_key}
        text = None if data is None else b64encode(data).decode()
        self._file.write(json.dumps({**line, "data": text}).encode() + b"\n")
        self.rows += 1


def open_directory(path: str) -> tuple[Any, str]:
    """Return the filesystem for a path or URI, and the directory's path in it.

    Raises ConfigurationError if the URI isn't valid.
    """
    import pyarrow as pa
    from pyarrow import fs

    if "://" not in path and not path.startswith("file:"):
        return fs.LocalFileSystem(), os.path.abspath(path)
    try:
        filesystem, directory = fs.FileSystem.from_uri(path)
    except (pa.ArrowInvalid, ValueError) as error:
        raise ConfigurationError(
            f"option deadLetterPath={path!r} must be a path, or a URI that pyarrow "
            f"knows: {error}"
        ) from error
    return filesystem, directory


def _attempt() -> str:
    task = TaskContext.get()
    if task is None:
        return "rows"
    return f"part-{task.partitionId():05d}-attempt-{task.taskAttemptId()}"
