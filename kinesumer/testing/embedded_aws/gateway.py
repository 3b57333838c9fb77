"""Serve requests: check caller, faults and permission, call the service, and log."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from aiohttp import web

from kinesumer.runtime.partitions import is_region
from kinesumer.testing.embedded_aws import dynamodb, identity
from kinesumer.testing.embedded_aws.arns import resource_arn
from kinesumer.testing.embedded_aws.dynamodb import Answer
from kinesumer.testing.embedded_aws.faults import PUSHED_EVENT, Call
from kinesumer.testing.embedded_aws.kinesis import cbor
from kinesumer.testing.embedded_aws.kinesis.records import without_iterator
from kinesumer.testing.embedded_aws.kinesis.requests import (
    AnyRequest,
    CreateStream,
    GetRecords,
    RegisterStreamConsumer,
)
from kinesumer.testing.embedded_aws.kinesis.service import Caller, decode
from kinesumer.testing.embedded_aws.kinesis.subscription import (
    Subscription,
    exception_frame,
    initial_response,
    without_continuation,
)
from kinesumer.testing.embedded_aws.request import (
    AwsError,
    Request,
    limit_exceeded,
    parse_request,
)
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kinesumer.testing.embedded_aws.faults import Fault
    from kinesumer.testing.embedded_aws.identity import Credentials, Identities
    from kinesumer.testing.embedded_aws.state import ServiceState

# What the operations on an encrypted stream do with its key.
_KEY_ACTIONS = {
    "GetRecords": "kms:Decrypt",
    "PutRecord": "kms:GenerateDataKey",
    "PutRecords": "kms:GenerateDataKey",
    "SubscribeToShard": "kms:Decrypt",
}
_CONTENT_TYPES = {
    "kinesis": "application/x-amz-json-1.1",
    "dynamodb": "application/x-amz-json-1.0",
    "sts": "text/xml",
}
STALL_SECONDS = 60.0  # how long a stalled subscription sends nothing
_KEY_TEXT = "The key of the stream can't be used (a fault on demand)."
_SHARD_OPERATIONS = ("GetRecords", "GetShardIterator", "PutRecord", "PutRecords")


class _ConnectionAborted(Exception):
    """The connection must be closed without a response."""


class _Exchange(NamedTuple):
    """A request with its caller and decoded body."""

    http: Request
    call: Call
    caller: Credentials
    request: AnyRequest | None
    keys: list[str]  # the partition keys of the rows that it concerns


class Gateway:
    """Serves the requests of all services."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._is_closing = False
        # The connections of the subscriptions that send events.
        self._pushing: dict[Subscription, asyncio.Transport | None] = {}

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Serve a request, or close the connection if a fault requires it."""
        request = parse_request(http.headers, await http.content.read())
        try:
            answer, call = await self._answer(request)
            if answer.subscription is not None:
                return await self._push(http, answer.subscription, call)
        except _ConnectionAborted:
            if http.transport is not None:
                http.transport.abort()
            return web.Response()
        content_type, body = _CONTENT_TYPES[request.service], answer.body
        if request.content_type == CBOR_TYPE:
            content_type, body = CBOR_TYPE, cbor.from_json(body)
        headers = {
            "Content-Type": content_type,
            "Date": formatdate(self._state.clock.now(), usegmt=True),
            "x-amzn-RequestId": f"{id(http):032x}",
        }
        return web.Response(status=answer.status, body=body, headers=headers)

    async def _push(
        self, http: web.BaseRequest, subscription: Subscription, call: Call
    ) -> web.StreamResponse:
        """Send the events of a subscription until it ends."""
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/vnd.amazon.eventstream",
                "x-amzn-RequestId": f"{id(http):032x}",
            }
        )
        response.enable_chunked_encoding()
        call = call._replace(operation=PUSHED_EVENT)
        self._pushing[subscription] = http.transport
        try:
            await response.prepare(http)
            await response.write(initial_response())
            while not self._is_closing:
                with self._state.lock:
                    now = self._state.clock.now()
                    step = subscription.step(now)
                    faults = self._state.faults.strike(call, now) if step.frame else []
                frame, is_last = step.frame, step.is_last
                for fault in faults:
                    if fault.kind == "stall":
                        await self._stall(subscription, fault.latency_seconds)
                    else:
                        frame, is_last = await _apply(fault, frame, response)
                if frame:
                    await response.write(frame)
                if is_last:
                    await response.write_eof()
                    return response
                if not frame:
                    await subscription.wait(step.wait_seconds)
        except ConnectionError:  # the client has closed the connection
            return response
        finally:
            del self._pushing[subscription]
            with self._state.lock:
                subscription.close()
        raise _ConnectionAborted

    async def _stall(self, subscription: Subscription, seconds: float) -> None:
        """Send nothing for some seconds, or until the server stops."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (seconds or STALL_SECONDS)
        while not self._is_closing and (left := end - loop.time()) > 0:
            await subscription.wait(left)

    def close(self) -> None:
        """End all subscriptions, since the server stops."""
        self._is_closing = True
        for subscription, transport in self._pushing.items():
            subscription.wake()
            if transport is not None:
                transport.abort()

    async def _answer(self, http: Request) -> tuple[Answer, Call]:
        call = Call(
            http.service,
            http.operation,
            access_key=http.access_key,
            user_agent=http.user_agent,
            content_type=http.content_type,
        )
        hangup = None
        try:
            exchange = self._identify(http, call)
            call = exchange.call
            answer, hangup = await self._attempt(exchange)
        except AwsError as error:
            answer = _error_answer(http.service, error)
        with self._state.lock:
            self._state.journal.add(
                call,
                at=self._state.clock.now(),
                status=answer.status,
                error=hangup or answer.error,
                units=answer.units,
            )
        if hangup is not None:
            if answer.subscription is not None:
                with self._state.lock:
                    answer.subscription.close()
            raise _ConnectionAborted
        return answer, call

    def _identify(self, http: Request, call: Call) -> _Exchange:
        is_federated = http.operation == identity.WEB_IDENTITY
        if not http.access_key and not is_federated:
            raise AwsError(
                "MissingAuthenticationTokenException", "Missing Authentication Token"
            )
        if not (is_federated or is_region(http.region)):
            raise AwsError(
                "InvalidSignatureException",
                f"Credential should be scoped to a valid region, not {http.region!r}.",
            )
        state, request, shard = self._state, None, None
        keys: list[str] = []
        # Decode the body before the permission is checked, since it names the resource.
        with state.lock:
            if is_federated:
                caller = state.identities.federated(http.form.get("RoleArn", "*"))
            else:
                caller = state.identities.authenticate(
                    http.access_key, http.session_token, state.clock.now()
                )
            origin = Caller(caller.account, http.region)
            call = call._replace(account=caller.account, caller=caller.arn)
            if http.service == "kinesis":
                body = http.body
                if http.content_type == CBOR_TYPE:
                    body = cbor.to_json(body)
                request = decode(http.operation, body)
                resource, shard = state.kinesis.target(request, origin)
            elif http.service == "dynamodb":
                body_of_table = dynamodb.parse(http.body)
                keys = dynamodb.partition_keys(body_of_table)
                resource = _table_arn(body_of_table, origin)
            else:
                resource = http.form.get("RoleArn", "*")
        call = call._replace(resource=resource, shard=shard)
        return _Exchange(http, call, caller, request, keys)

    async def _attempt(self, exchange: _Exchange) -> tuple[Answer, str | None]:
        state, call = self._state, exchange.call
        with state.lock:
            faults = state.faults.strike(call, state.clock.now())
        if delay := sum(f.latency_seconds for f in faults if f.kind == "latency"):
            await asyncio.sleep(delay)
        # After this delay, the call can still be throttled or denied.
        kinds = {fault.kind for fault in faults}
        if "refuse" in kinds:
            return Answer(0, b""), "refused"
        _raise_fault(call, faults)
        with state.lock:
            for action, resource in _permissions(exchange):
                _authorize(state.identities, exchange, action, resource)
            key = state.kinesis.key_of(call.resource)
            if key is not None and call.operation in _KEY_ACTIONS:
                action = _KEY_ACTIONS[call.operation]
                _authorize(state.identities, exchange, action, key)
        # With a limit of 0, the page has no records, but still an iterator and the lag.
        if "empty_page" in kinds and isinstance(exchange.request, GetRecords):
            exchange.request.limit = 0
        answer = await self._serve(exchange)
        if "no_iterator" in kinds:
            answer = answer._replace(body=without_iterator(answer.body))
        return answer, "dropped" if "drop" in kinds else None

    async def _serve(self, exchange: _Exchange) -> Answer:
        state, http, caller = self._state, exchange.http, exchange.caller
        if http.service == "dynamodb":
            return await asyncio.wrap_future(
                state.dynamodb.submit(
                    caller.account, http.region, http.operation, http.body
                )
            )
        with state.lock:
            now = state.clock.now()
            if exchange.request is None:
                answer = identity.handle_sts(state.identities, caller, http.form, now)
                return Answer(200, answer)
            origin = Caller(caller.account, http.region)
            result = state.kinesis.call(http.operation, exchange.request, origin, now)
        if isinstance(result, Subscription):
            return Answer(200, b"", subscription=result)
        body = result if isinstance(result, bytes) else msgspec.json.encode(result)
        return Answer(200, body)


