"""Keep connections open between requests, and open those that carry event streams.

Event streams use HTTP/2 where the server offers it, else HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import botocore
from aiohappyeyeballs import start_connection

from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.connection import (
    RECEIVE_BYTES,
    Answer,
    Connection,
    share_buffer,
)
from kinesumer.aws.http.event_stream import EventStream, EventStreamConnection
from kinesumer.aws.http.sigv4 import SignedRequest
from kinesumer.ports import Reservation
from kinesumer.runtime.timeouts import timeout

if TYPE_CHECKING:
    from aiobotocore.httpsession import AIOHTTPSession

    from kinesumer.aws.http.http2 import Http2Connection

P = TypeVar("P", bound=asyncio.BaseProtocol)

# A connection that was idle for longer isn't used again, since servers close idle
# connections without notice.
KEEP_SECONDS = 12.0

# How long to try one address of a host before also trying the next one. RFC 8305
# recommends 250 ms.
NEXT_ADDRESS_SECONDS = 0.25

# The longest wait for a byte before an HTTP/1.1 connection counts as broken. The
# reader notices silence earlier.
READ_SECONDS = 60.0

PROTOCOLS = ["h2", "http/1.1"]


class Address(NamedTuple):
    """A host and port, and the TLS context of the connections if they use TLS."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    @property
    def url(self) -> str:
        """The address as a URL, for messages."""
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{self.host}:{self.port}"


class Slot:
    """The block that ``ConnectionPool.slot()`` returns.

    This is a class, since a generator would make reads of idle shards 10 % slower.
    """

    __slots__ = ("_begins", "_free", "_holders")

    def __init__(
        self, free: asyncio.Semaphore, holders: set[asyncio.Task[Any] | None]
    ) -> None:
        self._free, self._holders = free, holders
        self._begins = False

    async def __aenter__(self) -> None:
        """Wait for a connection, unless the task already has one."""
        task = asyncio.current_task()
        if task not in self._holders:
            await self._free.acquire()
            self._holders.add(task)
            self._begins = True

    async def __aexit__(self, *exc_info: object) -> None:
        """Release the connection, unless an outer block holds it."""
        if self._begins:
            self._holders.discard(asyncio.current_task())
            self._free.release()


class ConnectionPool:
    """The connections of one event loop, at most ``limit`` at a time.

    ``addresses`` are those that others on the event loop have looked up.
    """

    def __init__(
        self,
        connect_seconds: float,
        read_seconds: float,
        limit: int,
        addresses: AddressCache,
    ) -> None:
        self._connect_seconds, self._read_seconds = connect_seconds, read_seconds
        self._limit = limit
        self._free = asyncio.Semaphore(limit)
        self._holders: set[asyncio.Task[Any] | None] = set()
        self._open: set[Connection] = set()
        self._idle: dict[Address, list[tuple[float, Connection]]] = {}
        self._addresses = addresses
        self._shared = bytearray(RECEIVE_BYTES)
        self._is_closed = False

    async def send(
        self, address: Address, request: bytes, reservation: Reservation | None = None
    ) -> Answer:
        """Send an HTTP request and return its response. Raise OSError if that fails.

        Wait for a slot, unless the task already has one: see ``slot()``.
        """
        async with self.slot():
            return await self._send(address, request, reservation)

    def slot(self) -> Slot:
        """Return a block in which the running task may use one connection.

        Tasks that enter a block wait for a connection, first come, first served. A task
        that is already in a block doesn't wait again.
        """
        return Slot(self._free, self._holders)

    async def _send(
        self, address: Address, request: bytes, reservation: Reservation | None
    ) -> Answer:
        connection = self._take(address) or await self._connect(address)
        answer = await connection.ask(request, reservation)
        if connection.reusable:
            now = asyncio.get_running_loop().time()
            self._idle.setdefault(address, []).append((now, connection))
        else:
            connection.abort()
        return answer

    async def close(self) -> None:
        """Close all connections, and wait until they are closed. Open no more."""
        self._is_closed = True
        self._idle.clear()
        closing = list(self._open)
        for connection in closing:
            connection.abort()
        for connection in closing:
            await connection.lost

    def _take(self, address: Address) -> Connection | None:
        """Return the idle connection that was used last, or None.

        Close connections that were idle too long.
        """
        idle = self._idle.get(address)
        if not idle:
            return None
        oldest = asyncio.get_running_loop().time() - KEEP_SECONDS
        while idle and (idle[0][0] < oldest or not idle[0][1].reusable):
            idle.pop(0)[1].abort()
        while idle:
            # The server is least likely to have closed the one that was used last.
            _, connection = idle.pop()
            if connection.reusable:
                return connection
        return None

    def _make_room(self) -> None:
        """If the pool is full, close the connection that was idle longest.

        The running task has a slot but no connection yet. So if the pool is full, at
        least one of its connections is idle.
        """
        if len(self._open) < self._limit:
            return
        idle = [
            (since[0][0], address) for address, since in self._idle.items() if since
        ]
        if idle:
            _, address = min(idle, key=lambda item: item[0])
            self._idle[address].pop(0)[1].abort()

    async def _connect(self, address: Address) -> Connection:
        self._make_room()
        async with timeout(self._connect_seconds):
            transport, connection = await _connected(
                lambda: Connection(self._read_seconds), address, self._addresses
            )
        if self._is_closed:  # close() can't know a connection that was being opened
            connection.abort()
            raise ConnectionAbortedError("the connections were closed meanwhile")
        share_buffer(transport, self._shared)
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection


