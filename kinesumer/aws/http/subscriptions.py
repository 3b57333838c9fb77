"""Open event streams: over HTTP/2 where the server offers it, else over HTTP/1.1."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from aiohappyeyeballs import start_connection

from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.connection import RECEIVE_BYTES, share_buffer
from kinesumer.aws.http.event_stream import EventStream, EventStreamConnection
from kinesumer.aws.http.pool import NEXT_ADDRESS_SECONDS, Address
from kinesumer.aws.http.sigv4 import SignedRequest
from kinesumer.runtime.timeouts import timeout

if TYPE_CHECKING:
    from aiobotocore.httpsession import AIOHTTPSession

    from kinesumer.aws.http.http2 import Http2Connection

# The longest wait for a byte before an HTTP/1.1 connection counts as broken. The
# reader notices silence earlier.
READ_SECONDS = 60.0
PROTOCOLS = ["h2", "http/1.1"]


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
        loop = asyncio.get_running_loop()
        sock = await start_connection(
            await self._addresses.find(address.host, address.port),
            happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
        )
        transport, _ = await loop.create_connection(
            _Negotiating,
            sock=sock,
            ssl=address.tls,
            server_hostname=address.host if address.tls else None,
        )
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
