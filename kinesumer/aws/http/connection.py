"""Send requests over HTTP/1.1, and receive responses without copying them.

aiohttp receives a response in many pieces and joins them. For a page of records, this
takes more CPU than decoding the records. Here, a body of known size is received
directly in its final buffer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator
from typing import Any, Final, Literal, NamedTuple, cast

from kinesumer.ports import Reservation
from kinesumer.runtime.tasks import Countdown
from kinesumer.wire.cbor import new_body

HEAD_BYTES = 16 * 1024  # greatest size of a response's head
RECEIVE_BYTES = 256 * 1024  # what asyncio receives of a TLS connection at a time
# Greatest accepted size of a response's body. Kinesis sends at most a fifth of this. No
# dead letter in S3 is larger, either, since records have at most 10 MiB.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:([^\r]*)", re.I)
_CODING = re.compile(rb"\r\ntransfer-encoding:([^\r]*)", re.I)
_NUMBER = re.compile(rb"[0-9]{1,18}")
# Parts of most lines that match the next pattern. They are found ten times as fast.
_SPACES = (b" :", b"\t:", b"\r\n ", b"\r\n\t")
# A name that ends with a space, or a continued line.
_SPACED = re.compile(rb"\r\n(?:[ \t]|[^:\r\n]*[ \t]:)")
_DATE = re.compile(rb"\r\ndate:[ \t]*([^\r]*)", re.I)
_CLOSING = re.compile(rb"\r\nconnection:[^\r]*\bclose\b", re.I)
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n\Z")


class MalformedAnswerError(ConnectionError):
    """The server's response isn't valid HTTP/1.1."""


class Answer(NamedTuple):
    """A response's status, body and Date header."""

    status: int
    body: bytearray
    date: str | None = None


def _date(head: bytes) -> str | None:
    found = _DATE.search(head)
    return None if found is None else found[1].decode("latin-1")


class _Head(NamedTuple):
    """The head of a response. The memory for its body isn't reserved yet."""

    size: int | None  # size of the body in bytes; None if the head lacks it


