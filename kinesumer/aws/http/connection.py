"""One HTTP/1.1 connection: a request at a time, its answer received where it stays.

aiohttp hands an answer over in many pieces and joins them: for a page of records that
takes more CPU than all of its decoding. Here the kernel writes it to its final place.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, NamedTuple, cast

from kinesumer.runtime.timeouts import Countdown

if TYPE_CHECKING:
    from collections.abc import Generator

    from kinesumer.ports import Reservation

HEAD_BYTES = 16 * 1024
"""An answer's head must fit in."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""A body that claims more isn't waited for: Kinesis sends a fifth of that at most."""

_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*(?=\r\n)", re.I)
_ANY_LENGTH = re.compile(rb"\r\ncontent-length:", re.I)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*(?=\r\n)", re.I)
_CODED = re.compile(rb"\r\ntransfer-encoding:", re.I)
_CLOSING = re.compile(rb"\r\nconnection:[^\r]*\bclose\b", re.I)
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n\Z")


class MalformedAnswerError(ConnectionError):
    """What came isn't an answer of HTTP/1.1."""


class Answer(NamedTuple):
    """An answer's status and body."""

    status: int
    body: bytearray


class _Head(NamedTuple):
    """An answer has begun that there is no room for yet."""

    size: int | None
    """How many bytes it has; None if it doesn't say."""


