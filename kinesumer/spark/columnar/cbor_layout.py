"""Splits a GetRecords answer in CBOR into Arrow columns, without an object per record.

This needs kinesumer-native. Each record must have Kinesis's four fields, or all records
lack the partition key. A record may have ``EncryptionType``, too, but no others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa

from kinesumer.spark.columnar.json_layout import IrregularError
from kinesumer.wire.cbor_records import without_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.wire.records import Body

    # Returns where the array of records begins and ends, the number of records, whether
    # the data of at least one begins with a prefix, and the buffers of their columns.
    Split = Callable[[Body, bytes], tuple[int, int, int, bool, tuple[bytes, ...]]]

TIMESTAMP = pa.timestamp("us", tz="UTC")


def find_compiled_splitter() -> Split | None:
    """Return the function of kinesumer-native, or None if that is not installed."""
    try:
        split: Split = import_module("kinesumer_native").to_columns
    except (ImportError, AttributeError):  # AttributeError: an older version
        return None
    return split


to_columns: Split | None = find_compiled_splitter()


class CborTable:
    """The columns of a page's records. Raises IrregularError for an unusual page."""

    def __init__(self, body: Body, prefix: bytes) -> None:
        if to_columns is None:
            raise IrregularError
        try:
            begin, end, count, has_prefix, buffers = to_columns(body, prefix)
            self.count: int = count
            # Whether the data of at least one record begins with the prefix.
            self.has_prefix: bool = has_prefix
            # The answer without its records.
            self.rest: bytes = bytes(without_records(body, begin, end))
        except ValueError as error:
            raise IrregularError from error
        self.numbers: pa.Array = self._column(pa.string(), *buffers[:2])
        # The buffers of keys are empty if no record has one.
        self.keys: pa.Array = pa.nulls(count, pa.string())
        if buffers[2]:
            self.keys = self._column(pa.string(), *buffers[2:4])
        self.data: pa.Array = self._column(pa.binary(), *buffers[4:6])
        self.arrivals: pa.Array = self._column(TIMESTAMP, buffers[6])
        self.payload: int = len(buffers[3]) + len(buffers[5])

    def _column(self, type_: pa.DataType, *buffers: bytes) -> pa.Array:
        parts = [None, *map(pa.py_buffer, buffers)]
        return pa.Array.from_buffers(type_, self.count, parts)
