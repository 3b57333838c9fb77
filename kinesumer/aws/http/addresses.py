"""Resolve host names on daemon threads. An IP address needs no thread.

When an event loop ends, it waits for asyncio's own threads. If no name server responds,
a look-up takes a minute. On one of those threads, it would delay the end of the
loop as long.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, cast

from kinesumer.errors import ThreadRefusedError
from kinesumer.runtime.threads import start_thread

if TYPE_CHECKING:
    from aiohappyeyeballs import AddrInfoType

    Address = tuple[str, int]
    Answer = asyncio.Future[list[AddrInfoType]]

# How long a host's addresses are cached. Many connections may be opened at once.
# aiohttp caches them for as long.
CACHE_SECONDS = 10.0
NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class AddressCache:
    """The addresses of hosts, for one event loop."""

    def __init__(self) -> None:
        self._known: dict[Address, tuple[float, list[AddrInfoType]]] = {}
        self._pending: dict[Address, Answer] = {}
        self._turn = itertools.count()

    async def find(self, host: str, port: int) -> list[AddrInfoType]:
        """Return a host's addresses, rotated at each call. Raise OSError on failure."""
        if _is_literal(host):
            return _addresses(host, port, NUMERIC)
        until, addresses = self._known.get((host, port), (0.0, []))
        if asyncio.get_running_loop().time() > until:
            try:
                answer = self._answer((host, port))
            except ThreadRefusedError:
                # Without a thread, the last known addresses are the best ones.
                if not addresses:
                    raise
            else:
                addresses = await asyncio.shield(answer)
        first = next(self._turn) % len(addresses)
        return addresses[first:] + addresses[:first]

    def _answer(self, address: Address) -> Answer:
        """Return the result of the look-up. Start a look-up unless one is running.

        Raise ThreadRefusedError if none can start.
        """
        answer = self._pending.get(address)
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
            start_thread(partial(_resolve, address, answer), "kinesumer-addresses")
            # The thread's result can't arrive before the loop's next step.
            answer.add_done_callback(lambda _: self._take(address))
            self._pending[address] = answer
        return answer

    def _take(self, address: Address) -> None:
        answer = self._pending.pop(address)
        if answer.exception() is None:
            until = asyncio.get_running_loop().time() + CACHE_SECONDS
            self._known[address] = until, answer.result()


def _resolve(address: Address, answer: Answer) -> None:
    host, port = address
    loop = answer.get_loop()
    with suppress(RuntimeError):  # raised if the loop has ended
        try:
            addresses = _addresses(host, port)
        except Exception as error:  # a name that can't be encoded raises UnicodeError
            loop.call_soon_threadsafe(answer.set_exception, error)
        else:
            loop.call_soon_threadsafe(answer.set_result, addresses)


def _addresses(host: str, port: int, flags: int = 0) -> list[AddrInfoType]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return cast("list[AddrInfoType]", infos)


def _is_literal(host: str) -> bool:
    """Return whether a host is an IP address, which needs no look-up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