class Connection(asyncio.BufferedProtocol):
    """Sends a request and receives its answer, again and again."""

    def __init__(self, read_seconds: float) -> None:
        """``read_seconds`` is the longest wait for the next byte of an answer."""
        loop = asyncio.get_running_loop()
        self._loop, self._read_seconds = loop, read_seconds
        self.lost: asyncio.Future[None] = loop.create_future()
        """Done when the connection is closed."""
        self.reusable = True
        """Whether it can take another request after the answer."""
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer | _Head] | None = None
        self._answer_room: Reservation | None = None
        self._unsent = 0
        self._parts: Generator[None, None, Answer]
        self._scratch = bytearray(HEAD_BYTES)
        self._expect_head()

    async def ask(
        self, request: bytes, reservation: Reservation | None = None
    ) -> Answer:
        """Send a request, return its answer.

        An answer that ``room`` does not cover is left to TCP until the room has grown.
        Raises OSError if the connection breaks, TimeoutError if nothing comes, and
        MalformedAnswerError if something else does.
        """
        assert self._transport is not None
        self._answer_room = reservation
        self._await_answer()
        try:
            self._transport.write(request)
            while True:
                assert self._waiting is not None
                answer = await self._waiting
                if isinstance(answer, Answer):
                    self._waiting = None
                    return answer
                assert reservation is not None
                self._quiet.cancel()
                await reservation.grow(answer.size)
                self._go_on()
        finally:
            self._quiet.cancel()
            if self._waiting is not None:
                self.abort()  # its answer would be taken for the next one's
            self._waiting = self._answer_room = None

    def abort(self) -> None:
        """Close at once."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _await_answer(self) -> None:
        self._waiting = self._loop.create_future()
        self._quiet = Countdown(self._read_seconds, self._look)

    def _go_on(self) -> None:
        """Receive the answer that there is room for now."""
        assert self._transport is not None
        if self.lost.done():
            raise ConnectionResetError("closed while its answer waited for memory")
        self._await_answer()
        self._transport.resume_reading()
        self._advance()

    # --- what asyncio calls -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to write what comes."""
        return self._room[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        self._filled += nbytes
        if self._waiting is None or self._waiting.done():
            self.abort()  # nobody has asked for that
            return
        self._quiet.restart()
        self._advance()

    def _advance(self) -> None:
        """Take in what the buffer holds."""
        assert self._waiting is not None
        try:
            self._parts.send(None)
        except StopIteration as end:
            self._waiting.set_result(end.value)
            self._expect_head()
        except MalformedAnswerError as error:
            self._fail(error)

    def eof_received(self) -> None:
        """Take the end of an answer that is as long as the connection."""
        self.reusable = False
        if self._waiting is not None and not self._waiting.done():
            try:
                self._parts.throw(EOFError())
            except StopIteration as end:
                self._waiting.set_result(end.value)
            except EOFError:
                self._fail(ConnectionResetError("closed before the answer's end"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is waiting."""
        self.reusable = False
        self._fail(exc or ConnectionResetError("closed before the answer's end"))
        # Else what has come of an answer stays until Python's collector runs.
        self._parts.close()
        self._room = memoryview(b"")
        if not self.lost.done():
            self.lost.set_result(None)

    # --- an answer, part by part ------------------------------------------------------

    def _expect_head(self) -> None:
        self._room, self._filled = memoryview(self._scratch), 0
        self._parts = self._receive()
        next(self._parts)

    def _receive(self) -> Generator[None, None, Answer]:
        """Go on whenever something has come; return the answer when it is whole."""
        status = 100
        while status < 200:  # what comes before the answer proper says nothing
            end = yield from self._head()
            head = bytes(self._scratch[:end])
            status = self._status(head)
            early = bytes(self._scratch[end : self._filled])
            if status < 200:
                self._scratch[: len(early)] = early
                self._filled = len(early)
        return Answer(status, (yield from self._body(head, early)))

    def _head(self) -> Generator[None, None, int]:
        seen = 0
        while True:
            end = self._scratch.find(b"\r\n\r\n", max(0, seen - 3), self._filled)
            if end >= 0:
                return end + 4
            seen = self._filled
            if seen == HEAD_BYTES:
                raise MalformedAnswerError(f"a head of over {HEAD_BYTES} bytes")
            yield

    def _status(self, head: bytes) -> int:
        match = _STATUS.match(head)
        if match is None:
            raise MalformedAnswerError(f"not HTTP/1.1: {head[:80]!r}")
        if match[1] == b"0" or _CLOSING.search(head):
            self.reusable = False
        return int(match[2])

    def _body(self, head: bytes, early: bytes) -> Generator[None, None, bytearray]:
        if _CODED.search(head):
            if not _CHUNKED.search(head):
                raise MalformedAnswerError("an unknown transfer encoding")
            return (yield from self._chunks(early))
        lengths = {int(text) for text in _LENGTH.findall(head)}
        if len(lengths) == 1:
            return (yield from self._sized(lengths.pop(), early))
        if _ANY_LENGTH.search(head):
            raise MalformedAnswerError("no length, or several")
        return (yield from self._until_closed(early))

    def _admit(self, size: int, whole: int | None) -> Generator[None, None, None]:
        """Leave what follows to TCP until there is room for ``size`` bytes or more."""
        reservation = self._answer_room
        if reservation is None or reservation.covers(size):
            return
        assert self._transport is not None
        assert self._waiting is not None
        self._answer_room = None  # it is asked once per answer
        self._transport.pause_reading()
        self._waiting.set_result(_Head(whole))
        yield

    def _sized(self, length: int, early: bytes) -> Generator[None, None, bytearray]:
        if len(early) > _as_connection_error(length):
            raise MalformedAnswerError("more than the answer's length")
        if self._answer_room is not None and self._answer_room.covers(length):
            self._answer_room.shrink(length)
        else:
            yield from self._admit(length, length)
        body = bytearray(length)
        body[: len(early)] = early
        self._room, self._filled = memoryview(body), len(early)
        while self._filled < length:
            yield
        return body

    def _chunks(self, early: bytes) -> Generator[None, None, bytearray]:
        pending, body = bytearray(early), bytearray()
        while True:
            line = yield from self._line(pending)
            match = _CHUNK.match(line)
            if match is None:
                raise MalformedAnswerError(f"not the size of a chunk: {line[:80]!r}")
            size = int(match[1], 16)
            if not size:
                break
            yield from self._admit(_as_connection_error(len(body) + size), None)
            while len(pending) < size + 2:
                yield from self._more(pending)
            if pending[size : size + 2] != b"\r\n":
                raise MalformedAnswerError("a chunk that doesn't end")
            body += pending[:size]
            del pending[: size + 2]
        while (yield from self._line(pending)) != b"\r\n":
            pass  # trailers
        if pending:
            raise MalformedAnswerError("more than the last chunk")
        return body

    def _line(self, pending: bytearray) -> Generator[None, None, bytes]:
        while (end := pending.find(b"\r\n") + 2) == 1:
            if len(pending) > HEAD_BYTES:
                raise MalformedAnswerError(f"a line of over {HEAD_BYTES} bytes")
            yield from self._more(pending)
        line = bytes(pending[:end])
        del pending[:end]
        return line

    def _until_closed(self, early: bytes) -> Generator[None, None, bytearray]:
        self.reusable = False
        body = bytearray(early)
        try:
            while True:
                yield from self._more(body)
                yield from self._admit(_as_connection_error(len(body)), None)
        except EOFError:
            return body

    def _more(self, pending: bytearray) -> Generator[None, None, None]:
        self._filled = 0
        yield
        pending += self._scratch[: self._filled]

    # --- when nothing comes -----------------------------------------------------------

    def _look(self) -> None:
        """Fail unless some of the request has been sent in the meantime."""
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent = unsent
            self._quiet = Countdown(self._read_seconds, self._look)
        else:
            self._fail(TimeoutError(f"no byte for {self._read_seconds:g} s"))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self.abort()


def _as_connection_error(size: int) -> int:
    if size > MAX_ANSWER_BYTES:
        raise MalformedAnswerError(f"an answer of {size:,} bytes")
    return size
