"""Serve requests: check caller, faults and permission, call the service, and log."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from kinesumer.runtime.partitions import is_region
from kinesumer.testing.embedded_aws import dynamodb, identity
from kinesumer.testing.embedded_aws.dynamodb import Answer
from kinesumer.testing.embedded_aws.faults import TABLE_STREAMS, Call, Fault
from kinesumer.testing.embedded_aws.identity import Credentials, Identities
from kinesumer.testing.embedded_aws.pushing import KEY_TEXT, ConnectionAborted, Pushes
from kinesumer.testing.embedded_aws.state import ServiceState
from kinesumer.testing.kinesis.records import ReadPage
from kinesumer.testing.kinesis.requests import (
    AnyRequest,
    AwsError,
    CreateStream,
    GetRecords,
    RegisterStreamConsumer,
    invalid_request,
    limit_exceeded,
    resource_arn,
)
from kinesumer.testing.kinesis.service import Caller, decode
from kinesumer.testing.kinesis.subscription import Subscription, without_iterator
from kinesumer.testing.table_streams import requests as table_streams
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR_TYPE
from kinesumer.wire.cbor import Milliseconds, compiled, encode

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
    TABLE_STREAMS: "application/x-amz-json-1.0",
    "sts": "text/xml",
}
_SHARD_OPERATIONS = ("GetRecords", "GetShardIterator", "PutRecord", "PutRecords")


class _Exchange(NamedTuple):
    """A request with its caller and decoded body."""

    http: Request
    call: Call
    caller: Credentials
    request: AnyRequest | table_streams.AnyRequest | None
    keys: list[str]  # the partition keys of the rows that it concerns


class Gateway:
    """Serves the requests of all services."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self.pushes: Pushes = Pushes(state)

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Serve a request, or close the connection if a fault requires it."""
        request = parse_request(http.headers, await http.content.read())
        try:
            answer, call = await self._answer(request)
            if answer.subscription is not None:
                return await self.pushes.send(http, answer.subscription, call)
        except ConnectionAborted:
            if http.transport is not None:
                http.transport.abort()
            return web.Response()
        content_type, body = _CONTENT_TYPES[request.call.service], answer.body
        if request.call.content_type == CBOR_TYPE:
            content_type, body = CBOR_TYPE, from_json(body)
        headers = {
            "Content-Type": content_type,
            "Date": formatdate(self._state.clock.now(), usegmt=True),
            "x-amzn-RequestId": f"{id(http):032x}",
        }
        return web.Response(status=answer.status, body=body, headers=headers)

    async def _answer(self, http: Request) -> tuple[Answer, Call]:
        call, hangup = http.call, None
        try:
            exchange = self._identify(http)
            call = exchange.call
            answer, hangup = await self._attempt(exchange)
        except AwsError as error:
            answer = _error_answer(call.service, error)
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
            raise ConnectionAborted
        return answer, call

    def _identify(self, http: Request) -> _Exchange:
        call = http.call
        is_federated = call.operation == identity.WEB_IDENTITY
        if not call.access_key and not is_federated:
            raise AwsError(
                "MissingAuthenticationTokenException", "Missing Authentication Token"
            )
        if not (is_federated or is_region(http.region)):
            raise AwsError(
                "InvalidSignatureException",
                f"Credential should be scoped to a valid region, not {http.region!r}.",
            )
        state, shard = self._state, None
        request: AnyRequest | table_streams.AnyRequest | None = None
        keys: list[str] = []
        # Decode the body before the permission is checked, since it names the resource.
        with state.lock:
            if is_federated:
                caller = state.identities.federated(http.form.get("RoleArn", "*"))
            else:
                caller = state.identities.authenticate(
                    call.access_key, http.session_token, state.clock.now()
                )
            origin = Caller(caller.account, http.region)
            call = call._replace(account=caller.account, caller=caller.arn)
            if call.service == "kinesis":
                is_cbor = call.content_type == CBOR_TYPE
                body = to_json(http.body) if is_cbor else http.body
                request = decode(call.operation, body)
                resource, shard = state.kinesis.target(request, origin)
            elif call.service == TABLE_STREAMS:
                asked = table_streams.decode(call.operation, http.body)
                request = asked
                resource, shard = state.table_streams.target(asked)
            elif call.service == "dynamodb":
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
        if "empty_page" in kinds and isinstance(
            exchange.request, GetRecords | table_streams.GetRecords
        ):
            exchange.request.limit = 0
        answer = await self._serve(exchange)
        if "no_iterator" in kinds:
            answer = answer._replace(body=without_iterator(answer.body))
        return answer, "dropped" if "drop" in kinds else None

    async def _serve(self, exchange: _Exchange) -> Answer:
        state, http, caller = self._state, exchange.http, exchange.caller
        operation = exchange.call.operation
        if exchange.call.service == "dynamodb":
            return await asyncio.wrap_future(
                state.dynamodb.submit(caller.account, http.region, operation, http.body)
            )
        with state.lock:
            now = state.clock.now()
            if exchange.request is None:
                answer = identity.handle_sts(state.identities, caller, http.form, now)
                return Answer(200, answer)
            origin = Caller(caller.account, http.region)
            if isinstance(exchange.request, table_streams.AnyRequest):
                found = state.table_streams.call(exchange.request, origin, now)
                return Answer(200, msgspec.json.encode(found))
            result = state.kinesis.call(operation, exchange.request, origin, now)
        if isinstance(result, Subscription):
            return Answer(200, b"", subscription=result)
        if isinstance(result, ReadPage):
            result = result.response()
        return Answer(200, msgspec.json.encode(result))


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
    parts = dynamodb.table_actions(call.operation, exchange.http.body)
    if not parts:
        yield call.action, call.resource
    for action, table in parts:
        origin = Caller(exchange.caller.account, exchange.http.region)
        yield f"dynamodb:{action}", _table_arn({"TableName": table}, origin)
    if isinstance(request, CreateStream) and request.tags:
        yield "kinesis:AddTagsToStream", call.resource
    if isinstance(request, RegisterStreamConsumer) and request.tags:
        consumer = f"{call.resource}/consumer/{request.consumer_name}:0"
        yield "kinesis:TagResource", consumer
    if call.action == "dynamodb:CreateTable" and b'"Tags"' in exchange.http.body:
        yield "dynamodb:TagResource", call.resource


def _table_arn(request: Mapping[str, Any], origin: Caller) -> str:
    table = request.get("TableName") or request.get("ResourceArn")
    if table is None and isinstance(batch := request.get("RequestItems"), dict):
        table = next(iter(batch), None)
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
            if call.service in ("dynamodb", TABLE_STREAMS):
                code = "InternalServerError"
            raise AwsError(code, "Internal server error (a fault on demand)", 500)
        if fault.kind == "key":
            raise AwsError(fault.key_error, KEY_TEXT)
        if fault.kind == "expired_iterator":
            raise AwsError(
                "ExpiredIteratorException", "Iterator expired (a fault on demand)."
            )


def _throttled(call: Call) -> AwsError:
    message = f"Rate exceeded for {call.resource} (a fault on demand)"
    if call.service == TABLE_STREAMS and call.operation == "GetRecords":
        return limit_exceeded(message)
    if call.service in ("sts", TABLE_STREAMS):
        return AwsError("ThrottlingException", message)
    if call.service == "kinesis" and call.operation not in _SHARD_OPERATIONS:
        return limit_exceeded(message)
    return AwsError("ProvisionedThroughputExceededException", message)


def _error_answer(service: str, error: AwsError) -> Answer:
    if service == "sts":
        status, body = identity.sts_error(error)
        return Answer(status, body, error=error.code)
    if service in ("dynamodb", TABLE_STREAMS):
        return dynamodb.error_answer(error)
    body = msgspec.json.encode({"__type": error.code, "message": error.message})
    return Answer(error.status, body, error=error.code)


# --- the requests' format -------------------------------------------------------------

_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/[^/,]*/([^/,]*)/")
_SERVICES = {
    "Kinesis_20131202": "kinesis",
    "DynamoDB_20120810": "dynamodb",
    "DynamoDBStreams_20120810": TABLE_STREAMS,
}


class Request(NamedTuple):
    """An AWS request whose caller and resource aren't identified yet."""

    call: Call
    body: bytes
    form: Mapping[str, str]  # the fields of an STS request
    region: str
    session_token: str | None


