"""A network link of limited bandwidth, which answers share while they arrive."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.simulation.event_loop import VirtualLoop


class Transfer:
    """An answer in transit."""

    __slots__ = ("arrived", "is_over", "size")

    def __init__(self, size: int, arrived: Callable[[], None]) -> None:
        self.size = size
        self.arrived = arrived
        self.is_over = False
        """Whether it has arrived, or the client has closed the connection."""


class SharedLink:
    """Carries answers at the same time, each with an equal share of the bandwidth.

    ``bytes_per_second`` is 0 where there is no limit.
    """

    def __init__(self, loop: VirtualLoop, bytes_per_second: float = 0.0) -> None:
        self.bytes_per_second = bytes_per_second
        self.bytes_in_flight = 0
        """Size of all answers in transit."""
        self.changed: Callable[[], None] = _nothing
        """Called when another answer is in transit."""
        self._loop = loop
        self._under_way: list[tuple[float, int, Transfer]] = []
        """Ordered by the share at which each transfer is complete."""
        self._active = 0
        self._share = 0.0
        """Bytes that a transfer has received if it has run since the start."""
        self._shared_at = 0.0
        self._ties = count()
        self._plans = 0

    def carry(self, size: int, arrived: Callable[[], None]) -> Transfer:
        """Begin to carry an answer, and call ``arrived`` when it is complete."""
        self._count_up()
        transfer = Transfer(size, arrived)
        end = self._share + size
        heapq.heappush(self._under_way, (end, next(self._ties), transfer))
        self._active += 1
        self.bytes_in_flight += size
        self._plan()
        self.changed()
        return transfer

    def drop(self, transfer: Transfer) -> None:
        """Stop carrying an answer, since the client has closed the connection."""
        if not transfer.is_over:
            self._count_up()
            self._end(transfer)
            self._plan()

    def set_rate(self, bytes_per_second: float) -> None:
        """Set the bandwidth from now on (0: no limit)."""
        self._count_up()
        self.bytes_per_second = bytes_per_second
        self._plan()

    def _count_up(self) -> None:
        now, rate = self._loop.real, self.bytes_per_second
        if self._active and rate:
            self._share += (now - self._shared_at) * rate / self._active
        self._shared_at = now

    def _end(self, transfer: Transfer) -> None:
        transfer.is_over = True
        self._active -= 1
        self.bytes_in_flight -= transfer.size

    def _plan(self) -> None:
        """Set a timer for the next arrival, in place of earlier timers."""
        while self._under_way and self._under_way[0][2].is_over:
            heapq.heappop(self._under_way)
        self._plans += 1
        if self._under_way:
            wait = 0.0
            if rate := self.bytes_per_second:
                left = self._under_way[0][0] - self._share
                wait = max(0.0, left) * self._active / rate
            self._loop.at_real(self._loop.real + wait, self._arrive, self._plans)

    def _arrive(self, plan: int) -> None:
        if plan != self._plans:
            return
        self._count_up()
        _, _, transfer = heapq.heappop(self._under_way)
        self._end(transfer)
        transfer.arrived()
        self._plan()


def _nothing() -> None:
    pass
