"""Receive the events of subscriptions that AWS's own client has begun."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.exceptions import EventStreamError

from kinesumer.testing import EmbeddedAws

DELIVERY_SECONDS = 0.07
DEADLINE_SECONDS = 10.0
# What is not sent within this time is not sent: the server's clock stands still.
SILENCE_SECONDS = 0.1


class Events:
    """Receives the events of one subscription in the background."""

    def __init__(self, stream: Any) -> None:
        self.received: list[dict[str, Any]] = []
        self._stream = stream
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._receive())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def first(self, count: int) -> list[dict[str, Any]]:
        """Wait for some events, and return them."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.received) < count:
                if self._task.done():
                    self._task.result()
                    raise AssertionError(f"it ended after {self.received}")
                self._changed.clear()
                await self._changed.wait()
        return self.received[:count]

    async def data(self, count: int) -> list[bytes]:
        """Wait for some records, and return all of their data."""
        events = 0
        while len(self.data_now) < count:
            events += 1
            await self.first(events)
        return self.data_now

    @property
    def data_now(self) -> list[bytes]:
        """The data of the records that have been received."""
        return [record["Data"] for each in self.received for record in each["Records"]]

    async def silence(self) -> int:
        """Return the number of events when no more arrive."""
        count = -1
        while count != len(self.received):
            count = len(self.received)
            await asyncio.sleep(SILENCE_SECONDS)
        assert not self._task.done()
        return count

    async def end(self) -> None:
        """Wait for the end of the subscription. Raise the error that ended it."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.shield(self._task)

    async def failure(self) -> str:
        """Wait for the exception that ends the subscription, and return its code."""
        with pytest.raises(EventStreamError) as caught:
            await self.end()
        code: str = caught.value.response["Error"]["Code"]
        return code

    async def stop(self) -> None:
        """Close the connection."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._stream.close()

    async def _receive(self) -> None:
        async for event in self._stream:
            self.received.append(event["SubscribeToShardEvent"])
            self._changed.set()


def put(aws: EmbeddedAws, *texts: bytes) -> list[str]:
    """Put records that can be delivered at once. Return their sequence numbers."""
    numbers = [aws.put("orders", text, explicit_hash_key=0)[1] for text in texts]
    aws.advance(DELIVERY_SECONDS)
    return numbers
