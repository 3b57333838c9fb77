"""Sends frequent calls to Kinesis directly, without botocore.

A poll of an idle shard is one GetRecords call, which takes six times the CPU through
botocore and aiohttp. The user's settings still apply: credentials, certificates,
time-outs, user agent, and the endpoint that the client's rules select for a stream.
The client itself makes the call if there are hooks, a proxy or connection settings.
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
"""aiohttp's arguments without settings of the user."""
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
"""The events of a call for which botocore runs hooks."""
UNOBSERVED = (*LIBRARIES, "kinesumer", "moto")
"""Packages whose hooks may miss the calls. Moto's has no effect on aiobotocore."""
BODY = "kinesumer.body"
"""The key of a response's undecoded body in botocore's result."""

_encode = msgspec.json.Encoder().encode


class Route(NamedTuple):
    """The signer and sender for one endpoint."""

    signer: Signer
    sender: DirectSender


class DirectCalls:
    """Makes the calls of one Kinesis client directly. See the module."""

    def __init__(
        self, opened: OpenClient, now: Callable[[], float] = time.time
    ) -> None:
        self._opened, self._now = opened, now
        self._config = opened.client.meta.config
        self._user_agent: str = self._config.user_agent
        self._routes: dict[tuple[str, object], Route | None] = {}

    async def get_records(
        self, reservation: Reservation | None = None, /, **arguments: object
    ) -> bytearray:
        """Return a response's body. Raise the errors of the client's own call."""
        return await self._call(
            "GetRecords", "get_records", arguments, reservation=reservation
        )

    async def get_shard_iterator(self, **arguments: object) -> bytearray:
        """Return a response's body. Raise the errors of the client's own call."""
        return await self._call("GetShardIterator", "get_shard_iterator", arguments)

    async def put_records(self, *, records: object, **stream: object) -> bytearray:
        """Return a response's body. Raise the errors of the client's own call."""
        # The client only selects the endpoint, so it gets one small record.
        sample = {"Records": [{"Data": b"", "PartitionKey": "-"}], **stream}
        sent = {"Records": records, **stream}
        return await self._call("PutRecords", "put_records", sent, sample)

    async def _call(
        self,
        operation: str,
        method: str,
        arguments: dict[str, object],
        sample: dict[str, object] | None = None,
        reservation: Reservation | None = None,
    ) -> bytearray:
        key = (operation, arguments.get("StreamARN"))
        if key not in self._routes:
            self._routes[key] = await self._find_route(
                operation, method, sample or arguments
            )
        route = self._routes[key]
        if route is None:
            # The client doesn't show the size of a response.
            if reservation is not None and not reservation.covers(None):
                await reservation.grow(None)
            return await self._through_client(operation, method, arguments)
        body = _encode(arguments)
        keys = await self._opened.credentials.get_frozen_credentials()
        headers = route.signer.headers(keys, f"{TARGET}.{operation}", body, self._now())
        headers["user-agent"] = self._user_agent
        status, content = await route.sender.send(headers, body, reservation)
        if status != 200:
            raise refusal(operation, status, content)
        return content

    async def _find_route(
        self, operation: str, method: str, arguments: dict[str, object]
    ) -> Route | None:
        """Return the direct route, or None if the client must make the call.

        This uses private attributes of the client. If another version lacks one, the
        error must not count as a failure of the endpoint.
        """
        try:
            if is_hooked(self._opened.client.meta.events, operation):
                return None
            return await self._ask_client(method, arguments)
        except (KinesumerError, *FOREIGN):
            raise
        except Exception as error:
            _warn(f"{type(error).__name__}: {error}")
            return None

    async def _ask_client(
        self, method: str, arguments: dict[str, object]
    ) -> Route | None:
        """Return the route to the endpoint that the client would use.

        The client may select an endpoint by the account in the stream's ARN. It shows
        the endpoint in a presigned URL, which it creates without a request.
        """
        client = self._opened.client
        signed = await client.generate_presigned_url(method, Params=arguments)
        parts = urlsplit(signed)
        [scope] = parse_qs(parts.query)["X-Amz-Credential"]
        _, _, region, service, _ = scope.rsplit("/", 4)
        destination = Destination(parts._replace(query="").geturl(), region, service)
        sender = await self._sender(destination.url)
        return None if sender is None else Route(Signer(destination), sender)

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
            # Older versions of aiobotocore don't check the host name.
            context.check_hostname = context.verify_mode is ssl.CERT_REQUIRED
        return DirectSender(self._opened, url, context)

    async def _through_client(
        self, operation: str, method: str, arguments: dict[str, object]
    ) -> bytearray:
        """Make the call through the client, and return the response's body."""
        client = self._opened.client
        hook = f"before-parse.kinesis.{operation}"
        # Streams share a client, which ignores a second registration of one id.
        client.meta.events.register_last(hook, _keep_body, unique_id=hook)
        hook = f"before-send.kinesis.{operation}"
        client.meta.events.register_first(hook, _send_as_file, unique_id=hook)
        plain = msgspec.to_builtins(arguments, builtin_types=(bytes,))
        answer = await getattr(client, method)(**plain)
        return bytearray(answer[BODY])


class DirectSender:
    """Sends requests to one URL through the connection pool."""

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
        """Send a request and return the response. Raise OSError."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"{self._first}{lines}content-length: {len(body)}\r\n\r\n"
        return await self._connections.send(
            self._address, head.encode() + body, reservation=reservation
        )


def is_hooked(events: Any, operation: str) -> bool:
    """Return whether the user has registered hooks for an operation of Kinesis."""
    handlers = events._emitter._handlers
    return any(
        _module(handler).partition(".")[0] not in UNOBSERVED
        for event in EVENTS
        for handler in handlers.prefix_search(f"{event}.kinesis.{operation}")
    )


def _module(handler: object) -> str:
    return getattr(handler, "__module__", None) or type(handler).__module__


def _send_as_file(request: AWSPreparedRequest, **_: object) -> None:
    # aiohttp warns about a large bytes object, but not about a file.
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
    """Log each reason once, for any number of streams."""
    LOGGER.warning(
        "Kinesis is called through aiobotocore, which takes more CPU: this version of "
        "aiobotocore isn't supported (%s); update kinesumer",
        reason,
    )
