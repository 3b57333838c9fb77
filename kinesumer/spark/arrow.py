"""Records as columns: only those that a query asked for are built."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from kinesumer.spark.columns import requested

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from kinesumer.model import Record, ShardKey

MOST_ROWS = 10_000
MICROSECOND = 1e6


class Columns:
    """The columns of one query."""

    def __init__(self, schema: StructType) -> None:
        self.names = requested(schema)
        self.schema = to_arrow_schema(schema, timezone="UTC")

    def batch(self, shard: ShardKey, records: list[Record]) -> pa.RecordBatch:
        """Return records of one shard as rows."""
        arrays = [_COLUMNS[name](shard, records) for name in self.names]
        if not arrays:  # count(*)
            return pa.record_batch([pa.nulls(len(records))], ["rows"]).select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _stream(shard: ShardKey, records: list[Record]) -> pa.Array:
    return _repeated(shard.stream_arn.rpartition("/")[2], len(records))


def _stream_arn(shard: ShardKey, records: list[Record]) -> pa.Array:
    return _repeated(shard.stream_arn, len(records))


def _shard_id(shard: ShardKey, records: list[Record]) -> pa.Array:
    return _repeated(shard.shard_id, len(records))


def _sequence_number(shard: ShardKey, records: list[Record]) -> pa.Array:
    return pa.array([record.sequence_number for record in records], pa.string())


def _partition_key(shard: ShardKey, records: list[Record]) -> pa.Array:
    return pa.array([record.partition_key for record in records], pa.string())


def _data(shard: ShardKey, records: list[Record]) -> pa.Array:
    return pa.array([record.data for record in records], pa.binary())


def _sub_sequence_number(shard: ShardKey, records: list[Record]) -> pa.Array:
    return pa.array([record.sub_sequence_number for record in records], pa.int64())


def _explicit_hash_key(shard: ShardKey, records: list[Record]) -> pa.Array:
    return pa.array([record.explicit_hash_key for record in records], pa.string())


def _arrived_at(shard: ShardKey, records: list[Record]) -> pa.Array:
    times = [record.approximate_arrival_timestamp for record in records]
    seconds = np.array(times, dtype=np.float64)  # None becomes NaN
    missing = np.isnan(seconds)
    seconds[missing] = 0.0
    micros = np.rint(seconds * MICROSECOND).astype(np.int64)
    type_ = pa.timestamp("us", tz="UTC")
    return pa.array(micros, type_, mask=missing if missing.any() else None)


@lru_cache(maxsize=64)
def _many(text: str) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), MOST_ROWS)


def _repeated(text: str, count: int) -> pa.Array:
    if count <= MOST_ROWS:
        return _many(text).slice(0, count)
    return pa.repeat(pa.scalar(text, pa.string()), count)


_COLUMNS: dict[str, Callable[[ShardKey, list[Record]], pa.Array]] = {
    "stream": _stream,
    "stream_arn": _stream_arn,
    "shard_id": _shard_id,
    "sequence_number": _sequence_number,
    "sub_sequence_number": _sub_sequence_number,
    "partition_key": _partition_key,
    "explicit_hash_key": _explicit_hash_key,
    "data": _data,
    "arrived_at": _arrived_at,
}
