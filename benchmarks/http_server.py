"""Run servers for benchmarks, each in a process until its standard input ends."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aiohttp import web

from tests.support.tls_front import make_certificate

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterator,
        Mapping,
    )

_TARGET = re.compile(rb"\r\nx-amz-target: [^\r]*\.(\w+)", re.I)
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.I)
# The directory of a server's certificate and key. Without it, the server has no TLS.
TLS_DIRECTORY = "BENCHMARK_TLS_DIRECTORY"


async def serve(handle: Callable[[web.BaseRequest], Awaitable[web.Response]]) -> None:
    """Serve on a free port until standard input ends. Print the URL first."""
    context = _tls_context()
    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    _print_url(runner.addresses[0][1], context)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


class Requests(asyncio.Protocol):
    """Receives the requests of one connection."""

    def __init__(self) -> None:
        self._received = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Handle the requests that are complete."""
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        length, target = _LENGTH.search(head), _TARGET.search(head)
        size = int(length[1]) if length else 0
        if end and len(rest) >= size:
            assert target is not None
            self._received = b""
            self.handle(target[1].decode(), head, rest[:size])
            self.data_received(rest[size:])

    def handle(self, operation: str, head: bytes, body: bytes) -> None:
        """Handle a request."""
        raise NotImplementedError

    def send(self, content_type: str, body: bytes) -> None:
        """Send an answer."""
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (content_type.encode(), len(body), body)
        )


@asynccontextmanager
async def listening(protocol: Callable[[], asyncio.Protocol]) -> AsyncIterator[None]:
    """Serve by a protocol on a free port during the block. Print the URL first."""
    loop, context = asyncio.get_running_loop(), _tls_context()
    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=context)
    _print_url(server.sockets[0].getsockname()[1], context)
    try:
        yield
    finally:
        server.close()


def _print_url(port: int, context: ssl.SSLContext | None) -> None:
    scheme = "http" if context is None else "https"
    print(f"{scheme}://127.0.0.1:{port}", flush=True)


def _tls_context() -> ssl.SSLContext | None:
    """Return the TLS context of this process's server, or None without TLS."""
    if TLS_DIRECTORY not in os.environ:
        return None
    directory = Path(os.environ[TLS_DIRECTORY])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return context


@contextmanager
def served_kinesis(
    module: str, *arguments: object, tls: bool
) -> Iterator[dict[str, str]]:
    """Run a server module, and yield the environment that leads clients to it.

    With ``tls``, the server speaks TLS 1.3.
    """
    with tempfile.TemporaryDirectory() as directory:
        if not tls:
            with served(module, *arguments) as url:
                yield {"AWS_ENDPOINT_URL_KINESIS": url}
            return
        authority, _ = make_certificate(Path(directory))
        with served(module, *arguments, **{TLS_DIRECTORY: directory}) as url:
            bundle = str(authority)
            yield {"AWS_ENDPOINT_URL_KINESIS": url, "AWS_CA_BUNDLE": bundle}


def printed_rate(
    module: str,
    *arguments: object,
    environment: Mapping[str, str],
    python: str = sys.executable,
) -> float:
    """Run a module in its own process, and return the number that it prints."""
    done = subprocess.run(
        [python, "-m", module, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


@contextmanager
def served(module: str, *arguments: object, **environment: str) -> Iterator[str]:
    """Run a server module in its own process, and yield its URL."""
    with running(module, *arguments, **environment) as (url, _):
        yield url


@contextmanager
def running(
    module: str, *arguments: object, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a server module in its own process, and yield its URL and the process."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
        process.communicate("")
