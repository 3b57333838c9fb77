"""Write the events of a replay as lines for people."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple


class Event(NamedTuple):
    """Something that happened, at a virtual time."""

    at: float
    what: str  # did, told, says, stopped, user or DIVERGED
    text: str


class Timeline(logging.Handler):
    """Collects events. As a handler of logging, it collects what the client logs."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(logging.INFO)
        self.events: list[Event] = []
        self._now = now
        self._records: Counter[str] = Counter()
        self._pages: Counter[str] = Counter()

    def note(self, what: str, text: str) -> None:
        """Add an event, after the pages that came before it."""
        self._show_pages()
        self.events.append(Event(self._now(), what, text))

    def count_page(self, shard_id: str, records: int) -> None:
        """Add a page with its records to the next event about the shard."""
        self._pages[shard_id] += 1
        self._records[shard_id] += records

    def emit(self, record: logging.LogRecord) -> None:
        """Add what the client logs."""
        self.note("says", record.getMessage())

    def lines(self) -> list[str]:
        """Return the events as text."""
        self._show_pages()
        return [f"{at:10.3f} s  {what:<8}  {text}" for at, what, text in self.events]

    def _show_pages(self) -> None:
        for shard_id, pages in sorted(self._pages.items()):
            if records := self._records[shard_id]:
                text = f"{shard_id}: {records:,} records in {pages:,} pages"
                self.events.append(Event(self._now(), "told", text))
        self._pages.clear()
        self._records.clear()
