"""Doing something with many shards at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")

PARALLEL = 256


async def each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do something with all items, many at once. The first error ends it."""
    waiting = list(items)
    queue = iter(waiting)

    async def worker() -> None:
        for item in queue:
            await work(item)

    tasks = [asyncio.ensure_future(worker()) for _ in waiting[:PARALLEL]]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
