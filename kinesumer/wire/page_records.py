"""The records of a page in CBOR, of which none is an object until it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from itertools import pairwise
from typing import Self, overload

from kinesumer.model.records import Buffers, PackedRecords, Record, Source
from kinesumer.wire.cbor import Body, Compiled

ENTRY_BYTES = 48  # of an index of a page, for each record: ``Entry`` of ``_native.c``


class PageRecords(PackedRecords):
    """Records of one page, in the page's own bytes. Slices share the page."""

    __slots__ = ("_body", "_compiled", "_first", "_index", "_stop", "has_aggregates")

    def __init__(
        self,
        compiled: Compiled,
        body: Body,
        index: bytes,
        between: tuple[int, int] | None = None,
        source: Source | None = None,
        *,
        has_aggregates: bool = False,
    ) -> None:
        """Create the sequence of all records in an index, or of those between two."""
        self._compiled, self._body, self._index = compiled, body, index
        self._first, self._stop = between or (0, len(index) // ENTRY_BYTES)
        self.source = source
        # Whether the data of some records of the page begins like an aggregate.
        self.has_aggregates: bool = has_aggregates

    @property
    def data_bytes(self) -> int:
        """The size of the records' data."""
        return self._compiled.data_bytes(*self._part)

    def copied(self, *, has_data: bool = True) -> Self:
        """Return a copy that does not keep the page in memory."""
        copied = self._compiled.copy(*self._part, has_data)
        return type(self)(self._compiled, *copied, None, self.source)

    def without(self, indexes: Set[int]) -> Self:
        """Return all records but some, which share the page."""
        first, left = self._first, bytearray()
        gaps = [-1, *sorted(indexes), len(self)]
        for before, after in pairwise(gaps):
            left += self._index[
                (first + before + 1) * ENTRY_BYTES : (first + after) * ENTRY_BYTES
            ]
        return type(self)(self._compiled, self._body, bytes(left), None, self.source)

    def columns(self) -> Buffers:
        """Return the records as the buffers of Arrow. This copies them."""
        return Buffers(*self._compiled.columns(*self._part))

    def opened(
        self,
        first: int,
        prefix: bytes,
        is_intact: Callable[[memoryview], bool],
        most: tuple[int, int],
    ) -> tuple[Self, int, set[str]]:
        """Return records from ``first`` on, with user records in place of aggregates.

        The data of aggregates begin with a prefix. The records are a copy. They end as
        soon as there are at least as many records, or bytes of opened data, as ``most``
        says. They also end before an aggregate that is not intact, or that only objects
        can represent. Also return the index of this end, and the explicit hash keys of
        the aggregates.
        """
        view = memoryview(self._body)
        body, index, stop, hash_keys = self._compiled.open_aggregates(
            self._body,
            self._index,
            self._first + first,
            self._stop,
            prefix,
            *most,
            lambda begin, end: is_intact(view[begin:end]),
        )
        records = type(self)(self._compiled, body, index, None, self.source)
        return records, stop - self._first, hash_keys

    @property
    def _part(self) -> tuple[Body, bytes, int, int]:
        return self._body, self._index, self._first, self._stop

    def __len__(self) -> int:
        return self._stop - self._first

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return [self[at] for at in range(start, stop, step)]
            return self._between(start, max(start, stop))
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        at = self._first + index
        made = self._compiled.iterate(
            self._body, self._index, at, at + 1, Record, self.source
        )
        return next(made)

    def __iter__(self) -> Iterator[Record]:
        return self._compiled.iterate(*self._part, Record, self.source)

    def _between(self, start: int, stop: int) -> Self:
        first = self._first
        between = first + start, first + stop
        return type(self)(
            self._compiled,
            self._body,
            self._index,
            between,
            self.source,
            has_aggregates=self.has_aggregates,
        )
