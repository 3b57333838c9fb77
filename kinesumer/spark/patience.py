"""Trying again what Kinesis refuses for the moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kinesumer.errors import ExpiredIteratorError, SourceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.ports import Clock

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""How long Kinesis may go without an answer before the query fails."""
FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0


async def patiently(call: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Return what a call returns, trying again for a bounded time."""
    deadline = clock.now() + PATIENCE_SECONDS
    wait = FIRST_WAIT
    while True:
        try:
            return await call()
        except (SourceUnavailableError, ExpiredIteratorError):
            if clock.now() + wait > deadline:
                raise
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
