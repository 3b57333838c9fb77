"""Open event streams, and receive their frames as their reader takes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator

from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.connection import (
    CHUNKED,
    Answer,
    Connection,
    MalformedAnswerError,
    read_framing,
)
from kinesumer.aws.http.pool import Address, Connector
from kinesumer.errors import SourceUnavailableError
from kinesumer.runtime.tasks import Countdown, timeout
from kinesumer.wire.cbor import Buffer
from kinesumer.wire.event_stream import Frame, FrameReader

# AWS sends an event every few seconds, even if there are no records. Chosen: after this
# time, several events are missing.
SILENCE_SECONDS = 20.0
# The longest wait for a byte before a connection counts as broken. The reader notices
# silence earlier.
READ_SECONDS = 3 * SILENCE_SECONDS
# So many bytes are examined in one step of the event loop. The smallest chunk has six,
# and the smallest frame has 16.
STEP_BYTES = 16 * 1024


class FrameQueue:
    """The frames that have arrived and that the reader has not taken.

    While a complete frame waits or is in use, ``pause`` stops the receiving. So a slow
    reader holds one event and a part of the next one, and AWS stops sending.
    """

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._pause, self._resume = pause, resume
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()
        self._changed = asyncio.Event()
        self._is_paused = False
        self._ended = False
        self._error: BaseException | None = None
        self._silence: Countdown | None = None  # while the reader waits

    def feed(self, data: Buffer) -> None:
        """Add received bytes. Raise SourceUnavailableError if a frame is corrupt."""
        if self._ended:
            return  # an event after a corrupt one would leave a gap
        if self._silence is not None:
            self._silence.restart()
        self._frames.extend(self._reader.frames(data))
        if self._frames and not self._is_paused:
            self._is_paused = True
            self._pause()
            self._changed.set()

    @property
    def missing_bytes(self) -> int:
        """The bytes that the current frame, or its prelude, still lacks."""
        return self._reader.missing_bytes

    def end(self, error: BaseException | None = None) -> None:
        """Note the end of the stream, or the error that ended it."""
        if not self._ended:
            if error is None and self._reader.pending_bytes:
                error = ConnectionResetError("closed in the middle of a frame")
            self._ended, self._error = True, error
            self._changed.set()

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end. Raise the stream's error.

        Raise TimeoutError if nothing arrives for SILENCE_SECONDS.
        """
        while not self._frames:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return None
            if self._is_paused:
                self._is_paused = False
                self._resume()
            self._changed.clear()
            async with timeout(SILENCE_SECONDS) as self._silence:
                await self._changed.wait()
            self._silence = None
        return self._frames.popleft()


class RefusedError(Exception):
    """The server refused a request, with a status and a body."""

    status: int
    body: bytes | bytearray

    def __init__(self, status: int, body: bytes | bytearray) -> None:
        super().__init__(f"HTTP status {status}")
        self.status, self.body = status, body


