"""An event loop whose time jumps, for code that needs asyncio's own event loop."""

from __future__ import annotations

import asyncio
from selectors import DefaultSelector
from typing import Any

EPOCH = 1_700_000_000.0


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which jumps to the next timer. It is a clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        super().__init__(JumpingSelector(self))

    def time(self) -> float:
        return self.seconds

    now = time

    def wall(self) -> float:
        return EPOCH + self.seconds


class JumpingSelector(DefaultSelector):
    """Advances its loop's time in place of waiting for the next timer."""

    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None:
            self._loop.seconds += timeout
            timeout = 0.0
        return super().select(timeout)