def parse_request(headers: Mapping[str, str], body: bytes) -> Request:
    """Parse a request. A request without a known target header is an STS request."""
    prefix, _, operation = headers.get("X-Amz-Target", "").partition(".")
    service = _SERVICES.get(prefix, "sts")
    # The body of another service, such as CloudWatch, may not be text.
    text = body.decode(errors="replace") if service == "sts" else ""
    form = dict(parse_qsl(text))
    key, region = "", ""
    if match := _CREDENTIAL.search(headers.get("Authorization", "")):
        key, region = match.groups()
    call = Call(
        service,
        form.get("Action", "") if service == "sts" else operation,
        access_key=key,
        user_agent=headers.get("User-Agent", ""),
        content_type=headers.get("Content-Type", ""),
    )
    return Request(call, body, form, region, headers.get("X-Amz-Security-Token"))


def to_json(body: bytes) -> bytes:
    """Return a request in JSON. Raise AwsError if it isn't CBOR."""
    if compiled is None:
        raise invalid_request("CBOR needs the compiled decoder: use JSON.")
    try:
        return msgspec.json.encode(compiled.decode(body))
    except ValueError as error:
        raise invalid_request(f"The request is not CBOR: {error}.") from None


def from_json(body: bytes) -> bytes:
    """Return an answer in CBOR."""
    return encode(_typed("", msgspec.json.decode(body)))


def _typed(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _typed(key, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_typed(name, inner) for inner in value]
    if name == "Data":
        return b64decode(value)
    if name.endswith("Timestamp"):
        return Milliseconds(round(value * 1000))
    return value
