"""Sign POST requests of JSON services with AWS Signature Version 4."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from kinesumer.aws.credentials import FrozenCredentials

ALGORITHM = "AWS4-HMAC-SHA256"
CONTENT_TYPE = "application/x-amz-json-1.1"
_USUAL_PORTS = {("http", 80), ("https", 443)}


class Destination(NamedTuple):
    """A request's URL, and the region and service of its signature."""

    url: str
    region: str
    service: str

    @property
    def host(self) -> str:
        """The Host header, without the default port."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if ":" in host:
            host = f"[{host}]"
        if parts.port is None or (parts.scheme, parts.port) in _USUAL_PORTS:
            return host
        return f"{host}:{parts.port}"

    @property
    def path(self) -> str:
        """The path in the form that is signed."""
        path = urlsplit(self.url).path
        if path in ("", "/"):
            return "/"
        # Imported late: this takes 0.1 s of CPU time, and few endpoints have a path.
        from botocore.utils import normalize_url_path

        # For all services except S3, AWS signs a path that is encoded twice.
        return quote(normalize_url_path(path), safe="/~")


def encode_request(path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return a POST request as HTTP/1.1 sends it."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    size = len(body)
    head = f"POST {path} HTTP/1.1\r\n{lines}content-length: {size}\r\n\r\n"
    return head.encode() + body


class Signer:
    """Signs POST requests to one destination. The day's signing key is cached."""

    def __init__(self, destination: Destination) -> None:
        self._host, self._path = destination.host, destination.path
        self._region, self._service = destination.region, destination.service
        self._known: tuple[str, str] | None = None
        self._key = b""

    def headers(
        self,
        keys: FrozenCredentials,
        target: str,
        body: bytes,
        now: float,
        content_type: str = CONTENT_TYPE,
    ) -> dict[str, str]:
        """Return a request's signed headers. ``now`` is in seconds since 1970."""
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        headers = {
            "content-type": content_type,
            "host": self._host,
            "x-amz-date": date,
        }
        if keys.token:
            headers["x-amz-security-token"] = keys.token
        headers["x-amz-target"] = target
        # The headers are sorted by name, as Signature Version 4 requires.
        lines = "\n".join([f"{name}:{value}" for name, value in headers.items()])
        signed = ";".join(headers)
        digest = sha256(body).hexdigest()
        request = f"POST\n{self._path}\n\n{lines}\n\n{signed}\n{digest}"
        scope = f"{date[:8]}/{self._region}/{self._service}/aws4_request"
        text = f"{ALGORITHM}\n{date}\n{scope}\n{sha256(request.encode()).hexdigest()}"
        key = self._day_key(keys.secret_key, date[:8])
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"{ALGORITHM} Credential={keys.access_key}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}"
        )
        return headers

    def _day_key(self, secret: str, day: str) -> bytes:
        if self._known != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key, self._known = key, (secret, day)
        return self._key
