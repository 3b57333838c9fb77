"""Test that ``kinesumer metrics`` answers arbitrary requests without any output."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from kinesumer.ops.cli import serve
from tests.support.clock import wait_until

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