class EventStream(Connection):
    """A connection that sends one request and receives its event stream.

    It receives the stream into ``shared``.
    """

    def __init__(self, shared: bytearray) -> None:
        super().__init__(READ_SECONDS)
        self._shared = shared
        self._queue = FrameQueue(self._pause, self._resume)
        self._begun = self._loop.create_future()
        self._asking: asyncio.Task[Answer]

    def send(self, request: bytes) -> None:
        """Send the request, and begin to receive its response."""
        self._asking = self._loop.create_task(self.ask(request))
        self._asking.add_done_callback(self._ended)

    async def begin(self) -> None:
        """Wait for the response's head. Raise RefusedError if its status is not 200."""
        await self._begun

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end.

        Raise OSError if the connection breaks or is silent, and SourceUnavailableError
        if a frame is corrupt.
        """
        return await self._queue.next()

    def close(self) -> None:
        """Close the connection."""
        self._asking.cancel()
        self.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed and its task has ended."""
        await self.lost
        await asyncio.wait([self._asking])

    def _ended(self, asking: asyncio.Task[Answer]) -> None:
        error: BaseException | None = None
        if asking.cancelled():
            error = ConnectionAbortedError("the subscription was closed")
        elif (error := asking.exception()) is None:
            answer = asking.result()
            if answer.status != 200:
                error = RefusedError(answer.status, answer.body)
        self._queue.end(error)
        if not self._begun.done():
            self._begun.set_exception(error or MalformedAnswerError("no event stream"))
            self._begun.exception()  # mark as seen, if no task waits
        self.abort()

    def _body(
        self, status: int, head: bytes, early: bytes
    ) -> Generator[None, None, bytearray]:
        if status != 200:
            return (yield from super()._body(status, head, early))
        framing = read_framing(head)
        if not self._begun.done():  # else the wait is over
            self._begun.set_result(None)
        pending = bytearray(early)
        self._scratch = self._shared
        self._make_room(0)
        if framing == CHUNKED:
            yield from self._receive_chunks(pending)
        else:
            yield from self._receive_rest(pending)
        return bytearray()

    def _receive_chunks(self, pending: bytearray) -> Generator[None, None, None]:
        while size := (yield from self._chunk_size(pending)):
            early = pending[:size]
            del pending[:size]
            self._feed(early)
            left = size - len(early)
            while left:
                self._filled = 0
                self._make_room(left)
                yield
                arrived = self._target[: self._filled]
                part = arrived[:left]
                self._feed(part)
                left -= len(part)
                pending += arrived[len(part) :]
            self._make_room(0)
            while len(pending) < 2:
                yield from self._more(pending)
            if pending[:2] != b"\r\n":
                raise MalformedAnswerError("a chunk without an end")
            del pending[:2]
        while (yield from self._line(pending)) != b"\r\n":
            pass  # ignore the header fields after the body

    def _make_room(self, of_chunk: int) -> None:
        """Receive the rest of a chunk's frame at once, and otherwise STEP_BYTES.

        The buffer holds more, but chunks and frames may be tiny.
        """
        size = max(STEP_BYTES, min(of_chunk, self._queue.missing_bytes))
        self._target = memoryview(self._shared)[:size]

    def _receive_rest(self, pending: bytearray) -> Generator[None, None, None]:
        """Receive a body that ends when the server closes the connection."""
        try:
            while True:
                self._feed(pending)
                pending.clear()
                yield from self._more(pending)
        except EOFError:
            return

    def _feed(self, data: Buffer) -> None:
        try:
            self._queue.feed(data)
        except SourceUnavailableError as error:
            self._queue.end(error)
            raise MalformedAnswerError("a corrupt frame") from error

    def _pause(self) -> None:
        if self._transport is not None:
            self._read_timeout.pause()
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._read_timeout.resume()
            self._transport.resume_reading()


class EventStreamPool:
    """The event streams of one event loop, each with a connection of its own."""

    def __init__(self, connect_seconds: float, addresses: AddressCache) -> None:
        self._connect_seconds = connect_seconds
        # All connections receive into one buffer, since each piece is copied at once.
        # An idle subscription then costs no buffer.
        self._connector = Connector(connect_seconds, addresses)
        self._open: set[EventStream] = set()

    async def open(self, address: Address, request: bytes) -> EventStream:
        """Send a request, and return the event stream of its response.

        Raise RefusedError if the status is not 200, and OSError if the connection
        fails.
        """
        connector = self._connector
        stream = await connector.connect(address, lambda: EventStream(connector.shared))
        self._open.add(stream)
        stream.lost.add_done_callback(lambda _: self._open.discard(stream))
        stream.send(request)
        try:
            async with timeout(self._connect_seconds):
                await stream.begin()
        except BaseException:
            stream.close()
            raise
        return stream

    async def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        closing = list(self._open)
        for stream in closing:
            stream.abort()
        for stream in closing:
            await stream.wait_closed()
