"""Test reading responses of any format, in pieces of any size."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.aws.http.connection import (
    HEAD_BYTES,
    Answer,
    Connection,
    MalformedAnswerError,
)
from tests.support.reservations import Room
from tests.support.transports import Wire

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BODY = bytes(range(256)) * 300
ASK = b"POST / HTTP/1.1\r\n\r\n"


def sized(body: bytes = BODY, status: str = "200 OK", more: str = "") -> bytes:
    """Return an HTTP response with a Content-Length header."""
    head = f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(body: bytes = BODY, size: int = 10_000, trailer: bytes = b"") -> bytes:
    """Return an HTTP response with chunked encoding."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n" + trailer + b"\r\n"


async def fed(pieces: list[bytes], *, ends: bool = False) -> Answer:
    """Return what a connection reads from an answer that arrives in pieces."""
    connection = Connection(read_seconds=60)
    wire = Wire(connection)
    asking = asyncio.ensure_future(connection.ask(ASK))
    await asyncio.sleep(0)
    for piece in pieces:
        wire.feed(piece)
    if ends:
        connection.eof_received()
    async with asyncio.timeout(10):
        return await asking


@settings(max_examples=30)
@given(data=st.data())
@pytest.mark.parametrize(
    "answer",
    [
        sized(),
        sized(b""),
        b"HTTP/1.1 100 Continue\r\n\r\n" + sized(),
        chunked(),
        chunked(trailer=b"X-Checksum: 1\r\n"),
        chunked(b""),
    ],
)
def test_an_answer_is_whole_however_it_is_cut(
    answer: bytes, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=8))
    bounds = [0, *sorted(cuts), len(answer)]
    pieces = [answer[a:b] for a, b in itertools.pairwise(bounds)]
    received = asyncio.run(fed(pieces))
    body = received.body
    assert received.status == 200
    assert body in (BODY, b"")
    assert bool(body) == (BODY[:100] in answer)


@pytest.mark.parametrize(("line", "date"), [("DATE:  now \r\n", "now "), ("", None)])
async def test_an_answer_has_the_date_of_its_head(line: str, date: str | None) -> None:
    head = f"HTTP/1.1 200 OK\r\n{line}content-length: 0\r\n\r\n"
    assert (await fed([head.encode()])).date == date


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    answer = b"HTTP/1.0 503 Slow\r\n\r\n" + BODY
    assert await fed([answer], ends=True) == Answer(503, bytearray(BODY))


@pytest.mark.parametrize("answer", [sized(), chunked(), b"HTTP/1.1 2", b""])
async def test_an_answer_that_is_cut_off_is_an_error(answer: bytes) -> None:
    with pytest.raises(ConnectionResetError, match="before the answer's end"):
        await fed([answer[:-1]], ends=True)


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 3\r\nContent-Length: 3\r\n",
        b"Content-Length: 3\r\ncontent-length: 4\r\n",
        b"Content-Length: 3, 3\r\n",
        b"Content-Length: +3\r\n",
        b"Content-Length: 3\r\n 4\r\n",
        b"Content-Length: \r\n",
        b"Content-Length : 3\r\n",
        b"X: 1\nContent-Length: 3\r\n",
        b"X: 1\rContent-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding:\r\n chunked\r\n",
        b"Transfer-Encoding\t: chunked\r\n",
    ],
)
async def test_a_head_that_can_be_read_in_several_ways_is_refused(
    headers: bytes,
) -> None:
    for body in (b"abc", b"3\r\nabc\r\n0\r\n\r\n"):
        with pytest.raises(MalformedAnswerError):
            await fed([b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n" + body], ends=True)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 40_000,
        sized(b"abc") + b"more",
    ],
)
async def test_what_is_no_answer_is_refused_and_closes_the_connection(
    answer: bytes,
) -> None:
    with pytest.raises(ConnectionError):
        await fed([answer])


# --- with a real socket --------------------------------------------------------------


