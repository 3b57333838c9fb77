"""Rows that Kinesis can't take, kept in a file for somebody to look at."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Self

from pyspark import TaskContext

from kinesumer.errors import ConfigurationError, FatalError

if TYPE_CHECKING:
    from types import TracebackType

    from kinesumer.spark.sink.rows import Refused


class RefusedRowError(FatalError):
    """A row can't be a Kinesis record; the message names its partition key."""


class DeadLetters:
    """One task attempt's file, made when there is a first row for it.

    Each line is a JSON object: reason, partition_key, explicit_hash_key, and data in
    base64. Without a path the first such row fails the task.
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

    def add(self, row: Refused) -> None:
        """Keep a row. Raises RefusedRowError if there is nowhere to keep it."""
        if self._path is None:
            raise RefusedRowError(
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
