"""Let aiohttp resolve host names as our own connections do."""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from kinesumer.aws.http.addresses import NUMERIC, AddressCache


class Resolver(AbstractResolver):
    """Resolves hosts for aiohttp. Use it on one event loop only."""

    def __init__(self, addresses: AddressCache) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: int = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return a host's addresses of an address family. Raise OSError on failure."""
        addresses = await self._addresses.find(host, port)
        return [
            {
                "hostname": host,
                "host": str(address[0]),
                "port": port,
                "family": kind,
                "proto": protocol,
                "flags": NUMERIC,
            }
            for kind, _, protocol, _, address in addresses
            if family in (socket.AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """Do nothing: the threads of pending look-ups end by themselves."""
