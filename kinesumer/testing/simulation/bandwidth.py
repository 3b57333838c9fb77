"""A network link with limited bandwidth, which the answers in transit share."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.testing.simulation.event_loop import VirtualLoop


@dataclass(eq=False, slots=True)
class Transfer:
    """An answer on its way over the link."""

    size: int
    arrived: Callable[[], None]
    # True if the answer has arrived or the client has closed the connection.
    is_over: bool = False


class SharedLink:
    """Carries several answers at once. Each gets an equal share of the bandwidth.

    The bandwidth is unlimited if ``bytes_per_second`` is 0.
    """

    def __init__(self, loop: VirtualLoop, bytes_per_second: float = 0.0) -> None:
        self.bytes_per_second: float = bytes_per_second
        # Total size of the answers in transit.
        self.bytes_in_flight: int = 0
        # A function to call when a transfer starts.
        self.changed: Callable[[], None] = lambda: None
        self._loop = loop
        # A heap of transfers: the value of ``_share`` at which the transfer will be
        # complete, a tie-breaker, and the transfer.
        self._under_way: list[tuple[float, int, Transfer]] = []
        self._active = 0
        # Bytes that a transfer would have received if it had started with the first
        # one.
        self._share = 0.0
        self._shared_at = 0.0
        self._ties = count()
        # The number of the latest timer. Earlier timers do nothing when they fire.
        self._plans = 0

    def carry(self, size: int, arrived: Callable[[], None]) -> Transfer:
        """Start an answer's transfer. Call ``arrived`` when it is complete."""
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
        """End a transfer early, since the client has closed the connection."""
        if not transfer.is_over:
            self._count_up()
            self._end(transfer)
            self._plan()

    def set_rate(self, bytes_per_second: float) -> None:
        """Change the bandwidth. 0 means no limit."""
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
        """Set a timer for the next arrival. It replaces earlier timers."""
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
