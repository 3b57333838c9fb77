"""How much may wait between fetching and Spark."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

MIN_WAITING_BYTES, MAX_WAITING_BYTES = 16_000_000, 64_000_000
WAITING_BYTES_PER_SHARD = 2_000_000
"""What AWS gives of a shard in a second."""
WAITING_SHARE = 1 / 8
"""Of the memory that Spark allows a worker; rows take more of it on their way."""


def max_waiting_bytes(shards: int, memory_bytes: int | None) -> int:
    """Return how much may wait in a task that reads so many shards.

    ``memory_bytes`` is what the worker's process may use, None if it is not limited.
    """
    most = MAX_WAITING_BYTES
    if memory_bytes is not None:
        most = min(most, int(memory_bytes * WAITING_SHARE))
    return max(MIN_WAITING_BYTES, min(most, shards * WAITING_BYTES_PER_SHARD))


class ByteBudget:
    """So many bytes, given in the order of asking. A request larger than all waits
    until it is alone."""

    def __init__(self, size: int, future: Callable[[], asyncio.Future[None]]) -> None:
        self._size, self._used = size, 0
        self._future = future
        self._asking: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used(self) -> int:
        """Bytes that are taken."""
        return self._used

    async def reserve(self, size: int) -> None:
        """Wait until so many bytes are free, and take them."""
        if not self._asking and self._fits(size):
            self._used += size
            return
        asked = (size, self._future())
        self._asking.append(asked)
        try:
            await asked[1]
        except BaseException:
            if asked in self._asking:
                self._asking.remove(asked)
            else:
                self._used -= size
            self.release(0)
            raise

    def release(self, size: int) -> None:
        """Give bytes back; a negative size takes more than was reserved."""
        self._used -= size
        while self._asking and self._fits(self._asking[0][0]):
            size, granted = self._asking.popleft()
            self._used += size
            granted.set_result(None)

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._size


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 48 * 1024 * 1024
LARGE_BYTES = 16 * 1024 * 1024


def retain_freed_memory() -> None:
    """Let a C library that is glibc keep freed memory; others do as they like."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
