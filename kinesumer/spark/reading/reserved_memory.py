"""Memory for a page that a task reads, which the task's budget has reserved."""

from __future__ import annotations


class ReservedMemory:
    """Memory for a response of any size."""

    def covers(self, _size: int | None) -> bool:
        """Return True."""
        return True

    def shrink(self, _size: int) -> None:
        """Do nothing: the task releases the memory after it has decoded the page."""

    async def grow(self, _size: int | None) -> None:
        """Do nothing."""
