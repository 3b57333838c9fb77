"""Keep a limited number of connections open between requests."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import botocore
from aiohappyeyeballs import start_connection

from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.connection import (
    RECEIVE_BYTES,
    Answer,
    Connection,
    share_buffer,
)
from kinesumer.ports import Reservation
from kinesumer.runtime.tasks import timeout

# A connection that was idle for longer isn't used again, since servers close idle
# connections without notice.
KEEP_SECONDS = 12.0
# How long to try one address of a host before also trying the next one. RFC 8305
# recommends 250 ms.
NEXT_ADDRESS_SECONDS = 0.25
# TLS handshakes with one address at the same time. asyncio gives each one a buffer of
# 256 KiB, which the process keeps: a hundred at once take 20 MB.
HANDSHAKES = 8

C = TypeVar("C", bound=Connection)


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


class Connector:
    """Opens the connections of one event loop.

    ``addresses`` are those that others on the event loop have looked up. TLS receives
    into ``shared``, a buffer of all connections.
    """

    def __init__(self, connect_seconds: float, addresses: AddressCache) -> None:
        self.shared: bytearray = bytearray(RECEIVE_BYTES)
        self._connect_seconds, self._addresses = connect_seconds, addresses
        self._handshakes: defaultdict[Address, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(HANDSHAKES)
        )

    async def connect(
        self,
        address: Address,
        make: Callable[[], C],
        idle: Callable[[], C | None] = lambda: None,
    ) -> C:
        """Open a connection. Raise OSError if that fails.

        If it has to wait for its TLS handshake, return what ``idle`` returns then.
        """
        async with timeout(self._connect_seconds):
            sock = await start_connection(
                await self._addresses.find(address.host, address.port),
                happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
            )
        if address.tls is None:
            return await self._wrap(sock, address, make)
        turns = self._handshakes[address]
        try:
            await turns.acquire()
        except BaseException:
            sock.close()
            raise
        try:
            if (connection := idle()) is not None:
                sock.close()
                return connection
            return await self._wrap(sock, address, make)
        finally:
            turns.release()

    async def _wrap(
        self, sock: socket.socket, address: Address, make: Callable[[], C]
    ) -> C:
        async with timeout(self._connect_seconds):
            transport, connection = await asyncio.get_running_loop().create_connection(
                make,
                sock=sock,
                ssl=address.tls,
                server_hostname=address.host if address.tls else None,
            )
        share_buffer(transport, self.shared)
        return connection


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
        self._connector = Connector(connect_seconds, addresses)
        self._read_seconds, self._limit = read_seconds, limit
        self._free = asyncio.Semaphore(limit)
        self._holders: set[asyncio.Task[Any] | None] = set()
        self._open: set[Connection] = set()
        self._idle: dict[Address, list[tuple[float, Connection]]] = {}
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
        connection = await self._connector.connect(
            address,
            lambda: Connection(self._read_seconds),
            partial(self._take, address),
        )
        if self._is_closed:  # close() can't know a connection that was being opened
            connection.abort()
            raise ConnectionAbortedError("the connections were closed meanwhile")
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection


def client_context() -> ssl.SSLContext:
    """Return a context that trusts the authorities that botocore trusts."""
    chosen = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    return _context(chosen or _usual_authorities())


@cache
def _context(authorities: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authorities)


def _usual_authorities() -> str:
    try:
        from certifi import where
    except ImportError:
        return str(Path(botocore.__file__).with_name("cacert.pem"))
    return where()
