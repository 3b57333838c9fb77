"""The embedded AWS in a thread of its own, for tests that aren't async."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.local.server import EmbeddedAws


@contextmanager
def background(aws: EmbeddedAws) -> Iterator[EmbeddedAws]:
    """Serve from a thread while the block runs."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(
        target=lambda: asyncio.run(_serve(aws, started)), name="kinesumer-local"
    )
    thread.start()
    try:
        loop, stop = started.result()
        try:
            yield aws
        finally:
            loop.call_soon_threadsafe(stop.set)
    finally:
        thread.join()


async def _serve(
    aws: EmbeddedAws,
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    stop = asyncio.Event()
    try:
        await aws.__aenter__()
    except BaseException as error:
        started.set_exception(error)
        return
    try:
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
    finally:
        await aws.__aexit__()
