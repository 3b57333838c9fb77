"""Read a shard by subscriptions, as a client does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from kinesumer.errors import ExpiredIteratorError, SourceUnavailableError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import StreamSource
from kinesumer.testing.trial.acceptance.check import CheckFailedError
from kinesumer.testing.trial.acceptance.contract.streams import ARRIVAL_SECONDS


class SubscriptionReader:
    """Reads a shard as a client does, and keeps what it gets.

    All waits end with TimeoutError after ``deadline_seconds``. Every refusal is retried
    soon, so that a check sees the first moment at which the service permits a call.
    """

    def __init__(
        self,
        source: StreamSource,
        shard_id: str,
        after: Position | Start = Start.TRIM_HORIZON,
        deadline_seconds: float = ARRIVAL_SECONDS,
    ) -> None:
        self.texts: list[str] = []
        self.errors: list[SourceUnavailableError] = []
        self.children: Sequence[Shard] = ()
        # For each iterator, true if it was pushed.
        self.modes: list[bool] = []
        self.events = 0
        self._source, self._shard_id, self._after = source, shard_id, after
        self._changed = asyncio.Event()
        self._deadline = asyncio.get_running_loop().time() + deadline_seconds
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def until(self, count: int) -> list[str]:
        """Wait for some records, and return all. Raise the error of the reading."""
        while len(self.texts) < count:
            await self.change()
        return self.texts

    async def change(self) -> None:
        """Wait for the next page or error. Raise a fatal error."""
        if self._task.done():
            self._task.result()
            raise CheckFailedError(f"the shard has ended after {self.texts}")
        self._changed.clear()
        async with asyncio.timeout_at(self._deadline):
            await self._changed.wait()

    async def end(self) -> Sequence[Shard]:
        """Wait for the shard's end, and return its children."""
        async with asyncio.timeout_at(self._deadline):
            await self._task
        return self.children

    async def stop(self) -> None:
        """Stop reading."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        iterator: str | None = None
        try:
            while True:
                try:
                    if iterator is None:
                        iterator = await self._find()
                    page = await self._source.get_records(iterator, 10_000)
                except ExpiredIteratorError:
                    iterator = None
                    continue
                except SourceUnavailableError as error:
                    self.errors.append(error)
                    self._changed.set()
                    iterator = None
                    await asyncio.sleep(0.02)
                    continue
                self.texts += [record.data.decode() for record in page.records]
                self.events += 1
                if page.records:
                    self._after = Position(page.records[-1].sequence_number)
                self._changed.set()
                iterator = page.next_iterator
                if iterator is None:
                    self.children = page.children
                    return
        finally:
            self._source.release(self._shard_id)

    async def _find(self) -> str:
        iterator = await self._source.get_iterator(self._shard_id, self._after)
        self.modes.append(self._source.is_pushed(iterator))
        return iterator
