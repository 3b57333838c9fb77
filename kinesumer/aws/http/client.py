"""Send calls to Kinesis and DynamoDB directly, without botocore.

Polling an idle shard takes one GetRecords call, and storing a checkpoint one UpdateItem
call. Through botocore and aiohttp, they would take several times the CPU. The user's
settings still apply: credentials, certificates, time-outs, user agent, and the endpoint
that the AWS client would select. If the user has hooks, a proxy or connection settings,
the AWS client makes the calls.
"""

from __future__ import annotations

import io
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
from botocore import xform_name

from kinesumer.aws.clients import OpenClient, PlainClient, user_agent
from kinesumer.aws.errors import foreign, refusal
from kinesumer.aws.http.connection import Answer
from kinesumer.aws.http.event_stream import EventStream, EventStreamPool, RefusedError
from kinesumer.aws.http.pool import Address, client_context
from kinesumer.aws.http.sigv4 import (
    CONTENT_TYPE,
    Destination,
    Signer,
    encode_request,
)
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.ports import Reservation
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.threads import is_refusal
from kinesumer.wire import cbor

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest

T = TypeVar("T")
SUBSCRIBE = "SubscribeToShard"
# The arguments of these calls in the request by which the AWS client selects the
# endpoint: one small record is enough.
SAMPLES: dict[str, dict[str, object]] = {
    "PutRecords": {"Records": [{"Data": b"", "PartitionKey": "-"}]},
    SUBSCRIBE: {"ShardId": "shardId-0", "StartingPosition": {"Type": "LATEST"}},
}
# aiohttp warns about a body of more bytes.
LARGE_BYTES = 1 << 20
# The key under which ``Service.keep_body()`` adds the body to botocore's result.
BODY = "kinesumer.body"

_encode = msgspec.json.Encoder().encode


class Service(NamedTuple):
    """A service, and the headers of its calls."""

    name: str
    target: str
    content_type: str
    # Parses a response for the user's hooks. Without it, botocore parses the response.
    parse: Callable[[bytes], dict[str, Any]] | None = None
    # The arguments, beside ``StreamArn``, by which the AWS client selects the endpoint
    # of a call. It would refuse some arguments that other servers accept.
    samples: Mapping[str, Mapping[str, object]] = {}

    def keep_bodies(self, events: Any, operation: str) -> None:
        """Let botocore's results of an operation have the body, too."""
        # Several streams or tables share a client. It ignores a hook whose id it
        # already has.
        hook = f"before-parse.{self.name}.{operation}"
        events.register_last(hook, self.keep_body, unique_id=hook)

    def keep_body(
        self,
        response_dict: dict[str, Any],
        customized_response_dict: dict[str, Any],
        **_: object,
    ) -> None:
        """Add the body of a response to botocore's result: a hook of botocore."""
        if response_dict["status_code"] != 200:
            return
        body = customized_response_dict[BODY] = response_dict["body"]
        if self.parse is not None:
            customized_response_dict.update(self.parse(body))
            response_dict["body"] = b""  # leaves nothing for botocore to parse


KINESIS = Service("kinesis", "Kinesis_20131202", CONTENT_TYPE)
# Botocore takes up to 0.1 ms to parse a row.
DYNAMODB = Service(
    "dynamodb",
    "DynamoDB_20120810",
    "application/x-amz-json-1.0",
    msgspec.json.Decoder(dict[str, Any]).decode,
)


class Route:
    """Signs and sends requests to one endpoint, through the connection pool."""

    def __init__(
        self,
        opened: OpenClient | PlainClient,
        destination: Destination,
        tls: ssl.SSLContext | None,
        agent: str,
    ) -> None:
        parts = urlsplit(destination.url)
        port = parts.port or (443 if tls else 80)
        self._opened, self._signer = opened, Signer(destination)
        self._user_agent = agent
        self.address: Address = Address(parts.hostname or "", port, tls)
        self._path = parts.path or "/"

    async def send(self, request: bytes, reservation: Reservation | None) -> Answer:
        """Send a request and return its response.

        Raise OSError if that fails, and RefusedError if the status is not 200.
        """
        answer = await self._opened.connections.send(
            self.address, request, reservation=reservation
        )
        if answer.status != 200:
            raise RefusedError(answer.status, answer.body)
        return answer

    async def sign(
        self, target: str, body: bytes, content_type: str
    ) -> tuple[str, bytes]:
        """Return a signed request, after the id of the keys that signed it."""
        keys = await self._opened.credentials.get_frozen_credentials()
        headers = self._signer.headers(keys, target, body, time.time(), content_type)
        headers["user-agent"] = self._user_agent
        return keys.access_key, encode_request(self._path, headers, body)


