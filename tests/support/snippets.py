"""Run the code blocks of pages with user code that says when it was called enough."""

from __future__ import annotations

import ast
import asyncio
import inspect
from typing import Any

from tests.support.clock import PATIENCE_SECONDS


class Until:
    """User code for a snippet. It accepts any call, and sets an event after enough."""

    def __init__(self, count: int = 1) -> None:
        self.seen: list[Any] = []
        self.enough = asyncio.Event()
        self._count = count

    async def __call__(self, *items: Any) -> None:
        self.seen.append(items[0] if len(items) == 1 else items)
        if len(self.seen) >= self._count:
            self.enough.set()


async def play(text: str, names: dict[str, Any], enough: asyncio.Event) -> None:
    """Run a snippet until its user code says that it was called often enough."""
    task = asyncio.ensure_future(evaluated(text, names))
    waiting = asyncio.ensure_future(enough.wait())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        task.cancel()
    waiting.cancel()
    await asyncio.gather(task, waiting, return_exceptions=True)
    if not task.cancelled():
        task.result()


async def evaluated(text: str, names: dict[str, Any]) -> None:
    code = compile(text, "snippet", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, names)
    if inspect.isawaitable(found):
        await found
