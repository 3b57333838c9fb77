"""Handlers for a worker's ``run()``. Each handler records what it handled."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from kinesumer import Batch, Middleware, Record, RetryPolicy
from kinesumer.testing.trial.journal import JournalWriter, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer import Kinesumer, Start, Stream
    from kinesumer.dead_letters import DeadLetter
    from tests.system.process.worker import Orders, Settings

BAD_EVERY = 50  # every 50th record always fails


class BadRecordError(Exception):
    """A record at which every handler fails."""


class Calls:
    """The handlers and their target of dead letters, which share state."""

    def __init__(
        self, orders: Callable[[], Orders], settings: Settings, journal: JournalWriter
    ) -> None:
        self._orders, self._settings, self._journal = orders, settings, journal
        self._bad: dict[str, Record] = {}

    async def run(
        self,
        client: Kinesumer,
        streams: list[Stream],
        start: Start,
        callbacks: dict[str, Any],
    ) -> None:
        settings = self._settings
        handlers: dict[str, Any] = {
            "record": self.record,
            "thread": self.thread,
            "batch": self.batch,
        }
        await client.run(
            streams,
            handlers[settings.runs],
            start=start,
            concurrency=settings.concurrency,
            dead_letters=self.bury,
            retries=RetryPolicy(max_attempts=2, initial_delay_seconds=0.05),
            middleware=[Middleware()],
            **callbacks,
        )

    async def record(self, record: Record) -> None:
        began = now()
        await asyncio.sleep(self._seconds)
        self._check([record])
        self._journal.record(record, began)

    def thread(self, record: Record) -> None:
        began = now()
        time.sleep(self._seconds)
        self._check([record])
        self._journal.record(record, began)

    async def batch(self, batch: Batch) -> None:
        began = now()
        await asyncio.sleep(self._seconds)
        self._check(batch.records)
        for record in batch.records:
            self._journal.record(record, began)

    async def bury(self, letter: DeadLetter) -> None:
        """Note in the journal that a failed record counts as handled."""
        text = letter.data.decode()
        self._journal.note("dead letter", text)
        if text in self._bad:  # else the record has killed its processes
            self._journal.record(self._bad.pop(text), now())

    @property
    def _seconds(self) -> float:
        return self._orders().delay or self._settings.delay

    def _check(self, records: list[Record]) -> None:
        from tests.system.process.worker import die_of

        if self._settings.deadly:
            die_of(records, self._settings, self._journal)
            return
        for record in records:
            text = record.data.decode()
            if int(text.partition(" ")[0]) % BAD_EVERY == BAD_EVERY - 1:
                self._bad[text] = record
                raise BadRecordError(text)