class DirectCalls:
    """Makes the calls of one client directly. See the module's docstring."""

    def __init__(self, opened: OpenClient | PlainClient, service: Service) -> None:
        self._opened, self._service = opened, service
        self._routes: dict[tuple[str, object], Route | None] = {}

    async def call(
        self,
        operation: str,
        arguments: dict[str, object],
        reservation: Reservation | None = None,
        *,
        in_cbor: bool = False,
    ) -> Answer:
        """Return a response. Raise the same errors as the AWS client."""
        route = await self._route(operation, arguments)
        if route is None:
            # The AWS client doesn't tell the size of a response before it has arrived.
            if reservation is not None and not reservation.covers(None):
                await reservation.grow(None)
            return await self._through_client(operation, arguments)
        if in_cbor:
            body, content_type = cbor.encode(arguments), cbor.CONTENT_TYPE
        else:
            body, content_type = _encode(arguments), self._service.content_type
        send = partial(route.send, reservation=reservation)
        return await self._send_signed(route, operation, body, content_type, send)

    async def _send_signed(
        self,
        route: Route,
        operation: str,
        body: bytes,
        content_type: str,
        send: Callable[[bytes], Awaitable[T]],
    ) -> T:
        """Sign and send a request, and once more if there are other keys."""
        target, keys = f"{self._service.target}.{operation}", self._opened.keys
        is_repeated = False
        while True:
            key_id, request = await route.sign(target, body, content_type)
            try:
                answer = await send(request)
            except RefusedError as refused:
                error = refusal(operation, refused.status, refused.body)
            except OSError as broken:
                broken.add_note(route.address.url)  # for the library's error
                raise
            else:
                if not keys.works:
                    keys.accept()
                return answer
            if is_repeated or not await keys.replaces(error, key_id):
                raise error
            is_repeated = True

    async def _route(
        self, operation: str, arguments: dict[str, object]
    ) -> Route | None:
        key = (operation, arguments.get("StreamARN") or arguments.get("ConsumerARN"))
        if key not in self._routes:
            few = arguments | SAMPLES.get(operation, {})
            if (sample := self._service.samples.get(operation)) is not None:
                stream = arguments.get("StreamArn")
                few = dict(sample) | ({} if stream is None else {"StreamArn": stream})
            self._routes[key] = await self._find_route(operation, few)
        return self._routes[key]

    async def _find_route(
        self, operation: str, arguments: dict[str, object]
    ) -> Route | None:
        """Return the direct route, or None if the client must make the call.

        This uses private attributes of aiobotocore. If an unknown version lacks one of
        them, log a warning and return None.
        """
        opened = self._opened
        if not isinstance(opened, OpenClient):
            destination = opened.find_endpoint(operation, arguments)
            is_tls = urlsplit(destination.url).scheme == "https"
            tls = client_context() if is_tls else None
            return Route(opened, destination, tls, user_agent())
        # Imported late: this module imports aiobotocore.
        from kinesumer.aws.session_clients import is_hooked

        try:
            if is_hooked(opened.client.meta.events, self._service.name, operation):
                return None
            return await self._ask_client(opened.client, operation, arguments)
        except Exception as error:
            if is_refusal(error) or isinstance(error, (KinesumerError, *foreign())):
                raise
            _warn(self._service.name, f"{type(error).__name__}: {error}")
            return None

    async def _ask_client(
        self, client: Any, operation: str, arguments: dict[str, object]
    ) -> Route | None:
        """Return a route to the client's endpoint, or None for unusual settings."""
        # The endpoint may depend on the account in the stream's ARN. To learn it, let
        # the client create a presigned URL, which takes no request.
        signed = await client.generate_presigned_url(
            xform_name(operation), Params=arguments
        )
        parts = urlsplit(signed)
        [scope] = parse_qs(parts.query)["X-Amz-Credential"]
        _, _, region, service, _ = scope.rsplit("/", 4)
        url = parts._replace(query="").geturl()
        from kinesumer.aws.session_clients import has_usual_settings

        if not has_usual_settings(client, url):
            return None
        context = None
        if parts.scheme == "https":
            session = await client._endpoint.http_session._get_session(None)
            context = session.connector._ssl
            if not isinstance(context, ssl.SSLContext):
                return None
            # In older versions of aiobotocore, the context doesn't check the host name.
            context.check_hostname = context.verify_mode is ssl.CERT_REQUIRED
        agent = client.meta.config.user_agent
        return Route(self._opened, Destination(url, region, service), context, agent)

    async def _through_client(
        self, operation: str, arguments: dict[str, object]
    ) -> Answer:
        """Make the call through the client, and return the response."""
        client = await self._opened.library_client()
        self._service.keep_bodies(client.meta.events, operation)
        hook = f"before-send.{self._service.name}.{operation}"
        client.meta.events.register_first(hook, _send_as_file, unique_id=hook)
        plain = msgspec.to_builtins(arguments, builtin_types=(bytes,))
        answer = await getattr(client, xform_name(operation))(**plain)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return Answer(200, bytearray(answer[BODY]), date)


class KinesisCalls(DirectCalls):
    """Makes the calls of one Kinesis client directly, and subscribes to shards."""

    def __init__(self, opened: OpenClient | PlainClient) -> None:
        super().__init__(opened, KINESIS)

    async def subscribe(
        self, pool: EventStreamPool, arguments: dict[str, object]
    ) -> EventStream:
        """Return the event stream of SubscribeToShard.

        Raise the same errors as the AWS client, and ConfigurationError if the user's
        settings do not permit direct calls.
        """
        route = await self.subscription_route(arguments)
        send = partial(pool.open, route.address)
        return await self._send_signed(
            route, SUBSCRIBE, _encode(arguments), CONTENT_TYPE, send
        )

    async def subscription_route(self, arguments: dict[str, object]) -> Route:
        """Return the route of ``subscribe()``, or raise ConfigurationError."""
        route = await self._route(SUBSCRIBE, arguments)
        if route is None:
            raise ConfigurationError(
                "fan_out needs direct connections to Kinesis, which a proxy, hooks of "
                "the session or its connection settings prevent: leave fan_out out, or "
                "remove them"
            )
        return route


def _send_as_file(request: AWSPreparedRequest, **_: object) -> None:
    # aiohttp warns about a large bytes object, but not about a file.
    if isinstance(request.body, bytes) and len(request.body) >= LARGE_BYTES:
        request.body = io.BytesIO(request.body)


@cache
def _warn(service: str, reason: str) -> None:
    """Log each reason only once, even if it concerns several streams."""
    logger.warning(
        "%s is called through aiobotocore, which takes more CPU: this version of "
        "aiobotocore isn't supported (%s); update kinesumer",
        service,
        reason,
    )
