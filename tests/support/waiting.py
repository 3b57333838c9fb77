"""Wait until a condition holds, in real time or in that of the running event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0  # far longer than any condition needs on a busy machine


def wait_until(happened: Callable[[], object], what: str = "") -> None:
    """Wait until a condition holds. Fail after a timeout."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"it doesn't happen: {what}"
        time.sleep(0.02)


async def until(
    happened: Callable[[], object], seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until a condition holds, while tasks run. Fail after a timeout."""
    async with asyncio.timeout(seconds):
        while not happened():
            await asyncio.sleep(0.01)
