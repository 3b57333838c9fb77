"""Rows of a query as records to put, and files of rows that Kinesis can't take."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StringType

from kinesumer.errors import ConfigurationError, FatalError
from kinesumer.spark.options.table import COLUMNS
from kinesumer.wire.put_records import Entry, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pyarrow as pa
    from pyspark.sql.types import StructType

SINK_COLUMNS = {
    "data": (BinaryType, StringType),
    "partition_key": (StringType,),
    "explicit_hash_key": (StringType,),
}
"""The columns of a sink with their types. The last one is optional."""


class RejectedRow(NamedTuple):
    """A row that Kinesis can't take, with the reason."""

    reason: str
    partition_key: str | None
    explicit_hash_key: str | None
    data: bytes | None


def check_columns(schema: StructType) -> None:
    """Raise ConfigurationError unless a query has the columns of a sink.

    The source's other columns are ignored: one stream is copied into another as it is.
    """
    types = {field.name: field.dataType for field in schema.fields}
    for name in ("data", "partition_key"):
        if name not in types:
            raise ConfigurationError(
                f"column {name} is missing: a sink puts the columns data (binary or "
                "string), partition_key and, if there, explicit_hash_key (string)"
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
            wanted = " or ".join(kind.typeName() for kind in SINK_COLUMNS[name])
            raise ConfigurationError(
                f"column {name} is {kind.simpleString()}, not {wanted}"
            )


def read_rows(
    batch: pa.RecordBatch, record_bytes: int
) -> Iterator[Entry | RejectedRow]:
    """Yield each row as a record, or with the reason why Kinesis can't take it.

    ``record_bytes`` is the stream's maximum for data and partition key.
    """
    import pyarrow as pa

    columns = {
        name: batch.column(name)
        for name in SINK_COLUMNS
        if batch.schema.get_field_index(name) >= 0
    }
    data = columns["data"]
    if pa.types.is_large_string(data.type):
        data = data.cast(pa.large_binary())
    elif pa.types.is_string(data.type):
        data = data.cast(pa.binary())
    hash_keys = (
        columns["explicit_hash_key"].to_pylist()
        if "explicit_hash_key" in columns
        else [None] * len(batch)
    )
    rows = zip(
        data.to_pylist(), columns["partition_key"].to_pylist(), hash_keys, strict=True
    )
    for content, key, hash_key in rows:
        reason = refusal(content, key, hash_key, record_bytes)
        if reason is None:
            yield Entry(content, key, hash_key)
        else:
            yield RejectedRow(reason, key, hash_key, content)


class RejectedRowError(FatalError):
    """A row can't be a Kinesis record; the message names its partition key."""


class DeadLetters:
    """The dead-letter file of a task attempt, created with its first row.

    Each line is a JSON object with reason, partition_key, explicit_hash_key, and data
    in base64. Without a path, the first such row fails the task.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: Any = None
        self.rows = 0
        self.name: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, row: RejectedRow) -> None:
        """Write a row. Raise RejectedRowError without a path."""
        if self._path is None:
            raise RejectedRowError(
                f"the row with partition key {row.partition_key!r} can't be put: "
                f"{row.reason}; filter such rows out, or give the option "
                "deadLetterPath to put them aside"
            )
        if self._file is None:
            self._file = self._create(self._path)
        data = None if row.data is None else b64encode(row.data).decode()
        line = json.dumps({**row._asdict(), "data": data})
        self._file.write(line.encode() + b"\n")
        self.rows += 1

    def _create(self, path: str) -> Any:
        filesystem, directory = open_directory(path)
        self.name = f"{directory.rstrip('/')}/{_attempt()}-{uuid.uuid4()}.jsonl"
        filesystem.create_dir(directory, recursive=True)
        return filesystem.open_output_stream(self.name)


def open_directory(path: str) -> tuple[Any, str]:
    """Return a filesystem and the directory on it. Raises ConfigurationError."""
    import os

    import pyarrow as pa
    from pyarrow import fs

    if "://" not in path and not path.startswith("file:"):
        return fs.LocalFileSystem(), os.path.abspath(path)
    try:
        filesystem, directory = fs.FileSystem.from_uri(path)
    except (pa.ArrowInvalid, ValueError) as error:
        raise ConfigurationError(
            f"option deadLetterPath={path!r} is neither a path nor a URI that pyarrow "
            f"knows: {error}"
        ) from error
    return filesystem, directory


def _attempt() -> str:
    task = TaskContext.get()
    if task is None:
        return "rows"
    return f"part-{task.partitionId():05d}-attempt-{task.taskAttemptId()}"
