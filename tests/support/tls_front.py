"""Serve the embedded AWS through TLS."""

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

LOCAL = x509.IPAddress(ip_address("127.0.0.1"))


class Front(NamedTuple):
    """A running server: its URL, and the file with the certificate to trust."""

    url: str
    authority: Path


def make_certificate(
    directory: Path, host: x509.GeneralName = LOCAL
) -> tuple[Path, Path]:
    """Write a host's certificate with its authority's, and its key. Return both files.

    A client that trusts the first file's certificates trusts the host.
    """
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority, name = _name("Test authority"), _name(str(host.value))
    # Some clients refuse an authority's certificate as that of a host.
    root = _certificate(authority, authority_key, authority, is_authority=True)
    own = _certificate(name, key, authority, is_authority=False).add_extension(
        x509.SubjectAlternativeName([host]), critical=False
    )
    cert_file, key_file = directory / "cert.pem", directory / "key.pem"
    cert_file.write_bytes(
        b"".join(
            each.sign(authority_key, hashes.SHA256()).public_bytes(
                serialization.Encoding.PEM
            )
            for each in (own, root)
        )
    )
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.BasicConstraints(ca=is_authority, path_length=None), critical=True
        )
    )


@asynccontextmanager
async def tls_front(backend_url: str, directory: Path) -> AsyncIterator[Front]:
    """Serve a plain server through TLS during the block."""
    parts = urlsplit(backend_url)
    backend = (parts.hostname or "", parts.port or 80)
    certificate, key = make_certificate(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    tasks: set[asyncio.Task[None]] = set()

    async def accept(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await pipe_both(reader, writer, backend)
        except OSError:
            pass  # the client has closed the connection
        except asyncio.CancelledError:
            pass  # the server stops
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Front(f"https://127.0.0.1:{port}", certificate)
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
