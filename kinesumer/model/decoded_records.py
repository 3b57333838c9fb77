"""Records with their decoded values, of which none is an object until it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, Self, overload

from kinesumer.model.records import Buffers, DecodedRecord, PackedRecords, Record


class DecodedRecords(PackedRecords):
    """Packed records with the value of each. A record that is made gets its value."""

    __slots__ = ("_packed", "values")

    def __init__(self, packed: PackedRecords, values: Sequence[object]) -> None:
        self._packed = packed
        self.values: Sequence[object] = values
        self.source = packed.source

    @property
    def data_bytes(self) -> int:
        """The size of the records' data."""
        return self._packed.data_bytes

    def copied(self, *, has_data: bool = True) -> Self:
        """Return a copy with the same values."""
        return type(self)(self._packed.copied(has_data=has_data), self.values)

    def without(self, indexes: Set[int]) -> Self:
        """Return all records but some."""
        values = [v for index, v in enumerate(self.values) if index not in indexes]
        return type(self)(self._packed.without(indexes), values)

    def columns(self) -> Buffers:
        """Return the records as the buffers of Arrow, without their values."""
        return self._packed.columns()

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Record[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record[Any]]: ...
    def __getitem__(self, index: int | slice) -> Record[Any] | Sequence[Record[Any]]:
        if isinstance(index, slice):
            return with_values(self._packed[index], self.values[index])
        return self._packed[index].with_value(self.values[index])

    def __iter__(self) -> Iterator[Record[Any]]:
        for record, value in zip(self._packed, self.values, strict=True):
            yield record.with_value(value)


def with_values(
    records: Sequence[Record], values: Sequence[object], skipped: Set[int] = frozenset()
) -> Sequence[Record[Any]]:
    """Return the first records but some with these values. Packed records stay packed.

    There are as many records as there are values.
    """
    kept = records[: len(values) + len(skipped)]
    if isinstance(kept, PackedRecords):
        return DecodedRecords(kept.without(skipped) if skipped else kept, values)
    chosen = (record for index, record in enumerate(kept) if index not in skipped)
    return [
        record.with_value(value) for record, value in zip(chosen, values, strict=True)
    ]


def decoded_values(records: Sequence[Record[Any]]) -> Sequence[object] | None:
    """Return the values of records, or None if none of them was decoded."""
    if isinstance(records, PackedRecords):
        values = records.values if isinstance(records, DecodedRecords) else ()
        return values or None
    is_decoded = any(isinstance(record, DecodedRecord) for record in records)
    return [record.value for record in records] if is_decoded else None
