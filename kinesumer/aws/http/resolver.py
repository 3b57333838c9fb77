"""Addresses of hosts, looked up on threads that nobody waits for at the end.

asyncio's own threads are joined when a loop ends. Where no name server answers, which
takes the system a minute to find out, every stop would last as long.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from aiohttp.abc import AbstractResolver

if TYPE_CHECKING:
    from aiohappyeyeballs import AddrInfoType
    from aiohttp.abc import ResolveResult

    Address = tuple[str, int]
    Answer = asyncio.Future[list[AddrInfoType]]

CACHE_SECONDS = 10.0
"""So long a host's addresses are remembered: many connections are made at once."""


class AddressCache:
    """What one event loop's client knows of hosts."""

    def __init__(self) -> None:
        self._known: dict[Address, tuple[float, list[AddrInfoType]]] = {}
        self._under_way: dict[Address, Answer] = {}
        self._turn = itertools.count()

    async def find(self, host: str, port: int) -> list[AddrInfoType]:
        """Return a host's addresses, each time beginning with another one.

        Raises OSError.
        """
        until, found = self._known.get((host, port), (0.0, []))
        if asyncio.get_running_loop().time() > until:
            found = await asyncio.shield(self._answer((host, port)))
        first = next(self._turn) % len(found)
        return found[first:] + found[:first]

    def _answer(self, address: Address) -> Answer:
        """Have one thread at a time ask for a host."""
        answer = self._under_way.get(address)
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
            answer.add_done_callback(lambda _: self._take(address))
            self._under_way[address] = answer
            threading.Thread(
                target=_resolve,
                args=(address, answer),
                name="kinesumer-addresses",
                daemon=True,
            ).start()
        return answer

    def _take(self, address: Address) -> None:
        answer = self._under_way.pop(address)
        if answer.exception() is None:
            until = asyncio.get_running_loop().time() + CACHE_SECONDS
            self._known[address] = until, answer.result()


class Resolver(AbstractResolver):
    """Addresses for clients of aiohttp. Belongs to the event loop that first asks."""

    def __init__(self) -> None:
        self._addresses = AddressCache()

    async def resolve(
        self, host: str, port: int = 0, family: int = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return a host's addresses of a family. Raises OSError."""
        found = await self._addresses.find(host, port)
        return [
            {
                "hostname": host,
                "host": str(address[0]),
                "port": port,
                "family": kind,
                "proto": protocol,
                "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            }
            for kind, _, protocol, _, address in found
            if family in (socket.AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """Leave lookups under way to their threads."""


def _resolve(address: Address, answer: Answer) -> None:
    host, port = address
    loop = answer.get_loop()
    with suppress(RuntimeError):  # the loop has ended: nobody wants to know any more
        try:
            given = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = cast("list[AddrInfoType]", given)
        except Exception as error:  # a name that can't be encoded raises UnicodeError
            loop.call_soon_threadsafe(answer.set_exception, error)
        else:
            loop.call_soon_threadsafe(answer.set_result, found)
