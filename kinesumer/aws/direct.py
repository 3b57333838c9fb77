"""Calls past botocore, for those made so often that its cost counts.

A poll of an idle shard is one GetRecords: through botocore and aiohttp it takes six
times the CPU. What users configure stays in force, since all that matters is asked of
the client: credentials, certificates, timeouts, the endpoint that its rules give for a
stream, its user agent. Through a proxy, or settings of aiohttp's own, aiohttp sends.
"""

from __future__ import annotations

import io
import ssl
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec
from botocore.awsrequest import AWSPreparedRequest

from kinesumer.aws.connection import Answer
from kinesumer.aws.connections import Place
from kinesumer.aws.faults import refusal
from kinesumer.aws.signing import Destination, Signer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.aws.session import Opened

TARGET = "Kinesis_20131202"
LARGE_BYTES = 1 << 20
USUAL_SETTINGS = {"keepalive_timeout"}
"""What aiobotocore tells aiohttp if users say nothing."""

_encode = msgspec.json.Encoder().encode


class Sender(Protocol):
    """Sends a signed request."""

    async def send(self, headers: dict[str, str], body: bytes) -> Answer: ...


class Way(NamedTuple):
    """How to reach one endpoint."""

    signer: Signer
    sender: Sender


class DirectCalls:
    """Calls of one Kinesis client, made without most of it. See the module."""

    def __init__(self, opened: Opened, now: Callable[[], float] = time.time) -> None:
        self._opened, self._now = opened, now
        self._user_agent: str = opened.client.meta.config.user_agent
        self._ways: dict[tuple[str, object], Way] = {}

    async def get_records(self, **arguments: object) -> bytearray:
        """Return an answer's body. Raises what the client's own call would raise."""
        return await self._call("GetRecords", "get_records", arguments)

    async def get_shard_iterator(self, **arguments: object) -> bytearray:
        """Return an answer's body. Raises what the client's own call would raise."""
        return await self._call("GetShardIterator", "get_shard_iterator", arguments)

    async def put_records(self, *, records: object, **stream: object) -> bytearray:
        """Return an answer's body. Raises what the client's own call would raise."""
        # The client only says where to: it needn't look at all that is sent there.
        likewise = {"Records": [{"Data": b"", "PartitionKey": "-"}], **stream}
        sent = {"Records": records, **stream}
        return await self._call("PutRecords", "put_records", sent, likewise)

    async def _call(
        self,
        operation: str,
        method: str,
        arguments: dict[str, object],
        likewise: dict[str, object] | None = None,
    ) -> bytearray:
        way = (operation, arguments.get("StreamARN"))
        if way not in self._ways:
            self._ways[way] = await self._find(method, likewise or arguments)
        signer, sender = self._ways[way]
        body = _encode(arguments)
        keys = await self._opened.credentials.get_frozen_credentials()
        headers = signer.headers(keys, f"{TARGET}.{operation}", body, self._now())
        headers["user-agent"] = self._user_agent
        status, content = await sender.send(headers, body)
        if status != 200:
            raise refusal(operation, status, content)
        return content

    async def _find(self, method: str, arguments: dict[str, object]) -> Way:
        """Ask the client where it would send a call, and signed for what.

        An account may have an endpoint of its own, by the stream's ARN. A signed URL,
        which the client makes without sending anything, tells.
        """
        client = self._opened.client
        signed = await client.generate_presigned_url(method, Params=arguments)
        parts = urlsplit(signed)
        [scope] = parse_qs(parts.query)["X-Amz-Credential"]
        _, _, region, service, _ = scope.rsplit("/", 4)
        found = Destination(parts._replace(query="").geturl(), region, service)
        return Way(Signer(found), await self._sender(found.url))

    async def _sender(self, url: str) -> Sender:
        # No public names lead there; both supported lines of aiobotocore have these.
        http = self._opened.client._endpoint.http_session
        arguments = getattr(http, "_connector_args", None)
        usual = arguments is not None and set(arguments) <= USUAL_SETTINGS
        if not usual or http._proxy_config.proxy_url_for(url):
            return ThroughAiohttp(http, url)
        context = None
        if url.startswith("https:"):
            session = await http._get_session(None)
            context = session.connector._ssl
            if not isinstance(context, ssl.SSLContext):
                return ThroughAiohttp(http, url)
            # Older aiobotocore leaves the name out of a certificate's check.
            context.check_hostname = context.verify_mode is ssl.CERT_REQUIRED
        return Straight(self._opened, url, context)


class Straight:
    """Sends through connections of our own."""

    def __init__(self, opened: Opened, url: str, tls: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        port = parts.port or (443 if tls else 80)
        self._connections = opened.connections
        self._place = Place(parts.hostname or "", port, tls)
        self._first = f"POST {parts.path or '/'} HTTP/1.1\r\n"

    async def send(self, headers: dict[str, str], body: bytes) -> Answer:
        """Return the answer. Raises OSError."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"{self._first}{lines}content-length: {len(body)}\r\n\r\n"
        return await self._connections.send(self._place, head.encode() + body)


class ThroughAiohttp:
    """Sends through aiobotocore's HTTP session, as its own calls are sent."""

    def __init__(self, http: Any, url: str) -> None:
        self._http, self._url = http, url

    async def send(self, headers: dict[str, str], body: bytes) -> Answer:
        """Return the answer. Raises one of ``faults.FOREIGN``."""
        # aiohttp warns of large bytes, and sends a file in pieces.
        sent = io.BytesIO(body) if len(body) >= LARGE_BYTES else body
        request = AWSPreparedRequest(
            "POST", self._url, headers, sent, stream_output=False
        )
        answer = await self._http.send(request)
        return Answer(answer.status_code, bytearray(await answer.content))
