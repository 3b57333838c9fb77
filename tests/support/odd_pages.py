"""Provide a source in memory whose pages may lack an iterator, or have expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import ExpiredIteratorError
from kinesumer.testing.simulation.memory_kinesis import MemorySource

if TYPE_CHECKING:
    from kinesumer.model.records import Page
    from kinesumer.testing.simulation.memory_kinesis import MemoryKinesis


class OddPages(MemorySource):
    """A source whose answers to GetRecords look like a shard's end when told to."""

    def __init__(self, kinesis: MemoryKinesis, name: str) -> None:
        super().__init__(kinesis, name)
        # The number of next answers without an iterator and children.
        self.without_iterator: float = 0
        # The number of next reads whose iterators have expired.
        self.expired: float = 0

    def get_records_now(self, iterator: str, limit: int) -> Page:
        """Return the next page as Kinesis answers it."""
        if self.expired:
            self.expired -= 1
            raise ExpiredIteratorError("the iterator is too old")
        page = super().get_records_now(iterator, limit)
        if self.without_iterator:
            self.without_iterator -= 1
            page = page._replace(next_iterator=None, children=())
        return page
