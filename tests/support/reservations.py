"""Reserve memory for responses, and note for which sizes it has to grow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kinesumer.ports import ReservedForAny


class Room(ReservedForAny):
    """A reservation of some bytes, and the sizes that it was asked to grow to.

    If ``wait`` is given, growing takes as long, and raises what it raises.
    """

    def __init__(
        self, size: int = 0, wait: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self.size, self.wait = size, wait
        self.asked: list[int | None] = []

    def covers(self, size: int | None) -> bool:
        return size is not None and size <= self.size

    def shrink(self, size: int) -> None:
        self.size = size

    async def grow(self, size: int | None) -> None:
        self.asked.append(size)
        if self.wait is not None:
            await self.wait()
