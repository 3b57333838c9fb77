"""Test that the dashboard and the metrics endpoint answer arbitrary requests."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple, cast

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from kinesumer.aws.session import ClientFactory
from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli import serve
from kinesumer.ops.dashboard.actions import (
    Action,
    ActionHandler,
    Drain,
    Pause,
    Resume,
    Seek,
)
from kinesumer.ops.dashboard.records import RecordBrowser
from kinesumer.ops.dashboard.server import TOKEN_HEADER
from kinesumer.ops.group.connect import NO_ROLES
from tests.support.clock import wait_until
from tests.support.served_page import served
from tests.support.toy_fleet import FakeActions, FakeRecords, ToyFleet
from tests.support.world import APP, World

DEEP = b'{"x":' + b"[" * 100_000


class Page(NamedTuple):
    """Makes requests to the dashboard like the page of a user who has the token."""

    port: int
    token: bytes

    def post(self, path: str, body: bytes, *more: bytes) -> bytes:
        """Return a POST request as the page sends it, with additional headers."""
        host = b"127.0.0.1:%d" % self.port
        headers = [
            b"POST /%b HTTP/1.1" % path.encode(),
            b"Host: %b" % host,
            b"Origin: http://%b" % host,
            b"Content-Length: %d" % len(body),
            *(more or [b"%b: %b" % (TOKEN_HEADER.encode(), self.token)]),
        ]
        return b"\r\n".join(headers) + b"\r\n\r\n" + body

    def get(self, path: bytes, *more: bytes) -> bytes:
        host = b"Host: 127.0.0.1:%d" % self.port
        return b"\r\n".join([b"GET %b HTTP/1.1" % path, host, *more]) + b"\r\n\r\n"

    async def ask(self, request: bytes) -> int:
        """Send a request. Return the status of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page() -> AsyncIterator[Page]:
    fleet = ToyFleet(["a"], {"orders": 2})
    actions, records = FakeActions(), FakeRecords()
    async with served(
        fleet,
        actions=cast("ActionHandler", actions),
        records=cast("RecordBrowser", records),
    ) as at:
        port = int(at.url.split(":")[2].split("/")[0])
        token = at.guard.exchange(at.url.partition("#token=")[2])
        assert token is not None
        yield Page(port, token.encode())


BODIES = {
    "deep": DEEP,
    "deeper": b"[" * 100_000,
    "no UTF-8": b'{"do":"pause","reason":"\xff"}',
    "a surrogate": b'{"do":"pause","reason":"\\ud800"}',
    "nothing": b"",
    "null": b"null",
    "a number for text": b'{"do":"seek","to":5}',
    "a list for a name": b'{"do":["seek"]}',
    "a change that there isn't": b'{"do":"format"}',
    "more than is known": b'{"do":"pause","all":true}',
    "no client": b'{"do":"drain"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
@pytest.mark.parametrize("path", ["change", "preview", "records", "token"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_that_isnt_an_action_is_refused(
    page: Page, caplog: pytest.LogCaptureFixture, path: str, body: bytes
) -> None:
    assert await page.ask(page.post(path, body)) == 400
    assert not caplog.records


@pytest.mark.asyncio(loop_scope="module")
async def test_invalid_requests_are_answered_and_not_logged(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    change = b'{"do":"pause"}'
    token = b"%b: %b" % (TOKEN_HEADER.encode(), page.token)
    squeezed = gzip.compress(b"0" * 3_000_000)
    for status, request in (
        (403, page.post("change", change, b"X-Kinesumer-Token: \xff\xfe")),
        (403, page.post("change", change, "X-Kinesumer-Token: é".encode())),
        (413, page.post("change", b"x" * 2_000_000)),
        (413, page.post("change", squeezed, token, b"Content-Encoding: gzip")),
        (400, page.post("change", change, token, b"Content-Encoding: gzip")),
        (400, page.post("change", change, token, b"Content-Encoding: deflate")),
        (400, page.post("change", change, token, b"Content-Length: -5")),
        (404, page.get(b"/%ff%00..%2f")),
        (400, page.get(b"http://[::1/")),
        (400, page.get(b"/", b"Host: evil.example")),
        (400, page.get(b"/" + b"a" * 100_000)),
        (400, page.get(b"/", *(b"h%d: x" % n for n in range(5_000)))),
        (400, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\n\r\n"),
    ):
        assert await page.ask(request) == status, request[:300]
    assert not caplog.records


SHARD = "shardId-000000000000"
IMPOSSIBLE: list[Action] = [
    Pause(stream=""),
    Pause(stream="payments"),
    Pause(stream="orders", shard=""),
    Pause(stream="orders", shard="shardId-9"),
    Pause(shard=SHARD),
    Resume(stream="\x1b[2J"),
    Resume(stream="orders", shard="x" * 9000),
    Drain(client=""),
    Seek(to="", stream="orders"),
    Seek(to="9" * 5000, stream="orders", shard=SHARD),
    Seek(to="49:" + "9" * 5000, stream="orders", shard=SHARD),
    Seek(to="1969-01-01T00:00:00Z", stream="orders"),
    Seek(to="LATEST", stream="payments"),
]


async def test_only_actions_on_known_objects_have_a_preview_and_an_effect(
    world: World,
) -> None:
    actions = ActionHandler(APP, cast("ClientFactory", None), world.table, NO_ROLES)
    client = world.client("c1")
    await world.until(lambda: client.held)
    before = world.shard_rows()
    for action in IMPOSSIBLE:
        for call in (actions.preview, actions.apply):
            with pytest.raises(ConfigurationError):
                await call(action)
    assert world.shard_rows() == before
    first, *_ = (await actions.preview(Pause(stream="orders"))).lines
    assert first == "c1 gives up 1 shard of orders"


# Closes a connection with a reset, as load balancers end their probes.
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "IDLE_TIMEOUT_SECONDS", 0.2)
        with serve._served(CollectorRegistry(), "127.0.0.1", 0) as url:
            yield int(url.split(":")[2].split("/")[0])


def ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        return connection.recv(100)


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc",
        b"GET /metrics?name[]=%ff%00&x=\xff HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAccept: \xff;q=nan\r\nAccept-Encoding: \xff\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
        b"\xff\xfe / HTTP/1.1\r\n\r\n",
    ],
    ids=lambda request: repr(request[:20]),
)
def test_any_request_is_answered_without_output(
    port: int, capfd: pytest.CaptureFixture[str], request_: bytes
) -> None:
    assert ask(port, request_)
    assert ask(port, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 200 OK")
    assert capfd.readouterr() == ("", "")


def test_silent_and_closed_connections_keep_no_thread(
    port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
    for connection in silent[:5]:
        connection.sendall(b"GET /metr")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()
    wait_until(lambda: threading.active_count() <= before)
    assert ask(port, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 200 OK")
    for connection in silent[5:]:
        connection.close()
    assert capfd.readouterr() == ("", "")
