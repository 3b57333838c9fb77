"""Splits a GetRecords answer in CBOR into Arrow columns, without an object per record.

Each record must have Kinesis's four fields, or all records lack the partition key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from kinesumer.spark.columnar.json_layout import IrregularError
from kinesumer.wire.decoder import compiled

if TYPE_CHECKING:
    from kinesumer.wire.decoder import Body

TIMESTAMP = pa.timestamp("us", tz="UTC")


class CborTable:
    """The columns of a page's records. Raises IrregularError for an unusual page."""

    def __init__(self, body: Body, prefix: bytes) -> None:
        if compiled is None:
            raise IrregularError
        try:
            found = compiled.read_columns(body, prefix)
        except ValueError as error:
            raise IrregularError from error
        buffers = found[2]
        self.count: int = found[0]
        # Whether the data of at least one record begins with the prefix.
        self.has_prefix: bool = found[1]
        self.fields: dict[str, object] = found[3]  # of the answer, without its records
        self.numbers: pa.Array = self._column(pa.string(), *buffers[:2])
        # The buffers of keys are empty if no record has one.
        self.keys: pa.Array = pa.nulls(self.count, pa.string())
        if buffers[2]:
            self.keys = self._column(pa.string(), *buffers[2:4])
        self.data: pa.Array = self._column(pa.binary(), *buffers[4:6])
        self.arrivals: pa.Array = self._column(TIMESTAMP, buffers[6])
        self.payload: int = len(buffers[3]) + len(buffers[5])

    def _column(self, type_: pa.DataType, *buffers: bytes) -> pa.Array:
        parts = [None, *map(pa.py_buffer, buffers)]
        return pa.Array.from_buffers(type_, self.count, parts)
