"""A limited pool of connections, which stay open between requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from aiohappyeyeballs import start_connection

from kinesumer.aws.http.connection import Connection
from kinesumer.aws.http.resolver import AddressCache
from kinesumer.runtime.timeouts import timeout

if TYPE_CHECKING:
    import ssl
    from typing import Any

    from kinesumer.aws.http.connection import Answer
    from kinesumer.ports import Reservation

KEEP_SECONDS = 12.0
"""Longest idle time of a connection, since servers close idle ones without notice."""
NEXT_ADDRESS_SECONDS = 0.25


class Address(NamedTuple):
    """A host and port, with TLS if there is a context."""

    host: str
    port: int
    tls: ssl.SSLContext | None


class Slot:
    """A block in which a task may use a connection: see ``ConnectionPool.slot()``.

    It is a class, since a generator would make a read of an idle shard cost 10 % more.
    """

    __slots__ = ("_begins", "_free", "_holders")

    def __init__(
        self, free: asyncio.Semaphore, holders: set[asyncio.Task[Any] | None]
    ) -> None:
        self._free, self._holders = free, holders
        self._begins = False

    async def __aenter__(self) -> None:
        """Wait for a connection, unless the task has one."""
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
    """The connections of one event loop, at most ``limit`` at a time."""

    def __init__(self, connect_seconds: float, read_seconds: float, limit: int) -> None:
        self._connect_seconds, self._read_seconds = connect_seconds, read_seconds
        self._limit = limit
        self._free = asyncio.Semaphore(limit)
        self._holders: set[asyncio.Task[Any] | None] = set()
        self._open: set[Connection] = set()
        self._idle: dict[Address, list[tuple[float, Connection]]] = {}
        self._addresses = AddressCache()

    async def send(
        self, address: Address, request: bytes, reservation: Reservation | None = None
    ) -> Answer:
        """Send a complete HTTP request and return the response. Raise OSError.

        Wait for a slot, unless the task has one: see ``slot()``.
        """
        async with self.slot():
            return await self._send(address, request, reservation)

    def slot(self) -> Slot:
        """Return a block in which the running task may use one connection.

        Entering it waits, first come, first served. A task in a block doesn't wait
        again.
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
        """Close all connections, and wait until they are closed."""
        self._idle.clear()
        closing = list(self._open)
        for connection in closing:
            connection.abort()
        for connection in closing:
            await connection.lost

    def _take(self, address: Address) -> Connection | None:
        """Return the connection used last, and close those that were idle too long."""
        idle = self._idle.get(address)
        if not idle:
            return None
        oldest = asyncio.get_running_loop().time() - KEEP_SECONDS
        while idle and (idle[0][0] < oldest or not idle[0][1].reusable):
            idle.pop(0)[1].abort()
        while idle:
            _, connection = idle.pop()
            if connection.reusable:
                return connection
        return None

    def _make_room(self) -> None:
        """Close the connection that was idle longest if the pool is full.

        The task that holds a slot has no connection yet, so at least one is idle.
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
        loop = asyncio.get_running_loop()
        async with timeout(self._connect_seconds):
            sock = await start_connection(
                await self._addresses.find(address.host, address.port),
                happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
            )
            _, connection = await loop.create_connection(
                lambda: Connection(self._read_seconds),
                sock=sock,
                ssl=address.tls,
                server_hostname=address.host if address.tls else None,
            )
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection
