"""Calls past botocore, for those made so often that its cost counts.

A poll of an idle shard is one GetRecords: through botocore and aiohttp it takes six
times the CPU. What users configure stays in force, since all that matters is asked of
the client: credentials, certificates, timeouts, the endpoint that its rules give for a
stream, its user agent. The client makes the call itself if the user's hooks are to see
it, through a proxy, and if connections have settings of their own.
"""

from __future__ import annotations

import io
import logging
import ssl
import time
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec
from aiobotocore.httpsession import AIOHTTPSession
from botocore.utils import get_environ_proxies

from kinesumer.aws.errors import FOREIGN, refusal
from kinesumer.aws.http.pool import Address
from kinesumer.aws.http.resolver import Resolver
from kinesumer.aws.http.sigv4 import Destination, Signer
from kinesumer.aws.settings import LIBRARIES
from kinesumer.errors import KinesumerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.awsrequest import AWSPreparedRequest

    from kinesumer.aws.http.connection import Answer
    from kinesumer.aws.session import OpenClient
    from kinesumer.ports import Reservation

LOGGER = logging.getLogger("kinesumer")

TARGET = "Kinesis_20131202"
LARGE_BYTES = 1 << 20
USUAL_SETTINGS = {"keepalive_timeout", "resolver"}
"""What aiohttp is told if users say nothing."""
EVENTS = (
    "provide-client-params",
    "before-parameter-build",
    "before-endpoint-resolution",
    "before-call",
    "request-created",
    "choose-signer",
    "before-sign",
    "before-send",
    "response-received",
    "before-parse",
    "needs-retry",
    "after-call",
    "after-call-error",
)
"""What botocore tells hooks of a call."""
UNOBSERVED = (*LIBRARIES, "kinesumer", "moto")
"""Packages whose hooks need not see the calls; moto's does nothing for aiobotocore."""
BODY = "kinesumer.body"
"""Where an answer's body is kept beside what botocore reads of it."""

_encode = msgspec.json.Encoder().encode


class Route(NamedTuple):
    """How to reach one endpoint."""

    signer: Signer
    sender: DirectSender


class DirectCalls:
    """Calls of one Kinesis client, made without most of it. See the module."""

    def __init__(
        self, opened: OpenClient, now: Callable[[], float] = time.time
    ) -> None:
        self._opened, self._now = opened, now
        self._config = opened.client.meta.config
        self._user_agent: str = self._config.user_agent
        self._ways: dict[tuple[str, object], Route | None] = {}

    async def get_records(
        self, reservation: Reservation | None = None, /, **arguments: object
    ) -> bytearray:
        """Return an answer's body. Raises what the client's own call would raise."""
        return await self._call(
            "GetRecords", "get_records", arguments, reservation=reservation
        )

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
        reservation: Reservation | None = None,
    ) -> bytearray:
        key = (operation, arguments.get("StreamARN"))
        if key not in self._ways:
            self._ways[key] = await self._way(operation, method, likewise or arguments)
        way = self._ways[key]
        if way is None:
            if reservation is not None and not reservation.covers(None):
                await reservation.grow(
                    None
                )  # the client tells nothing of an answer's size
            return await self._through_client(operation, method, arguments)
        body = _encode(arguments)
        keys = await self._opened.credentials.get_frozen_credentials()
        headers = way.signer.headers(keys, f"{TARGET}.{operation}", body, self._now())
        headers["user-agent"] = self._user_agent
        status, content = await way.sender.send(headers, body, reservation)
        if status != 200:
            raise refusal(operation, status, content)
        return content

    async def _way(
        self, operation: str, method: str, arguments: dict[str, object]
    ) -> Route | None:
        """Return the way past the client; None if the client is to make the call.

        What is asked of the client has no public name. What another version of it
        lacks must not be taken for a fault of the endpoint.
        """
        try:
            if is_hooked(self._opened.client.meta.events, operation):
                return None
            return await self._find(method, arguments)
        except (KinesumerError, *FOREIGN):
            raise
        except Exception as error:
            _warn(f"{type(error).__name__}: {error}")
            return None

    async def _find(self, method: str, arguments: dict[str, object]) -> Route | None:
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
        sender = await self._sender(found.url)
        return None if sender is None else Route(Signer(found), sender)

    async def _sender(self, url: str) -> DirectSender | None:
        http, config = self._opened.client._endpoint.http_session, self._config
        proxies = config.proxies
        if proxies is None:
            proxies = get_environ_proxies(url)
        scheme = urlsplit(url).scheme
        connector = config.connector_args
        if (
            not isinstance(http, AIOHTTPSession)
            or not set(connector) <= USUAL_SETTINGS
            or not isinstance(connector.get("resolver"), Resolver)
            or proxies.get(scheme)
        ):
            return None
        context = None
        if scheme == "https":
            session = await http._get_session(None)
            context = session.connector._ssl
            if not isinstance(context, ssl.SSLContext):
                return None
            # Older aiobotocore leaves the name out of a certificate's check.
            context.check_hostname = context.verify_mode is ssl.CERT_REQUIRED
        return DirectSender(self._opened, url, context)

    async def _through_client(
        self, operation: str, method: str, arguments: dict[str, object]
    ) -> bytearray:
        """Have the client make the call, and return the answer's body all the same."""
        client = self._opened.client
        hook = f"before-parse.kinesis.{operation}"
        # A second registration under the same id is ignored: clients are shared.
        client.meta.events.register_last(hook, _keep_body, unique_id=hook)
        hook = f"before-send.kinesis.{operation}"
        client.meta.events.register_first(hook, _send_as_file, unique_id=hook)
        plain = msgspec.to_builtins(arguments, builtin_types=(bytes,))
        answer = await getattr(client, method)(**plain)
        return bytearray(answer[BODY])


class DirectSender:
    """Sends through connections of our own."""

    def __init__(
        self, opened: OpenClient, url: str, tls: ssl.SSLContext | None
    ) -> None:
        parts = urlsplit(url)
        port = parts.port or (443 if tls else 80)
        self._connections = opened.connections
        self._address = Address(parts.hostname or "", port, tls)
        self._first = f"POST {parts.path or '/'} HTTP/1.1\r\n"

    async def send(
        self, headers: dict[str, str], body: bytes, reservation: Reservation | None
    ) -> Answer:
        """Return the answer. Raises OSError."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"{self._first}{lines}content-length: {len(body)}\r\n\r\n"
        return await self._connections.send(
            self._address, head.encode() + body, reservation=reservation
        )


def is_hooked(events: Any, operation: str) -> bool:
    """Tell whether users registered hooks that are told of an operation of Kinesis."""
    handlers = events._emitter._handlers
    return any(
        _module(handler).partition(".")[0] not in UNOBSERVED
        for event in EVENTS
        for handler in handlers.prefix_search(f"{event}.kinesis.{operation}")
    )


def _module(handler: object) -> str:
    return getattr(handler, "__module__", None) or type(handler).__module__


def _send_as_file(request: AWSPreparedRequest, **_: object) -> None:
    # aiohttp warns of large bytes, and sends a file in pieces.
    if isinstance(request.body, bytes) and len(request.body) >= LARGE_BYTES:
        request.body = io.BytesIO(request.body)


def _keep_body(
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: object,
) -> None:
    if response_dict["status_code"] == 200:
        customized_response_dict[BODY] = response_dict["body"]


@cache
def _warn(reason: str) -> None:
    """Say it once, however many streams there are."""
    LOGGER.warning(
        "calls of Kinesis go through aiobotocore, which takes more CPU: this version "
        "of it isn't known (%s); update kinesumer",
        reason,
    )
