"""A network link with limited bandwidth, which the answers in transit share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kinesumer.aws import kinesis
from kinesumer.errors import SlowAnswerError
from kinesumer.runtime.tasks import timeout
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.machine import Handle


@dataclass(eq=False, slots=True)
class Transfer:
    """An answer on its way over the link."""

    size: int
    arrived: Callable[[], None]
    left_bytes: float


class SharedLink:
    """Carries several answers at once. Each gets an equal share of the bandwidth.

    The bandwidth is unlimited if ``bytes_per_second`` is 0.
    """

    def __init__(self, loop: VirtualLoop, bytes_per_second: float = 0.0) -> None:
        self.bytes_per_second: float = bytes_per_second
        # A function to call when a transfer starts.
        self.changed: Callable[[], None] = lambda: None
        self._loop = loop
        self._under_way: list[Transfer] = []
        self._counted_at = 0.0
        self._next_arrival: Handle | None = None

    @property
    def bytes_in_flight(self) -> int:
        """The total size of the answers in transit."""
        return sum(transfer.size for transfer in self._under_way)

    async def arrival(self, size: int) -> None:
        """Wait until an answer has arrived. Raises SlowAnswerError if it is late."""
        future: asyncio.Future[None] = self._loop.create_future()
        transfer = self.carry(size, partial(_complete, future))
        try:
            async with timeout(kinesis.ANSWER_SECONDS):
                await future
        except TimeoutError:
            raise SlowAnswerError("timed out while the answer arrived") from None
        finally:
            self.drop(transfer)

    def carry(self, size: int, arrived: Callable[[], None]) -> Transfer:
        """Start an answer's transfer. Call ``arrived`` when it is complete."""
        self._count_down()
        transfer = Transfer(size, arrived, size)
        self._under_way.append(transfer)
        self._plan()
        self.changed()
        return transfer

    def drop(self, transfer: Transfer) -> None:
        """End a transfer, if it isn't over, since the client closes the connection."""
        if transfer in self._under_way:
            self._count_down()
            self._under_way.remove(transfer)
            self._plan()

    def set_rate(self, bytes_per_second: float) -> None:
        """Change the bandwidth. 0 means no limit."""
        self._count_down()
        self.bytes_per_second = bytes_per_second
        self._plan()

    def _count_down(self) -> None:
        """Subtract what each transfer has received since the last call."""
        seconds, self._counted_at = self._loop.real - self._counted_at, self._loop.real
        for transfer in self._under_way:
            share = self.bytes_per_second / len(self._under_way)
            transfer.left_bytes -= seconds * share

    def _plan(self) -> None:
        """Set a timer for the next arrival, in place of the former timer."""
        if self._next_arrival is not None:
            self._next_arrival.cancel()
        if self._under_way:
            first = min(self._under_way, key=lambda transfer: transfer.left_bytes)
            seconds = 0.0
            if rate := self.bytes_per_second:
                seconds = max(0.0, first.left_bytes) * len(self._under_way) / rate
            when = self._loop.real + seconds
            self._next_arrival = self._loop.at_real(when, self._arrive, first)

    def _arrive(self, transfer: Transfer) -> None:
        self.drop(transfer)
        transfer.arrived()


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
