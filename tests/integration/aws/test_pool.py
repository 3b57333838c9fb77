"""Test which connections the pool keeps or closes, and how many it allows."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from aiobotocore.session import AioSession
from aiohttp import web
from cryptography import x509

from kinesumer.aws import kinesis
from kinesumer.aws.http import pool as module
from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.pool import Address, ConnectionPool
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import Stream
from tests.integration.aws.stub import AwsStub
from tests.support.clock import PATIENCE_SECONDS, until
from tests.support.reservations import Room
from tests.support.tls_front import make_certificate

EMPTY = b'{"Records":[],"NextShardIterator":"y","MillisBehindLatest":0}'
LARGE = b'{"Records":[],"NextShardIterator":"%s"}' % (b"y" * 3_000_000)
ASK = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


class Server:
    """Gives each request the same answer, and counts connections."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.body, self.headers = EMPTY, dict[str, str]()
        self.peers: set[object] = set()
        # Requests that arrive are answered when so many have arrived.
        self.together = asyncio.Barrier(1)
        self._tls = tls
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0.1)
        self.port = 0

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        await self.together.wait()
        await asyncio.sleep(0.01)
        return web.Response(body=self.body, headers=self.headers)

    async def start(self) -> None:
        """Listen on a free port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    @property
    def place(self) -> Address:
        return Address("127.0.0.1", self.port, None)


@asynccontextmanager
async def started(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Start a server, and stop it at the end."""
    server = Server(tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def silent() -> AsyncIterator[int]:
    """Listen on a port, but never answer."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await asyncio.sleep(0.01)


def pool_of(limit: int, read_seconds: float = 3) -> ConnectionPool:
    return ConnectionPool(3, read_seconds, limit, AddressCache())


def patient_pool() -> ConnectionPool:
    return ConnectionPool(PATIENCE_SECONDS, PATIENCE_SECONDS, 20, AddressCache())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with started() as server:
        yield server


@pytest.fixture
async def connections() -> AsyncIterator[ConnectionPool]:
    connections = pool_of(limit=20)
    yield connections
    await connections.close()


async def test_requests_at_once_have_connections_of_their_own(
    server: Server, connections: ConnectionPool
) -> None:
    place = Address("localhost", server.port, None)
    server.together = asyncio.Barrier(20)
    for _ in range(2):
        await asyncio.gather(*(connections.send(place, ASK) for _ in range(20)))
    assert len(server.peers) == 20


async def test_few_tls_handshakes_take_place_at_a_time() -> None:
    connections, greeted = patient_pool(), 0

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        with suppress(ConnectionError):
            if await reader.read(1):
                greeted += 1
            await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = Address("127.0.0.1", port, ssl.create_default_context())
    asked = [asyncio.create_task(connections.send(place, ASK)) for _ in range(20)]
    await until(lambda: greeted >= module.HANDSHAKES)
    await asyncio.sleep(0.1)
    assert greeted == module.HANDSHAKES
    for task in asked:
        task.cancel()
    await asyncio.wait(asked)
    await connections.close()
    server.close()


async def test_a_task_that_waited_for_its_handshake_uses_what_has_become_idle(
    tmp_path: Path,
) -> None:
    connections = patient_pool()
    context, path = certified(tmp_path)
    async with started(context) as server:
        trusting = ssl.create_default_context(cafile=path)
        place = Address("localhost", server.port, trusting)
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
        await connections.close()


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
    pool = pool_of(limit=5)
    await pool.close()
    with pytest.raises(ConnectionAbortedError, match="closed meanwhile"):
        await pool.send(server.place, ASK)


# --- the limit -----------------------------------------------------------------------


async def test_more_requests_than_connections_take_turns(server: Server) -> None:
    connections = pool_of(limit=10)
    done = list[int]()

    async def ask(number: int) -> None:
        await connections.send(server.place, ASK)
        done.append(number)

    await asyncio.gather(*(ask(number) for number in range(200)))
    assert len(server.peers) == 10
    # Waiting calls are served in order. Ten run at once, and may end in another order.
    assert all(abs(number - index) < 10 for index, number in enumerate(done))
    await connections.close()


async def test_a_request_that_hangs_holds_up_none_but_its_own_connection(
    server: Server,
) -> None:
    connections = pool_of(limit=2, read_seconds=30)
    async with silent() as port:
        hung = Address("127.0.0.1", port, None)
        hanging = asyncio.ensure_future(connections.send(hung, ASK))
        asking = [connections.send(server.place, ASK) for _ in range(20)]
        answers = await asyncio.gather(*asking)
        assert {bytes(answer.body) for answer in answers} == {EMPTY}
        assert not hanging.done()
        hanging.cancel()
        await asyncio.wait([hanging])
        assert (await connections.send(server.place, ASK)).body == EMPTY
        await connections.close()


async def test_a_connection_that_idles_makes_room_for_another_host() -> None:
    connections = pool_of(limit=2)
    async with started() as one, started() as other:
        for place in (one.place, other.place) * 2:
            await asyncio.gather(*(connections.send(place, ASK) for _ in range(2)))
            await asyncio.sleep(0.01)  # until the closed connections are gone
            assert len(connections._open) <= 2
    await connections.close()


async def test_a_task_that_has_its_turn_need_not_wait_again(server: Server) -> None:
    connections = pool_of(limit=1)
    async with connections.slot():
        waiting = asyncio.ensure_future(connections.send(server.place, ASK))
        for _ in range(2):
            await connections.send(server.place, ASK)
        assert not waiting.done()
    await waiting
    await connections.close()


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
    environment.setattr(kinesis, "ANSWER_SECONDS", 1.0)
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


async def test_over_tls_too_an_answer_waits_for_room(
    connections: ConnectionPool, tmp_path: Path
) -> None:
    context, path = certified(tmp_path)
    trusting = ssl.create_default_context(cafile=path)

    async with started(context) as server:
        place = Address("localhost", server.port, trusting)
        for server.body in (EMPTY, LARGE, LARGE, EMPTY):
            room = Room(len(EMPTY), partial(asyncio.sleep, 0.2))
            answer = await connections.send(place, ASK, room)
            assert answer.body == server.body
            assert room.asked == [len(LARGE)] * (server.body == LARGE)
        assert len(server.peers) == 1


async def test_tls_connections_receive_into_one_buffer(
    connections: ConnectionPool, tmp_path: Path
) -> None:
    context, path = certified(tmp_path)
    trusting = ssl.create_default_context(cafile=path)
    async with started(context) as server:
        place = Address("localhost", server.port, trusting)
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
    ("host", "trusted"), [("localhost", True), ("localhost", False), ("other", True)]
)
async def test_a_server_needs_a_certificate_for_its_name_that_is_trusted(
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
    body: bytes,
    host: str,
    trusted: bool,
) -> None:
    context, path = certified(tmp_path, host)
    if trusted:
        environment.setenv("AWS_CA_BUNDLE", str(path))
    environment.setenv("AWS_ACCESS_KEY_ID", "OWN")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    async with started(context) as server, ClientFactory() as clients:
        server.body = body
        environment.setenv("AWS_ENDPOINT_URL", f"https://localhost:{server.port}")
        source = await open_source(clients, Stream("orders"))
        if host == "localhost" and trusted:
            for _ in range(2):
                page = await source.get_records("x", 10)
                assert page.wire_bytes == len(body)
            assert len(server.peers) == 1
        else:
            with pytest.raises(SourceUnavailableError, match=r"(?i)certificate"):
                await source.get_records("x", 10)
            assert not server.peers
