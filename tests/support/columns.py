"""Records that are packed, without the compiled decoder."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import overload

from hypothesis import strategies as st

from kinesumer.model.records import Buffers, Fence, PackedRecords, Record, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SOURCE = Source(Fence(ShardKey(ARN, "shardId-000000000000"), 3), 0, HASH_KEYS - 1)


def offsets(parts: Sequence[bytes]) -> bytes:
    """Return Arrow's offsets of values that follow each other."""
    ends = [sum(map(len, parts[:stop])) for stop in range(len(parts) + 1)]
    return b"".join(end.to_bytes(4, "little") for end in ends)


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
                    source=r.source,
                )
                for r in self._records
            ]
        )

    def without(self, indexes: Set[int]) -> ListedRecords:
        left = [r for index, r in enumerate(self._records) if index not in indexes]
        return ListedRecords(left)

    def columns(self) -> Buffers:
        numbers = [record.sequence_number.encode() for record in self._records]
        keys = [(record.partition_key or "").encode() for record in self._records]
        data = [record.data for record in self._records]
        has_keys = all(record.partition_key is not None for record in self._records)
        times = [r.approximate_arrival_timestamp or 0 for r in self._records]
        return Buffers(
            offsets(numbers),
            b"".join(numbers),
            offsets(keys) if has_keys else b"",
            b"".join(keys),
            offsets(data),
            b"".join(data),
            b"".join(round(time * 1e6).to_bytes(8, "little") for time in times),
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
            source=SOURCE,
        )
        for number in range(count)
    ]
