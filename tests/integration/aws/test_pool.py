"""Test which connections the pool keeps or closes, and how many it allows."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from aiobotocore.session import AioSession
from aiohttp import web
from cryptography import x509

from kinesumer.aws import polling
from kinesumer.aws.http import pool as module
from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.pool import Address, ConnectionPool
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import Stream
from kinesumer.runtime.tasks import cancel_and_wait
from tests.support.aws_stub import AwsStub
from tests.support.clock import PATIENCE_SECONDS, until
from tests.support.reservations import Room
from tests.support.tls_front import make_certificate

EMPTY = b'{"Records":[],"NextShardIterator":"y","MillisBehindLatest":0}'
LARGE = b'{"Records":[],"NextShardIterator":"%s"}' % (b"y" * 3_000_000)
ASK = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


class Server:
    """Gives each request the same answer, and counts connections."""

    def __init__(self) -> None:
        self.body, self.headers = EMPTY, dict[str, str]()
        self.peers: set[object] = set()
        # Requests that arrive are answered when so many have arrived.
        self.together = asyncio.Barrier(1)
        self.port = 0

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        await self.together.wait()
        await asyncio.sleep(0.01)
        return web.Response(body=self.body, headers=self.headers)

    @property
    def place(self) -> Address:
        return Address("127.0.0.1", self.port, None)


@asynccontextmanager
async def started(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Start a server on a free port, and stop it at the end."""
    server = Server()
    runner = web.ServerRunner(web.Server(server.serve), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()


class Silent:
    """Listens on a port, never answers, and counts the peers that sent a byte."""

    def __init__(self) -> None:
        self.greeted = self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._hold, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.sleep(0.01)

    async def _hold(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            byte = await reader.read(1)
            self.greeted += len(byte)
            await reader.read()
        writer.close()


@asynccontextmanager
async def pool_of(
    limit: int, read_seconds: float = 3, connect_seconds: float = 3
) -> AsyncIterator[ConnectionPool]:
    """Open a pool, and close its connections at the end."""
    pool = ConnectionPool(connect_seconds, read_seconds, limit, AddressCache())
    yield pool
    await pool.close()


def patient_pool() -> AbstractAsyncContextManager[ConnectionPool]:
    return pool_of(20, PATIENCE_SECONDS, PATIENCE_SECONDS)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with started() as server:
        yield server


@pytest.fixture
async def connections() -> AsyncIterator[ConnectionPool]:
    async with pool_of(limit=20) as connections:
        yield connections


async def test_requests_at_once_have_connections_of_their_own(
    server: Server, connections: ConnectionPool
) -> None:
    place = Address("localhost", server.port, None)
    server.together = asyncio.Barrier(20)
    for _ in range(2):
        await asyncio.gather(*(connections.send(place, ASK) for _ in range(20)))
    assert len(server.peers) == 20


async def test_few_tls_handshakes_take_place_at_a_time() -> None:
    async with Silent() as server, patient_pool() as connections:
        place = Address("127.0.0.1", server.port, ssl.create_default_context())
        asked = [asyncio.create_task(connections.send(place, ASK)) for _ in range(20)]
        await until(lambda: server.greeted >= module.HANDSHAKES)
        await asyncio.sleep(0.1)
        assert server.greeted == module.HANDSHAKES
        await cancel_and_wait(*asked)


async def test_a_task_that_waited_for_its_handshake_uses_what_has_become_idle(
    tmp_path: Path,
) -> None:
    async with trusted(tmp_path) as (server, place), patient_pool() as connections:
        await connections.send(place, ASK)
        turns = connections._connector._handshakes[place]
        for _ in range(module.HANDSHAKES):
            await turns.acquire()
        barrier = server.together = asyncio.Barrier(2)
        first = asyncio.create_task(connections.send(place, ASK))
        await until(lambda: barrier.n_waiting)
        second = asyncio.create_task(connections.send(place, ASK))
        server.together = asyncio.Barrier(1)
        await barrier.wait()
        await first
        turns.release()
        assert (await second).body == EMPTY
        assert len(server.peers) == 1


async def test_a_server_that_closes_after_its_answer_is_connected_to_anew(
    server: Server, connections: ConnectionPool
) -> None:
    server.headers["Connection"] = "close"
    for _ in range(3):
        assert (await connections.send(server.place, ASK)).body == EMPTY
    assert len(server.peers) == 3


async def test_a_connection_that_idled_for_long_is_not_used_again(
    server: Server, connections: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.0)
    for _ in range(3):
        await connections.send(server.place, ASK)
        await asyncio.sleep(0.01)
    assert len(server.peers) == 3


async def test_a_server_that_was_restarted_is_connected_to_anew(
    connections: ConnectionPool,
) -> None:
    async with started() as server:
        await connections.send(server.place, ASK)
    await asyncio.sleep(0.05)
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await connections.send(server.place, ASK)


async def test_a_request_under_way_fails_when_everything_is_closed(
    server: Server, connections: ConnectionPool
) -> None:
    asking = asyncio.ensure_future(connections.send(server.place, ASK))
    while not server.peers:
        await asyncio.sleep(0.001)
    await connections.close()
    with pytest.raises(ConnectionResetError):
        await asking


async def test_no_connection_opens_after_everything_was_closed(server: Server) -> None:
    async with pool_of(limit=5) as pool:
        await pool.close()
        with pytest.raises(ConnectionAbortedError, match="closed meanwhile"):
            await pool.send(server.place, ASK)


# --- the limit -----------------------------------------------------------------------


async def test_more_requests_than_connections_take_turns(server: Server) -> None:
    done = list[int]()
    async with pool_of(limit=10) as connections:

        async def ask(number: int) -> None:
            await connections.send(server.place, ASK)
            done.append(number)

        await asyncio.gather(*(ask(number) for number in range(200)))
    assert len(server.peers) == 10
    # Waiting calls are served in order. Ten run at once, and may end in another order.
    assert all(abs(number - index) < 10 for index, number in enumerate(done))


async def test_a_request_that_hangs_holds_up_none_but_its_own_connection(
    server: Server,
) -> None:
    async with pool_of(limit=2, read_seconds=30) as connections, Silent() as silent:
        hung = Address("127.0.0.1", silent.port, None)
        hanging = asyncio.create_task(connections.send(hung, ASK))
        asking = [connections.send(server.place, ASK) for _ in range(20)]
        answers = await asyncio.gather(*asking)
        assert {bytes(answer.body) for answer in answers} == {EMPTY}
        assert not hanging.done()
        await cancel_and_wait(hanging)
        assert (await connections.send(server.place, ASK)).body == EMPTY


async def test_a_connection_that_idles_makes_room_for_another_host() -> None:
    async with started() as one, started() as other, pool_of(limit=2) as connections:
        for place in (one.place, other.place) * 2:
            await asyncio.gather(*(connections.send(place, ASK) for _ in range(2)))
            await asyncio.sleep(0.01)  # until the closed connections are gone
            assert len(connections._open) <= 2


async def test_a_task_that_has_its_turn_need_not_wait_again(server: Server) -> None:
    async with pool_of(limit=1) as connections:
        async with connections.slot():
            waiting = asyncio.ensure_future(connections.send(server.place, ASK))
            for _ in range(2):
                await connections.send(server.place, ASK)
            assert not waiting.done()
        await waiting


@pytest.mark.pinned
@pytest.mark.parametrize("hooked", [False, True])
async def test_a_wait_for_a_connection_is_no_wait_for_an_answer(
    aws: AwsStub, environment: pytest.MonkeyPatch, hooked: bool
) -> None:
    """Ten reads share a connection, so the last one starts after the timeout."""
    session = AioSession()
    if hooked:
        events = session.get_component("event_emitter")
        events.register("before-send.kinesis.GetRecords", lambda **_: None)
    environment.setattr(polling, "ANSWER_SECONDS", 1.0)
    aws.answer_raw("GetRecords", EMPTY, after=0.15)
    async with ClientFactory(session, max_connections=1) as clients:
        source = await open_source(clients, Stream("orders"))
        reads = [source.get_records("s x", 10) for _ in range(10)]
        pages = await asyncio.gather(*reads)
    assert [page.next_iterator for page in pages] == ["s y"] * 10


# --- TLS -----------------------------------------------------------------------------


def certified(directory: Path, host: str = "localhost") -> tuple[ssl.SSLContext, Path]:
    """Return a server's context, and the file with its self-signed certificate."""
    certificate, key = make_certificate(directory, x509.DNSName(host))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context, certificate


@asynccontextmanager
async def trusted(directory: Path) -> AsyncIterator[tuple[Server, Address]]:
    """Start a server with TLS. Yield it, and its address with a client's context."""
    context, path = certified(directory)
    async with started(context) as server:
        trusting = ssl.create_default_context(cafile=path)
        yield server, Address("localhost", server.port, trusting)


async def test_over_tls_too_an_answer_waits_for_room(
    connections: ConnectionPool, tmp_path: Path
) -> None:
    async with trusted(tmp_path) as (server, place):
        for server.body in (EMPTY, LARGE, LARGE, EMPTY):
            room = Room(len(EMPTY), partial(asyncio.sleep, 0.2))
            answer = await connections.send(place, ASK, room)
            assert answer.body == server.body
            assert room.asked == [len(LARGE)] * (server.body == LARGE)
        assert len(server.peers) == 1


async def test_tls_connections_receive_into_one_buffer(
    connections: ConnectionPool, tmp_path: Path
) -> None:
    async with trusted(tmp_path) as (server, place):
        server.body = LARGE
        asked = [connections.send(place, ASK) for _ in range(4)]
        assert [answer.body for answer in await asyncio.gather(*asked)] == [LARGE] * 4
        buffers = [
            connection._transport._ssl_protocol.get_buffer(-1)  # type: ignore[union-attr]
            for connection in connections._open
        ]
        assert [buffer.obj is connections._connector.shared for buffer in buffers] == [
            True
        ] * 4


@pytest.mark.pinned
@pytest.mark.parametrize("body", [EMPTY, LARGE])
@pytest.mark.parametrize(
    ("host", "is_trusted"), [("localhost", True), ("localhost", False), ("other", True)]
)
async def test_a_server_needs_a_certificate_for_its_name_that_is_trusted(
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    body: bytes,
    host: str,
    is_trusted: bool,
) -> None:
    context, path = certified(tmp_path, host)
    if is_trusted:
        environment.setenv("AWS_CA_BUNDLE", str(path))
    environment.setenv("AWS_ACCESS_KEY_ID", "OWN")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    async with started(context) as server, ClientFactory() as clients:
        server.body = body
        environment.setenv("AWS_ENDPOINT_URL", f"https://localhost:{server.port}")
        source = await open_source(clients, Stream("orders"))
        if host == "localhost" and is_trusted:
            for _ in range(2):
                page = await source.get_records("x", 10)
                assert page.wire_bytes == len(body)
            assert len(server.peers) == 1
        else:
            with pytest.raises(SourceUnavailableError, match=r"(?i)certificate"):
                await source.get_records("x", 10)
            assert not server.peers
