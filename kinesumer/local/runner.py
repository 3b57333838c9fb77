"""Two ways to keep the embedded AWS running: a thread for tests, a command."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.local.server import EmbeddedAws


async def serve(aws: EmbeddedAws, out: TextIO) -> None:
    """Serve until SIGINT or SIGTERM; first write the lines that point a shell here."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with aws:
        for name, value in aws.environment().items():
            out.write(f"export {name}={value}\n")
        out.write("unset AWS_PROFILE AWS_SESSION_TOKEN\n")
        out.flush()
        await stop.wait()


@contextmanager
def background(aws: EmbeddedAws) -> Iterator[EmbeddedAws]:
    """Serve from a thread while the block runs."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(
        target=lambda: asyncio.run(_run(aws, started)), name="kinesumer-local"
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


async def _run(
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
