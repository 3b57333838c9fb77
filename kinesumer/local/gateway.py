"""Serves a request: identity, faults, permission, service and request log."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from aiohttp import web

from kinesumer.local import dynamodb, identity
from kinesumer.local.dynamodb import Units
from kinesumer.local.faults import Call
from kinesumer.local.kinesis.requests import AnyRequest, GetRecords, decode
from kinesumer.local.kinesis.service import Caller
from kinesumer.local.request import AwsError, Request, parse_request

if TYPE_CHECKING:
    from kinesumer.local.faults import Fault
    from kinesumer.local.identity import Credentials
    from kinesumer.local.state import ServiceState

_CONTENT_TYPES = {
    "kinesis": "application/x-amz-json-1.1",
    "dynamodb": "application/x-amz-json-1.0",
    "sts": "text/xml",
}
_SHARD_OPERATIONS = ("GetRecords", "GetShardIterator", "PutRecord", "PutRecords")


class _Answer(NamedTuple):
    status: int
    body: bytes
    error: str | None = None
    units: Units = Units()


class _ConnectionAborted(Exception):
    """The connection must be closed without a response."""


class _Exchange(NamedTuple):
    """A request with its caller and decoded body."""

    inquiry: Request
    call: Call
    caller: Credentials
    request: AnyRequest | None


class Gateway:
    """Serves the requests of all services."""

    def __init__(self, world: ServiceState) -> None:
        self._world = world

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Serve a request, or close the connection if a fault requires it."""
        inquiry = parse_request(http.headers, await http.content.read())
        try:
            answer = await self._answer(inquiry)
        except _ConnectionAborted:
            if http.transport is not None:
                http.transport.abort()
            return web.Response()
        headers = {
            "Content-Type": _CONTENT_TYPES[inquiry.service],
            "Date": formatdate(self._world.clock.now(), usegmt=True),
            "x-amzn-RequestId": f"{id(http):032x}",
        }
        return web.Response(status=answer.status, body=answer.body, headers=headers)

    async def _answer(self, inquiry: Request) -> _Answer:
        call = _anonymous(inquiry)
        try:
            case = self._identify(inquiry, call)
            call = case.call
            answer, hangup = await self._attempt(case)
        except AwsError as error:
            answer, hangup = _refused(inquiry.service, error), None
        self._note(call, answer, hangup)
        if hangup is not None:
            raise _ConnectionAborted
        return answer

    def _identify(self, inquiry: Request, call: Call) -> _Exchange:
        inquiry.require_signature()
        world, request = self._world, None
        with world.lock:
            caller = world.identities.authenticate(
                inquiry.access_key, inquiry.session_token, world.clock.now()
            )
            call = call._replace(account=caller.account, caller=caller.arn)
            place = Caller(caller.account, inquiry.region)
            if inquiry.service == "kinesis":
                request = decode(inquiry.operation, inquiry.body)
                resource, shard = world.kinesis.target(request, place)
                call = call._replace(resource=resource, shard=shard)
            elif inquiry.service == "dynamodb":
                call = call._replace(resource=_table_arn(inquiry.body, place))
            else:
                call = call._replace(resource=inquiry.form.get("RoleArn", "*"))
        return _Exchange(inquiry, call, caller, request)

    async def _attempt(self, case: _Exchange) -> tuple[_Answer, str | None]:
        world = self._world
        with world.lock:
            faults = world.faults.strike(case.call, world.clock.now())
        if delay := sum(f.latency_seconds for f in faults if f.kind == "latency"):
            await asyncio.sleep(delay)
        kinds = {fault.kind for fault in faults}
        if "refuse" in kinds:
            return _Answer(0, b""), "refused"
        _raise_fault(case.call, faults)
        with world.lock:
            world.identities.authorize(
                case.caller, case.call.action, case.call.resource
            )
        if "empty_page" in kinds and isinstance(case.request, GetRecords):
            case.request.limit = 0
        answer = await self._serve(case)
        return answer, "dropped" if "drop" in kinds else None

    async def _serve(self, case: _Exchange) -> _Answer:
        world, inquiry = self._world, case.inquiry
        if inquiry.service == "dynamodb":
            future = world.dynamodb.submit(
                case.caller.account, inquiry.region, inquiry.operation, inquiry.body
            )
            done = await asyncio.wrap_future(future)
            return _Answer(done.status, done.body, done.error, done.units)
        with world.lock:
            now = world.clock.now()
            if case.request is None:
                return _Answer(
                    200,
                    identity.handle_sts(
                        world.identities, case.caller, inquiry.form, now
                    ),
                )
            place = Caller(case.caller.account, inquiry.region)
            result = world.kinesis.call(case.request, place, now)
        body = result if isinstance(result, bytes) else msgspec.json.encode(result)
        return _Answer(200, body)

    def _note(self, call: Call, answer: _Answer, hangup: str | None) -> None:
        with self._world.lock:
            self._world.journal.add(
                call,
                at=self._world.clock.now(),
                status=answer.status,
                error=hangup or answer.error,
                read_units=answer.units.read,
                write_units=answer.units.write,
            )


def _anonymous(inquiry: Request) -> Call:
    return Call(
        inquiry.service,
        inquiry.operation,
        access_key=inquiry.access_key,
        user_agent=inquiry.user_agent,
    )


def _table_arn(body: bytes, place: Caller) -> str:
    request = dynamodb.parse(body)
    table = request.get("TableName")
    if not isinstance(table, str):
        return "*"
    arn = f"arn:aws:dynamodb:{place.region}:{place.account}:table/{table}"
    if table.startswith("arn:"):
        arn = table
    index = request.get("IndexName")
    return arn if index is None else f"{arn}/index/{index}"


def _raise_fault(call: Call, faults: list[Fault]) -> None:
    for fault in faults:
        if fault.kind == "throttle":
            raise _throttled(call)
        if fault.kind == "error":
            code = "InternalFailureException"
            if call.service == "dynamodb":
                code = "InternalServerError"
            raise AwsError(code, "Internal server error (a fault on demand)", 500)
        if fault.kind == "expired_iterator":
            raise AwsError(
                "ExpiredIteratorException", "Iterator expired (a fault on demand)."
            )


def _throttled(call: Call) -> AwsError:
    what = f"Rate exceeded for {call.resource} (a fault on demand)"
    if call.service == "sts":
        return AwsError("ThrottlingException", what)
    if call.service == "kinesis" and call.operation not in _SHARD_OPERATIONS:
        return AwsError("LimitExceededException", what)
    return AwsError("ProvisionedThroughputExceededException", what)


def _refused(service: str, error: AwsError) -> _Answer:
    if service == "sts":
        return _Answer(*identity.sts_error(error), error.code)
    if service == "dynamodb":
        return _Answer(error.status, dynamodb.refusal(error), error.code)
    body = msgspec.json.encode({"__type": error.code, "message": error.message})
    return _Answer(error.status, body, error.code)