class _Negotiating(asyncio.Protocol):
    """Receives nothing until the connection's protocol is known."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.pause_reading()  # type: ignore[attr-defined]


class EventStreamPool:
    """The connections of one event loop that carry event streams.

    An HTTP/2 connection carries as many streams as the server permits. Over HTTP/1.1,
    each stream has a connection of its own.
    """

    def __init__(self, connect_seconds: float, addresses: AddressCache) -> None:
        self._connect_seconds = connect_seconds
        self._addresses = addresses
        # All connections receive into one buffer, since each piece is copied at once.
        # An idle subscription then costs no buffer.
        self._shared = bytearray(RECEIVE_BYTES)
        self._open: set[EventStreamConnection | Http2Connection] = set()
        self._http2: dict[Address, list[Http2Connection]] = {}
        self._contexts: dict[AIOHTTPSession, ssl.SSLContext] = {}
        self._making = asyncio.Lock()
        self._connecting: dict[Address, asyncio.Lock] = {}
        self._without_http2: set[Address] = set()

    async def context(self, session: AIOHTTPSession) -> ssl.SSLContext:
        """Return a TLS context with a client's settings that offers HTTP/2."""
        async with self._making:
            if session not in self._contexts:
                # aiohttp offers HTTP/1.1 only, so its context can't be shared.
                connector = await session._create_connector(None)
                await connector.close()
                context: ssl.SSLContext = connector._ssl
                context.check_hostname = context.verify_mode is ssl.CERT_REQUIRED
                context.set_alpn_protocols(PROTOCOLS)
                self._contexts[session] = context
            return self._contexts[session]

    async def open(self, address: Address, request: SignedRequest) -> EventStream:
        """Send a request, and return the event stream of its response.

        Raise RefusedError if the status is not 200, and OSError if the connection
        fails.
        """
        stream = await self._send(address, request)
        try:
            async with timeout(self._connect_seconds):
                await stream.begin()
        except BaseException as error:
            if isinstance(error, TimeoutError):
                stream.suspect()
            stream.close()
            raise
        return stream

    async def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        closing = list(self._open)
        for connection in closing:
            connection.abort()
        for connection in closing:
            await connection.wait_closed()

    async def _send(self, address: Address, request: SignedRequest) -> EventStream:
        if address.tls is None or address in self._without_http2:
            return await self._send_alone(address, request)
        # Connect one at a time, so that streams opened at once share a connection.
        lock = self._connecting.setdefault(address, asyncio.Lock())
        async with lock:
            if address not in self._without_http2:
                stream = await self._send_shared(address, request)
                return stream or await self._send_alone(address, request)
        return await self._send_alone(address, request)

    async def _send_shared(
        self, address: Address, request: SignedRequest
    ) -> EventStream | None:
        """Send a request on an open HTTP/2 connection. Return None if none has room."""
        for connection in self._http2.get(address, ()):
            if connection.has_room:
                stream = await connection.open(request.http2(), request.body)
                if stream is not None:
                    return stream
        return None

    async def _send_alone(
        self, address: Address, request: SignedRequest
    ) -> EventStream:
        """Open a connection, and send a request on it."""
        async with timeout(self._connect_seconds):
            transport, protocol = await self._connect(address)
        if protocol != "h2":
            self._without_http2.add(address)
            connection = EventStreamConnection(READ_SECONDS, self._shared)
            self._use(transport, connection)
            connection.send(request.http1())
            return connection
        from kinesumer.aws.http.http2 import Http2Connection

        shared = Http2Connection()
        self._use(transport, shared)
        try:
            async with timeout(self._connect_seconds):
                stream = await shared.open(request.http2(), request.body)
            if stream is None:
                raise ConnectionRefusedError("the server permits no stream of HTTP/2")
        except BaseException:
            shared.abort()
            raise
        known = self._http2.setdefault(address, [])
        known.append(shared)
        shared.lost.add_done_callback(lambda _: known.remove(shared))
        return stream

    async def _connect(self, address: Address) -> tuple[asyncio.Transport, str | None]:
        transport, _ = await _connected(_Negotiating, address, self._addresses)
        encryption = transport.get_extra_info("ssl_object")
        if encryption is None:
            return transport, None
        share_buffer(transport, self._shared)
        return transport, encryption.selected_alpn_protocol()

    def _use(
        self,
        transport: asyncio.Transport,
        connection: EventStreamConnection | Http2Connection,
    ) -> None:
        transport.set_protocol(connection)
        connection.connection_made(transport)
        transport.resume_reading()
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))


async def _connected(
    make: Callable[[], P], address: Address, addresses: AddressCache
) -> tuple[asyncio.Transport, P]:
    """Connect to an address, with a protocol that ``make`` returns."""
    sock = await start_connection(
        await addresses.find(address.host, address.port),
        happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
    )
    return await asyncio.get_running_loop().create_connection(
        make,
        sock=sock,
        ssl=address.tls,
        server_hostname=address.host if address.tls else None,
    )


def client_context(*protocols: str) -> ssl.SSLContext:
    """Return a context that trusts the authorities that botocore trusts.

    ``protocols`` are those that a connection offers to the server.
    """
    chosen = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    return _context(chosen or _usual_authorities(), protocols)


@cache
def _context(authorities: str, protocols: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authorities)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _usual_authorities() -> str:
    try:
        from certifi import where
    except ImportError:
        return str(Path(botocore.__file__).with_name("cacert.pem"))
    return where()
