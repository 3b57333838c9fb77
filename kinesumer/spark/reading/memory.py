"""Memory of a reading task: its byte budget, and freed pages of the C library."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

MIN_WAITING_BYTES, MAX_WAITING_BYTES = 16_000_000, 64_000_000
WAITING_BYTES_PER_SHARD = 2_000_000
"""The limit of AWS: bytes per second and shard."""
WAITING_SHARE = 1 / 8
"""The share of the memory that Spark allows a worker. Decoding needs more of it."""


def max_waiting_bytes(shards: int, memory_bytes: int | None) -> int:
    """Return the byte budget of a task that reads so many shards.

    ``memory_bytes`` is the memory limit of the process, or None.
    """
    most = MAX_WAITING_BYTES
    if memory_bytes is not None:
        most = min(most, int(memory_bytes * WAITING_SHARE))
    return max(MIN_WAITING_BYTES, min(most, shards * WAITING_BYTES_PER_SHARD))


class ByteBudget:
    """A budget of bytes, granted in the order of requests.

    A request that exceeds the whole budget waits until nothing else is reserved.
    """

    def __init__(self, size: int, future: Callable[[], asyncio.Future[None]]) -> None:
        self._size, self._used = size, 0
        self._future = future
        self._asking: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used(self) -> int:
        """Bytes that are reserved."""
        return self._used

    async def reserve(self, size: int) -> None:
        """Reserve bytes, as soon as they are free."""
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
        """Return bytes to the budget. A negative size takes more than was reserved."""
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
    """Make glibc retain freed memory. Do nothing with other C libraries.

    A page takes some buffers of megabytes. If glibc returns them to the kernel, each
    costs a page fault per 4 KB: half the CPU time of reading records of 1 KB.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
