"""Handlers that a worker's ``run()`` calls; each writes down what it handled."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from kinesumer import Batch, Middleware, Record, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer import Kinesumer, Start, Stream
    from kinesumer.dead_letters import DeadLetter
    from tests.system.process.worker import Journal, Orders, Settings

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

BAD_EVERY = 50
"""One record of so many fails at every call."""


class BadRecordError(Exception):
    """A record that no handler takes."""


class Calls:
    """What handlers and the target of dead letters have in common."""

    def __init__(
        self, orders: Callable[[], Orders], delay: float, journal: Journal
    ) -> None:
        self._orders, self._delay, self._journal = orders, delay, journal
        self._bad: dict[str, Record] = {}

    async def run(
        self,
        client: Kinesumer,
        streams: list[Stream],
        start: Start,
        settings: Settings,
    ) -> None:
        """Let the client call the handler that the settings name."""
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
        )

    async def record(self, record: Record) -> None:
        """Handle a record."""
        began = now()
        await asyncio.sleep(self._seconds)
        self._check([record])
        self._journal.record(record, began)

    def thread(self, record: Record) -> None:
        """Handle a record in a thread."""
        began = now()
        time.sleep(self._seconds)
        self._check([record])
        self._journal.record(record, began)

    async def batch(self, batch: Batch) -> None:
        """Handle a batch: all of it or nothing."""
        began = now()
        await asyncio.sleep(self._seconds)
        self._check(batch.records)
        for record in batch.records:
            self._journal.record(record, began)

    async def bury(self, letter: DeadLetter) -> None:
        """Keep a record that couldn't be handled: it counts as handled."""
        self._journal.event("dead letter", letter.data.decode())
        self._journal.record(self._bad.pop(letter.data.decode()), now())

    @property
    def _seconds(self) -> float:
        return self._orders().delay or self._delay

    def _check(self, records: list[Record]) -> None:
        for record in records:
            text = record.data.decode()
            if int(text.partition(" ")[0]) % BAD_EVERY == BAD_EVERY - 1:
                self._bad[text] = record
                raise BadRecordError(text)
