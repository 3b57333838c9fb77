"""Builds Arrow batches with the columns of a query."""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from kinesumer.model.streams import stream_name
from kinesumer.spark.options.table import requested

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from kinesumer.model.streams import ShardKey


MAX_ROWS = 10_000  # the maximum number of rows in one batch


class Columns:
    """The columns of a query. Raises ConfigurationError for an unknown column."""

    def __init__(self, schema: StructType) -> None:
        self.names: tuple[str, ...] = requested(schema)
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def batch(
        self,
        shard: ShardKey,
        values: Mapping[str, pa.Array | Sequence[object]],
        count: int,
    ) -> pa.RecordBatch:
        """Return a batch of rows of one shard. Columns without values hold nulls."""
        arrays = []
        for field in self.schema:
            if field.name in _OF_SHARD:
                arrays.append(_repeated(_OF_SHARD[field.name](shard), count))
            elif field.name in values:
                column = values[field.name]
                is_array = isinstance(column, pa.Array)
                arrays.append(column if is_array else pa.array(column, field.type))
            else:
                arrays.append(pa.nulls(count, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


_OF_SHARD: dict[str, Callable[[ShardKey], str]] = {
    "stream": lambda shard: stream_name(shard.stream_arn),
    "stream_arn": lambda shard: shard.stream_arn,
    "shard_id": lambda shard: shard.shard_id,
}


@lru_cache(maxsize=256)
def _many(text: str) -> pa.Array:
    return pa.repeat(_scalar(text), MAX_ROWS)


def _repeated(text: str, count: int) -> pa.Array:
    if count <= MAX_ROWS:
        return _many(text).slice(0, count)
    return pa.repeat(_scalar(text), count)


def _scalar(text: str) -> pa.Scalar:
    # ``pa.scalar()`` does the same, but imports pandas if it is installed. Pandas takes
    # more CPU to import than all of kinesumer, and a task doesn't need it.
    data = text.encode()
    bounds = pa.py_buffer(array("i", [0, len(data)]))
    return pa.StringArray.from_buffers(1, bounds, pa.py_buffer(data))[0]


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Combine batches of the same schema into one batch."""
    if len(batches) == 1:
        return batches[0]
    [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of at most MAX_ROWS rows."""
    for first in range(0, batch.num_rows, MAX_ROWS):
        yield batch.slice(first, MAX_ROWS)
