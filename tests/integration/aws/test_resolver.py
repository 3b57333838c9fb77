"""Test that hosts are looked up once, and that no look-up delays the exit."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kinesumer.aws.http import addresses as address_cache
from kinesumer.aws.http.addresses import AddressCache

HOSTS = ["10.0.0.1", "10.0.0.2"]


class NameServer:
    """A name server that answers a lookup when the test tells it to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()
        self.error: Exception | None = None

    def look_up(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        assert self.answers.wait(30)
        if self.error is not None:
            raise self.error
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, (address, port)) for address in HOSTS]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.look_up)
    yield server
    server.answers.set()


async def hosts(addresses: AddressCache, name: str = "a") -> list[str]:
    return [str(found[4][0]) for found in await addresses.find(name, 443)]


async def test_a_host_is_looked_up_once_and_its_addresses_take_turns(
    server: NameServer,
) -> None:
    server.answers.set()
    addresses = AddressCache()
    one, other = await asyncio.gather(hosts(addresses), hosts(addresses))
    assert (one, other) == (HOSTS, HOSTS[::-1])
    assert await hosts(addresses) == HOSTS
    assert server.asked == ["a"]


@pytest.mark.parametrize("error", [socket.gaierror(-2, "unknown"), UnicodeError("no")])
async def test_what_went_wrong_is_told_and_not_remembered(
    server: NameServer, error: Exception
) -> None:
    addresses = AddressCache()
    server.answers.set()
    server.error = error
    with pytest.raises(type(error)):
        await hosts(addresses)
    server.error = None
    assert await hosts(addresses) == HOSTS


def test_a_silent_name_server_holds_up_the_end_of_no_loop(server: NameServer) -> None:
    async def give_up_twice() -> None:
        addresses = AddressCache()
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(hosts(addresses), 0.05)

    asyncio.run(give_up_twice())
    assert not server.answers.is_set()
    [waiting] = [t for t in threading.enumerate() if t.name == "kinesumer-addresses"]
    server.answers.set()
    waiting.join(10)
    assert server.asked == ["a"]


async def test_a_refused_thread_is_tried_again_at_the_next_call(
    monkeypatch: pytest.MonkeyPatch, server: NameServer
) -> None:
    addresses = AddressCache()
    server.answers.set()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="can't start new thread"):
                await asyncio.wait_for(hosts(addresses), 5)
    assert await hosts(addresses) == HOSTS


def _refuse(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_without_a_thread_the_last_addresses_are_used(
    monkeypatch: pytest.MonkeyPatch, server: NameServer
) -> None:
    addresses = AddressCache()
    server.answers.set()
    assert await hosts(addresses) == HOSTS
    monkeypatch.setattr(address_cache, "CACHE_SECONDS", -1.0)
    assert await hosts(addresses) == HOSTS[::-1]
    monkeypatch.setattr(threading.Thread, "start", _refuse)
    assert await hosts(addresses) == HOSTS


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_ip_address_needs_no_thread(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(threading.Thread, "start", _refuse)
    assert await hosts(AddressCache(), host) == [host]