@asynccontextmanager
async def connected(serve: Serve, read_seconds: float = 5) -> AsyncIterator[Connection]:
    """Start a server for one connection, and close both at the end."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(read_seconds), "127.0.0.1", port
    )
    yield connection
    connection.abort()
    await connection.lost
    server.close()


async def never_answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await reader.read()
    writer.close()


async def test_a_large_answer_arrives_and_the_next_one_too() -> None:
    bodies = [BODY * 100, b"", BODY, b"x"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for body in bodies:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(sized(body))
        await never_answer(reader, writer)

    async with connected(serve) as connection:
        for body in bodies:
            assert (await connection.ask(ASK)).body == body
            assert connection.reusable


async def test_silence_is_waited_for_only_so_long_but_a_slow_answer_longer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in sized(b"slowly", more="X: y\r\n")[:-1]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
        await never_answer(reader, writer)

    async with connected(serve, read_seconds=0.3) as connection:
        with pytest.raises(TimeoutError, match=r"no byte for 0\.3 s"):
            await connection.ask(ASK)
        assert connection.get_buffer(-1).nbytes == 1  # only the last byte is missing
        await connection.lost


async def test_a_call_that_is_given_up_closes_its_connection() -> None:
    async with connected(never_answer) as connection:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await connection.ask(ASK)
        await connection.lost
        assert not connection.reusable


async def test_what_nobody_asked_for_closes_the_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sized(b"early"))
        await never_answer(reader, writer)

    async with connected(serve) as connection:
        await connection.lost
        assert not connection.reusable


# --- answers that there is no room for yet -------------------------------------------


def until_closed(body: bytes = BODY) -> bytes:
    """Return an HTTP response that ends when the connection closes."""
    return b"HTTP/1.1 200 OK\r\n\r\n" + body


class Service:
    """Sends one answer to each request, and counts the bytes that were sent."""

    def __init__(self, answer: bytes, *, closes: bool = False) -> None:
        self.answer, self.closes = answer, closes
        self.taken = 0

    async def __call__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.transport.set_write_buffer_limits(high=0)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                for at in range(0, len(self.answer), 65_536):
                    writer.write(self.answer[at : at + 65_536])
                    await writer.drain()
                    self.taken += 65_536
                if self.closes:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        writer.close()


MUCH = BODY * 200  # more bytes than fit into the sockets' buffers


@pytest.mark.parametrize(
    ("answer", "asked"),
    [(sized(MUCH), len(MUCH)), (chunked(MUCH), None), (until_closed(MUCH), None)],
)
async def test_an_answer_waits_in_tcp_until_there_is_room_for_it(
    answer: bytes, asked: int | None
) -> None:
    service = Service(answer, closes=b"ength" not in answer[:60])
    may_grow = asyncio.Event()
    reservation = Room(100_000, may_grow.wait)
    async with connected(service, read_seconds=0.1) as connection:
        asking = asyncio.ensure_future(connection.ask(ASK, reservation))
        await asyncio.sleep(0.25)  # longer than the connection waits for a byte
        assert reservation.asked == [asked]
        assert not asking.done()
        assert service.taken < len(MUCH)
        may_grow.set()
        assert (await asking).body == MUCH
    assert reservation.asked == [asked]


@pytest.mark.parametrize("answer", [sized(), chunked(), until_closed()])
async def test_an_answer_that_there_is_room_for_does_not_wait(answer: bytes) -> None:
    service, room = Service(answer, closes=answer == until_closed()), Room(1 << 20)
    async with connected(service) as connection:
        assert (await connection.ask(ASK, room)).body == BODY
    assert room.asked == []
    assert room.size == (len(BODY) if answer == sized() else 1 << 20)


async def test_an_answer_that_came_whole_with_its_head_waits_all_the_same() -> None:
    reservation = Room(2)
    async with connected(Service(sized(b"abc"))) as connection:
        for _ in range(2):
            assert (await connection.ask(ASK, reservation)).body == b"abc"
    assert reservation.asked == [3, 3]


async def test_a_call_given_up_while_its_answer_waits_closes_the_connection() -> None:
    reservation = Room(wait=asyncio.Event().wait)
    async with connected(Service(sized(MUCH))) as connection:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await connection.ask(ASK, reservation)
        await connection.lost
        assert not connection.reusable


async def test_a_connection_that_breaks_while_its_answer_waits_fails_it() -> None:
    may_grow = asyncio.Event()
    async with connected(Service(sized(MUCH))) as connection:
        asking = asyncio.ensure_future(connection.ask(ASK, Room(wait=may_grow.wait)))
        await asyncio.sleep(0.1)
    may_grow.set()
    with pytest.raises(ConnectionResetError, match="waited for memory"):
        await asking


async def test_a_closed_connection_keeps_nothing_of_an_answer() -> None:
    async with connected(Service(sized(MUCH))) as connection:
        asking = asyncio.ensure_future(connection.ask(ASK))
        while connection._filled < 100_000:
            await asyncio.sleep(0)
        asking.cancel()
    assert connection._target.nbytes == 0
    with pytest.raises(StopIteration):
        next(connection._parts)
