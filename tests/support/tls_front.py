"""Serve the embedded AWS through TLS, over HTTP/2 or HTTP/1.1."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame


class Front(NamedTuple):
    """A running server: its URL, and the file with the certificate to trust."""

    url: str
    authority: Path
    http2: list[H2Server]  # the connections of HTTP/2 so far


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for 127.0.0.1 and its key, and return both."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = directory / "cert.pem", directory / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file


@asynccontextmanager
async def tls_front(
    backend_url: str, directory: Path, *protocols: str, max_streams: int = 100
) -> AsyncIterator[Front]:
    """Serve a plain HTTP/1.1 server through TLS during the block.

    ``protocols`` are what the server offers: ``h2``, ``http/1.1`` or both.
    """
    parts = urlsplit(backend_url)
    backend = (parts.hostname or "", parts.port or 80)
    certificate, key = make_certificate(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(list(protocols))
    connections: list[H2Server] = []
    tasks: set[asyncio.Task[None]] = set()

    async def accept(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        encryption = writer.get_extra_info("ssl_object")
        try:
            if encryption.selected_alpn_protocol() == "h2":
                server = H2Server(reader, writer, backend, max_streams)
                connections.append(server)
                await server.run()
            else:
                await pipe_both(reader, writer, backend)
        except (OSError, H2Error):
            pass  # the client has closed the connection
        except asyncio.CancelledError:
            pass  # the server stops
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Front(f"https://127.0.0.1:{port}", certificate, connections)
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def pipe_both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    backend: tuple[str, int],
) -> None:
    """Pass bytes in both directions until one side closes."""
    back_reader, back_writer = await asyncio.open_connection(*backend)

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 18):
            sink.write(data)
            await sink.drain()

    ways = [
        asyncio.create_task(pipe(reader, back_writer)),
        asyncio.create_task(pipe(back_reader, writer)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        back_writer.transport.abort()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


class H2Server:
    """One HTTP/2 connection, whose requests go to a server of HTTP/1.1."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        backend: tuple[str, int],
        max_streams: int,
    ) -> None:
        self.requests = 0
        self.is_silent = False  # whether it sends nothing, as if the link were cut
        self._reader, self._writer, self._backend = reader, writer, backend
        self._http = H2Connection(
            H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self._http.local_settings = Settings(
            client=False,
            initial_values={SettingCodes.MAX_CONCURRENT_STREAMS: max_streams},
        )
        self._bodies: dict[int, bytearray] = {}
        self._heads: dict[int, list[tuple[str, str]]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._window = asyncio.Event()

    async def run(self) -> None:
        """Serve the connection until the client closes it."""
        self._http.initiate_connection()
        self._flush()
        try:
            while data := await self._reader.read(1 << 18):
                for event in self._http.receive_data(data):
                    self._handle(event)
                self._flush()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def go_away(self) -> None:
        """Accept no further streams. The open ones go on."""
        frame = GoAwayFrame(0, last_stream_id=self._http.highest_inbound_stream_id)
        self._writer.write(frame.serialize())

    def reset_streams(self) -> None:
        """Reset all streams."""
        for stream_id, task in list(self._tasks.items()):
            task.cancel()
            self._http.reset_stream(stream_id)
        self._tasks.clear()
        self._flush()

    def _handle(self, event: object) -> None:
        match event:
            case RequestReceived():
                self._heads[event.stream_id] = [
                    (str(name), str(value)) for name, value in event.headers or ()
                ]
                self._bodies[event.stream_id] = bytearray()
            case DataReceived():
                self._bodies[event.stream_id] += event.data or b""
                self._http.acknowledge_received_data(
                    event.flow_controlled_length or 0, event.stream_id
                )
            case StreamEnded():
                self.requests += 1
                task = asyncio.create_task(self._answer(event.stream_id))
                self._tasks[event.stream_id] = task
            case StreamReset():
                if event.stream_id in self._tasks:
                    self._tasks.pop(event.stream_id).cancel()
            case WindowUpdated():
                self._window.set()

    async def _answer(self, stream_id: int) -> None:
        head, body = self._heads.pop(stream_id), bytes(self._bodies.pop(stream_id))
        fields = {name: value for name, value in head if not name.startswith(":")}
        pseudo = dict(head[:4])
        fields["host"] = pseudo[":authority"]
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        reader, writer = await asyncio.open_connection(*self._backend, limit=1 << 20)
        try:
            writer.write(
                f"POST {pseudo[':path']} HTTP/1.1\r\n{lines}\r\n".encode() + body
            )
            status, length = await _read_head(reader)
            self._http.send_headers(stream_id, [(":status", str(status))])
            self._flush()
            if length is not None:
                await self._send(stream_id, await reader.readexactly(length))
            else:
                while size := int(await reader.readline(), 16):
                    await self._send(stream_id, await reader.readexactly(size))
                    await reader.readexactly(2)
            self._http.end_stream(stream_id)
            self._flush()
        except (asyncio.IncompleteReadError, ValueError, OSError):
            # The backend closed the connection in the middle of the response.
            self._http.reset_stream(stream_id)
            self._flush()
        finally:
            writer.transport.abort()

    async def _send(self, stream_id: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            window = self._http.local_flow_control_window(stream_id)
            size = min(window, len(view), self._http.max_outbound_frame_size)
            if size <= 0:
                self._window.clear()
                await self._window.wait()
                continue
            self._http.send_data(stream_id, bytes(view[:size]))
            view = view[size:]
            self._flush()
            await self._writer.drain()

    def _flush(self) -> None:
        data = self._http.data_to_send()
        if not self.is_silent:
            self._writer.write(data)


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, int | None]:
    """Return a response's status, and its length unless it comes in chunks."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    status = int(head.split(" ", 2)[1])
    for line in head.split("\r\n"):
        if line.startswith("content-length:"):
            return status, int(line.partition(":")[2])
    return status, None