class Connection(asyncio.BufferedProtocol):
    """Sends requests and receives their responses, one at a time."""

    def __init__(self, read_seconds: float) -> None:
        """Create a connection that waits up to ``read_seconds`` for each byte."""
        loop = asyncio.get_running_loop()
        self._loop, self._read_seconds = loop, read_seconds
        # Future that is done when the connection is closed.
        self.lost: asyncio.Future[None] = loop.create_future()
        self.reusable: bool = True  # whether the connection can send another request
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer | _Head] | None = None
        self._reservation: Reservation | None = None
        self._unsent = 0
        self._parts: Generator[None, None, Answer]
        self._scratch = bytearray(HEAD_BYTES)
        self._expect_head()

    async def ask(
        self, request: bytes, reservation: Reservation | None = None
    ) -> Answer:
        """Send a request and return its response.

        If ``reservation`` doesn't cover the response, receiving pauses until the
        reservation has grown. Raise OSError if the connection breaks, TimeoutError if
        the server doesn't respond, and MalformedAnswerError for an invalid response.
        """
        assert self._transport is not None
        self._reservation = reservation
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
                self._read_timeout.cancel()
                await reservation.grow(answer.size)
                self._go_on()
        finally:
            self._read_timeout.cancel()
            if self._waiting is not None:
                self.abort()  # the next request must not get this response
            self._waiting = self._reservation = None

    def abort(self) -> None:
        """Close the connection immediately."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _await_answer(self) -> None:
        self._waiting = self._loop.create_future()
        self._read_timeout = Countdown(self._read_seconds, self._on_silence)

    def _go_on(self) -> None:
        """Continue to receive the response after its memory was reserved."""
        assert self._transport is not None
        if self.lost.done():
            raise ConnectionResetError("closed while its response waited for memory")
        self._await_answer()
        self._transport.resume_reading()
        self._advance()

    # --- what asyncio calls -----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._target[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes that were written to the buffer."""
        self._filled += nbytes
        if self._waiting is None or self._waiting.done():
            self.abort()  # no request is waiting for these bytes
            return
        self._read_timeout.restart()
        self._advance()

    def _advance(self) -> None:
        """Continue to parse the response."""
        assert self._waiting is not None
        try:
            self._parts.send(None)
        except StopIteration as end:
            self._waiting.set_result(end.value)
            self._expect_head()
        except (MalformedAnswerError, MemoryError) as error:
            self._fail(error)

    def eof_received(self) -> None:
        """Complete a response that ends when the server closes the connection."""
        self.reusable = False
        if self._waiting is not None and not self._waiting.done():
            try:
                self._parts.throw(EOFError())
            except StopIteration as end:
                self._waiting.set_result(end.value)
            except EOFError:
                self._fail(ConnectionResetError("closed before the answer's end"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the current request."""
        self.reusable = False
        self._fail(exc or ConnectionResetError("closed before the answer's end"))
        # Release the partial response now, not at the next garbage collection.
        self._parts.close()
        self._target = memoryview(b"")
        if not self.lost.done():
            self.lost.set_result(None)

    # --- parts of a response ----------------------------------------------------------

    def _expect_head(self) -> None:
        self._target, self._filled = memoryview(self._scratch), 0
        self._parts = self._receive()
        next(self._parts)

    def _receive(self) -> Generator[None, None, Answer]:
        """Parse a response, and return it when it is complete.

        Yield whenever more bytes are needed.
        """
        status = 100
        while status < 200:  # skip interim responses
            end = yield from self._head()
            head = bytes(self._scratch[:end])
            status = self._status(head)
            early = bytes(self._scratch[end : self._filled])
            if status < 200:
                self._scratch[: len(early)] = early
                self._filled = len(early)
        return Answer(status, (yield from self._body(status, head, early)), _date(head))

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

    def _body(
        self, status: int, head: bytes, early: bytes
    ) -> Generator[None, None, bytearray]:
        framing = read_framing(head)
        if framing == CHUNKED:
            return (yield from self._chunks(early))
        if framing is not None:
            return (yield from self._sized(framing, early))
        return (yield from self._until_closed(early))

    def _admit(self, size: int, whole: int | None) -> Generator[None, None, None]:
        """Pause receiving until memory for ``size`` bytes is reserved."""
        reservation = self._reservation
        if reservation is None or reservation.covers(size):
            return
        assert self._transport is not None
        assert self._waiting is not None
        self._reservation = None  # a response lets its reservation grow only once
        self._transport.pause_reading()
        self._waiting.set_result(_Head(whole))
        yield

    def _sized(self, length: int, early: bytes) -> Generator[None, None, bytearray]:
        if len(early) > _check_size(length):
            raise MalformedAnswerError("more bytes than the response's length")
        if self._reservation is not None and self._reservation.covers(length):
            self._reservation.shrink(length)
        else:
            yield from self._admit(length, length)
        body = new_body(length)
        body[: len(early)] = early
        self._target, self._filled = memoryview(body), len(early)
        while self._filled < length:
            yield
        return body

    def _chunks(self, early: bytes) -> Generator[None, None, bytearray]:
        pending, body = bytearray(early), bytearray()
        while size := (yield from self._chunk_size(pending)):
            yield from self._admit(_check_size(len(body) + size), None)
            while len(pending) < size + 2:
                yield from self._more(pending)
            if pending[size : size + 2] != b"\r\n":
                raise MalformedAnswerError("a chunk without an end")
            body += pending[:size]
            del pending[: size + 2]
        while (yield from self._line(pending)) != b"\r\n":
            pass  # ignore the header fields after the body
        if pending:
            raise MalformedAnswerError("bytes after the last chunk")
        return body

    def _chunk_size(self, pending: bytearray) -> Generator[None, None, int]:
        line = yield from self._line(pending)
        match = _CHUNK.match(line)
        if match is None:
            raise MalformedAnswerError(f"not the size of a chunk: {line[:80]!r}")
        return int(match[1], 16)

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
                yield from self._admit(_check_size(len(body)), None)
        except EOFError:
            return body

    def _more(self, pending: bytearray) -> Generator[None, None, None]:
        self._filled = 0
        yield
        pending += self._target[: self._filled]

    # --- time-out ---------------------------------------------------------------------

    def _on_silence(self) -> None:
        """Fail with TimeoutError unless sending the request has made progress."""
        assert self._transport is not None
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent = unsent
            self._read_timeout = Countdown(self._read_seconds, self._on_silence)
        else:
            self._fail(TimeoutError(f"no byte for {self._read_seconds:g} s"))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self.abort()


def share_buffer(transport: asyncio.BaseTransport, shared: bytearray) -> None:
    """Let a TLS connection receive into a buffer that other connections use, too.

    ``shared`` has RECEIVE_BYTES, and belongs to the connection's event loop.
    """
    # asyncio gives each TLS connection a buffer of 256 KiB, which is most of the memory
    # of an idle one. It copies what it receives at once. Another event loop, such as
    # uvloop's, has its own implementation of TLS.
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(protocol, "_ssl_buffer") and hasattr(protocol, "_ssl_buffer_view"):
        protocol._ssl_buffer = shared
        protocol._ssl_buffer_view = memoryview(shared)


CHUNKED: Final = "chunked"


def read_framing(head: bytes) -> int | Literal["chunked"] | None:
    """Return the size of a response's body, CHUNKED, or None if the head doesn't tell.

    Raise MalformedAnswerError if the head tells it in several ways: a proxy may have
    understood another one, so the next response could be a part of this one.
    """
    # Servers and proxies read other ends of lines, and these spaces, in several ways.
    if not head.count(b"\r") == head.count(b"\n") == head.count(b"\r\n"):
        raise MalformedAnswerError("a head with other ends of lines than CR LF")
    if any(map(head.__contains__, _SPACES)) and _SPACED.search(head):
        raise MalformedAnswerError("a head with misplaced spaces")
    lengths, codings = _LENGTH.findall(head), _CODING.findall(head)
    if len(lengths) + len(codings) > 1:
        raise MalformedAnswerError("several lengths or transfer codings")
    if codings:
        if codings[0].strip(b" \t").lower() != b"chunked":
            raise MalformedAnswerError(f"the transfer coding {codings[0][:80]!r}")
        return CHUNKED
    if not lengths:
        return None
    if not _NUMBER.fullmatch(lengths[0].strip(b" \t")):
        raise MalformedAnswerError(f"the length {lengths[0][:80]!r}")
    return int(lengths[0])


def _check_size(size: int) -> int:
    if size > MAX_ANSWER_BYTES:
        raise MalformedAnswerError(f"a response of {size:,} bytes, which is too long")
    return size
