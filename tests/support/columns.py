"""Records that are packed, without the compiled decoder."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import overload

from hypothesis import strategies as st

from kinesumer.model.records import (
    Buffers,
    ColumnBuffers,
    Fence,
    PackedRecords,
    Record,
    Source,
)
from kinesumer.model.streams import HASH_KEYS, ShardKey

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SOURCE = Source(Fence(ShardKey(ARN, "shardId-000000000000"), 3), 0, HASH_KEYS - 1)


def texts(values: Sequence[str | bytes | None]) -> ColumnBuffers:
    """Return Arrow's buffers of texts, or of bytes."""
    parts = [v.encode() if isinstance(v, str) else v or b"" for v in values]
    ends = [sum(map(len, parts[:stop])) for stop in range(len(parts) + 1)]
    offsets = b"".join(end.to_bytes(4, "little") for end in ends)
    return column(values, offsets, b"".join(parts))


def numbers(values: Sequence[int | None]) -> ColumnBuffers:
    """Return Arrow's buffers of numbers. What a missing one has doesn't matter."""
    parts = [-1 if value is None else value for value in values]
    return column(values, b"".join(n.to_bytes(8, "little", signed=True) for n in parts))


def column(values: Sequence[object], *buffers: bytes) -> ColumnBuffers:
    """Return the buffers of a column, with the one that tells which values it has."""
    missing = values.count(None)
    if missing and missing == len(values):
        return None
    bits = sum(1 << at for at, value in enumerate(values) if value is not None)
    has_value = bits.to_bytes((len(values) + 7) // 8, "little")
    return (has_value if missing else None, *buffers)


def arrival_micros(record: Record) -> int:
    return round((record.approximate_arrival_timestamp or 0) * 1e6)


class ListedRecords(PackedRecords):
    """A sequence of records that says how large it is, and what its columns are."""

    __slots__ = ("_records",)

    def __init__(self, records: Sequence[Record]) -> None:
        self._records, self.source = records, SOURCE

    @property
    def data_bytes(self) -> int:
        return sum(len(record.data) for record in self._records)

    def copied(self, *, has_data: bool = True) -> ListedRecords:
        if has_data:
            return self
        return ListedRecords(
            [
                Record(
                    r.sequence_number,
                    b"",
                    approximate_arrival_timestamp=r.approximate_arrival_timestamp,
                    sub_sequence_number=r.sub_sequence_number,
                    source=r.source,
                )
                for r in self._records
            ]
        )

    def without(self, indexes: Set[int]) -> ListedRecords:
        left = [r for index, r in enumerate(self._records) if index not in indexes]
        return ListedRecords(left)

    def columns(self) -> Buffers:
        records = self._records
        return Buffers(
            texts([record.sequence_number for record in records]),
            texts([record.partition_key for record in records]),
            texts([record.data for record in records]),
            texts([record.explicit_hash_key for record in records]),
            numbers([arrival_micros(record) for record in records]),
            numbers([record.sub_sequence_number for record in records]),
        )

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> ListedRecords: ...
    def __getitem__(self, index: int | slice) -> Record | ListedRecords:
        if isinstance(index, slice):
            return ListedRecords(self._records[index])
        return self._records[index]


@st.composite
def pages(draw: st.DrawFn) -> list[Record]:
    """Draw the records of a page, as its decoder makes them."""
    count, has_keys = (
        draw(st.integers(1, 6)),
        draw(st.sampled_from([True, False, None])),
    )
    some = st.text(min_size=1, max_size=4)
    keys = some if has_keys else st.none() | some if has_keys is None else st.none()
    return [
        Record(
            str(10**55 + number),
            draw(st.binary(max_size=5)),
            draw(keys),
            draw(st.integers(0, 2**41)) / 1000,
            sub_sequence_number=draw(st.none() | st.integers(0, 9)),
            source=SOURCE,
        )
        for number in range(count)
    ]
