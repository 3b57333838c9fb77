"""Make the TLS settings of connections without aiobotocore."""

from __future__ import annotations

import os
import ssl
from functools import cache
from pathlib import Path

import botocore


def client_context(*protocols: str) -> ssl.SSLContext:
    """Return a context that trusts the authorities that botocore trusts.

    ``protocols`` are those that a connection offers to the server.
    """
    chosen = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    return _context(chosen or _usual_authorities(), protocols)


@cache
def _context(authorities: str, protocols: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authorities)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _usual_authorities() -> str:
    try:
        from certifi import where
    except ImportError:
        return str(Path(botocore.__file__).with_name("cacert.pem"))
    return where()
