"""Builds Arrow batches with the columns of a query, and decodes Base64 columns."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pybase64 import b64decode
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
    # See from_numpy() for why this isn't pa.scalar().
    data = text.encode()
    return _array(data, np.array([0, len(data)], np.int32)).cast(pa.string())[0]


def from_numpy(integers: np.ndarray[Any, Any], type_: pa.DataType) -> pa.Array:
    """Return integers as an array of an Arrow type of the same width.

    ``pa.array()`` does the same, but imports pandas if it is installed. Pandas takes
    more CPU to import than all of kinesumer, and a task does not need it.
    """
    return pa.Array.from_buffers(
        type_, len(integers), [None, pa.py_buffer(np.ascontiguousarray(integers))]
    )


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


_PADDING, _ZERO = ord("="), ord("A")


def decode(texts: pa.Array) -> pa.Array:
    """Return the bytes of Base64 texts. Raises ValueError for an invalid text.

    All texts are decoded in one call. For this, their padding is replaced by characters
    that decode to zeros. These zeros are cut off afterwards.
    """
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1]
    text = np.frombuffer(texts.buffers()[2], np.uint8)[: offsets[-1]]
    # Four characters decode to three bytes, so the offsets of the texts determine the
    # offsets of the bytes.
    if (offsets & 3).any():
        raise ValueError("Base64 comes in groups of four characters")
    ends = offsets[1:][offsets[1:] > offsets[:-1]]
    one = text[ends - 1] == _PADDING
    if not one.any():
        return _array(b64decode(text.data, validate=True), offsets // 4 * 3)
    two = one & (text[ends - 2] == _PADDING)
    text = text if text.flags.writeable else text.copy()
    text[ends[one] - 1] = _ZERO
    text[ends[two] - 2] = _ZERO
    # Each text gets two slices: its bytes, and the zeros that stand for its padding.
    padding = np.zeros(len(texts), np.int32)
    padding[offsets[1:] > offsets[:-1]] = one.astype(np.int32) + two
    bounds = np.repeat(offsets // 4 * 3, 2)[:-1]
    bounds[1::2] = bounds[2::2] - padding
    every = _array(b64decode(text.data, validate=True), bounds)
    places = np.arange(0, 2 * len(texts), 2, dtype=np.int32)
    return every.take(from_numpy(places, pa.int32()))


def _array(
    data: bytes, offsets: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