def _authorize(
    identities: Identities, exchange: _Exchange, action: str, resource: str
) -> None:
    try:
        identities.authorize(exchange.caller, action, resource, exchange.keys)
    except AwsError as error:
        if action.startswith("kms:"):
            raise AwsError("KMSAccessDeniedException", error.message) from None
        raise


def _permissions(exchange: _Exchange) -> Iterator[tuple[str, str]]:
    """Yield each action that a request needs, with its resource."""
    call, request = exchange.call, exchange.request
    yield call.action, call.resource
    if isinstance(request, CreateStream) and request.tags:
        yield "kinesis:AddTagsToStream", call.resource
    if isinstance(request, RegisterStreamConsumer) and request.tags:
        consumer = f"{call.resource}/consumer/{request.consumer_name}:0"
        yield "kinesis:TagResource", consumer
    if call.action == "dynamodb:CreateTable" and b'"Tags"' in exchange.http.body:
        yield "dynamodb:TagResource", call.resource


async def _apply(
    fault: Fault, frame: bytes, response: web.StreamResponse
) -> tuple[bytes, bool]:
    """Return the frame to send in place of another one, and whether it is the last."""
    match fault.kind:
        case "exception_event":
            text = "Internal failure (a fault on demand)"
            return exception_frame("InternalFailureException", text), True
        case "key":
            return exception_frame(fault.key_error, _KEY_TEXT), True
        case "corrupt":
            return frame[:-1] + bytes([frame[-1] ^ 1]), False
        case "no_continuation":
            return without_continuation(frame), True
        case _:
            await response.write(frame[: len(frame) // 2])
            raise _ConnectionAborted


def _table_arn(request: Mapping[str, Any], origin: Caller) -> str:
    table = request.get("TableName") or request.get("ResourceArn")
    if not isinstance(table, str):
        return "*"
    arn = resource_arn("dynamodb", origin.region, origin.account, f"table/{table}")
    if table.startswith("arn:"):
        arn = table
    index = request.get("IndexName")
    return arn if index is None else f"{arn}/index/{index}"


def _raise_fault(call: Call, faults: list[Fault]) -> None:
    for fault in faults:
        if fault.kind == "throttle":
            raise _throttled(call)
        if fault.kind == "error" and fault.code:
            raise AwsError(fault.code, f"{fault.code} (a fault on demand)")
        if fault.kind == "error":
            code = "InternalFailureException"
            if call.service == "dynamodb":
                code = "InternalServerError"
            raise AwsError(code, "Internal server error (a fault on demand)", 500)
        if fault.kind == "key":
            raise AwsError(fault.key_error, _KEY_TEXT)
        if fault.kind == "expired_iterator":
            raise AwsError(
                "ExpiredIteratorException", "Iterator expired (a fault on demand)."
            )


def _throttled(call: Call) -> AwsError:
    message = f"Rate exceeded for {call.resource} (a fault on demand)"
    if call.service == "sts":
        return AwsError("ThrottlingException", message)
    if call.service == "kinesis" and call.operation not in _SHARD_OPERATIONS:
        return limit_exceeded(message)
    return AwsError("ProvisionedThroughputExceededException", message)


def _error_answer(service: str, error: AwsError) -> Answer:
    if service == "sts":
        status, body = identity.sts_error(error)
        return Answer(status, body, error=error.code)
    if service == "dynamodb":
        return dynamodb.error_answer(error)
    body = msgspec.json.encode({"__type": error.code, "message": error.message})
    return Answer(error.status, body, error=error.code)
