"""A network cable between one client and AWS that can fail in several ways."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Literal
from urllib.parse import urlsplit

# ``cut``: connections break, and no new ones can be made.
# ``silent``: data is lost in both directions, without an error.
# ``one-way``: requests arrive, but answers are lost.
State = Literal["whole", "cut", "silent", "one-way"]
# How often the loop runs between accepting a connection and calling _connect().
ACCEPTING_TURNS = 3


class Cable:
    """Forwards data from its port to AWS, on a thread of its own."""

    def __init__(self, url: str) -> None:
        self.state: State = "whole"
        place = urlsplit(url)
        self._target = place.hostname, place.port
        self._streams: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]]
        self._ready = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()

    @property
    def url(self) -> str:
        # A name, so that clients have to look it up.
        return f"http://localhost:{self._ready.result()[2]}"

    def set(self, state: State) -> None:
        """Set the cable's state. ``cut`` and ``whole`` break existing connections."""
        if state in ("cut", "whole"):
            self._ready.result()[0].call_soon_threadsafe(self._break)
        self.state = state

    def close(self) -> None:
        loop, over, _ = self._ready.result()
        loop.call_soon_threadsafe(over.set)
        self._thread.join()

    async def _serve(self) -> None:
        over = asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self._ready.set_result((asyncio.get_running_loop(), over, port))
        await over.wait()
        self.state = "cut"
        # A connection that was just accepted would stay open if the server closed now.
        asyncio.get_running_loop().remove_reader(server.sockets[0])
        for _turn in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        server.close()
        self._break()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _break(self) -> None:
        for stream in self._streams:
            stream.transport.abort()
        self._streams.clear()

    def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._streams.add(writer)
        if self.state == "cut":
            writer.transport.abort()
        else:
            self._start(self._forward(reader, writer))

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            there = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._streams.add(there[1])
        self._start(self._pump(reader, there[1], ("silent",)))
        self._start(self._pump(there[0], writer, ("silent", "one-way")))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
            pass  # the cable was cut
        finally:
            writer.transport.abort()
            self._streams.discard(writer)
