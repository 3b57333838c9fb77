"""A network cable between one client and AWS, to be cut in several ways."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Literal

State = Literal["whole", "cut", "silent", "one-way"]
"""
- ``cut``: connections break, and none can be made
- ``silent``: nothing arrives, and nobody is told
- ``one-way``: requests arrive, answers don't
"""


class Cable:
    """Passes on what is sent to its port, from a thread of its own."""

    def __init__(self, port: int) -> None:
        self.state: State = "whole"
        self._target = port
        self._streams: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]]
        self._ready = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()

    @property
    def url(self) -> str:
        """The endpoint at this end of the cable."""
        return f"http://127.0.0.1:{self._ready.result()[2]}"

    def set(self, state: State) -> None:
        """Put the cable in a state; connections that suffered don't survive repair."""
        if state in ("cut", "whole"):
            self._ready.result()[0].call_soon_threadsafe(self._break)
        self.state = state

    def close(self) -> None:
        """Stop the thread."""
        loop, over, _ = self._ready.result()
        loop.call_soon_threadsafe(over.set)
        self._thread.join()

    async def _serve(self) -> None:
        over = asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self._ready.set_result((asyncio.get_running_loop(), over, port))
        await over.wait()
        server.close()
        self._break()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def _break(self) -> None:
        for stream in self._streams:
            stream.transport.abort()
        self._streams.clear()

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._streams.add(writer)
        if self.state == "cut":
            writer.transport.abort()
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except asyncio.CancelledError:
            return  # the thread ends; Python 3.11 shows the cancellation as an error
        self._streams.add(there[1])
        for task in (
            asyncio.create_task(self._pump(reader, there[1], ("silent",))),
            asyncio.create_task(self._pump(there[0], writer, ("silent", "one-way"))),
        ):
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lost_in: tuple[State, ...],
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if self.state not in lost_in:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass  # it was cut
        finally:
            writer.transport.abort()
            self._streams.discard(writer)
