"""Serve AWS calls with the responses, errors and delays that a test sets."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs

import pytest
import pytest_asyncio
from aiohttp import web
from botocore.loaders import create_loader

from kinesumer.aws.session import ClientFactory
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR_TYPE
from tests.support.cbor import decoded

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Seen(NamedTuple):
    """A request as it arrived."""

    operation: str
    access_key: str
    user_agent: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    raw: bytes


class AwsStub:
    """Answers each operation with its responses in order, and repeats the last one."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self._answers: defaultdict[str, deque[Handler]] = defaultdict(deque)
        # The error codes with which all calls of an access key are refused.
        self.refused_keys: dict[str, str] = {}
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    def reset(self) -> None:
        """Forget all requests and answers, so that another test can use the server."""
        self.seen.clear()
        self._answers.clear()
        self.refused_keys.clear()

    def answer(self, operation: str, body: object, status: int = 200) -> None:
        """Answer an operation with this body as JSON."""
        self.answer_raw(
            operation, json.dumps(body).encode(), status, "application/x-amz-json-1.1"
        )

    def answer_raw(
        self,
        operation: str,
        body: bytes,
        status: int = 200,
        content_type: str | None = None,
        after: float | asyncio.Event = 0.0,
    ) -> None:
        """Answer with these bytes, perhaps only after some seconds or an event."""

        async def handler(_: web.Request) -> web.StreamResponse:
            if isinstance(after, asyncio.Event):
                await after.wait()
            elif after:
                await asyncio.sleep(after)
            return web.Response(status=status, body=body, content_type=content_type)

        self._answers[operation].append(handler)

    def echo(
        self, operation: str, status: int, write: Callable[[str], str] = str
    ) -> None:
        """Answer as a proxy that repeats the request on a page, written in a way."""

        async def handler(request: web.Request) -> web.StreamResponse:
            lines = [f"{name}: {value}" for name, value in request.headers.items()]
            head, body = "\r\n".join(lines), (await request.read()).decode("latin-1")
            page = f"<html>Bad request: <pre>{write(head)} {write(body)}</pre></html>"
            return web.Response(status=status, text=page, content_type="text/html")

        self._answers[operation].append(handler)

    def forget(self, operation: str) -> None:
        """Remove the answers to an operation."""
        self._answers[operation].clear()

    def refuse(
        self, operation: str, code: str, message: str = "", status: int = 400
    ) -> None:
        """Answer an operation with an error response of AWS."""
        self.answer(operation, {"__type": code, "message": message}, status)

    def stall(self, operation: str) -> None:
        """Never answer an operation."""
        self.answer_raw(operation, b"", after=60.0)

    def drop(self, operation: str) -> None:
        """Close the connection without an answer."""
        self._break_off(operation, b"")

    def cut(self, operation: str) -> None:
        """Close the connection in the middle of the answer."""
        self._break_off(operation, b'{"Records":[')

    def begin(self, operation: str) -> None:
        """Send only the first byte of an answer."""
        self._break_off(operation, b" ", 60.0)

    def drip(self, operation: str) -> None:
        """Answer byte by byte, and never finish."""
        self._break_off(operation, b" ", 0.01)

    def _break_off(
        self, operation: str, part: bytes, repeat_seconds: float | None = None
    ) -> None:
        """Send a part of an answer, then close the connection or repeat the part."""

        async def handler(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            response = web.StreamResponse()
            response.content_length = 1_000_000
            if part:
                await response.prepare(request)
                await response.write(part)
            while repeat_seconds is not None:
                await asyncio.sleep(repeat_seconds)
                await response.write(part)
            request.transport.abort()
            return response

        self._answers[operation].append(handler)

    def assume_role(
        self, lifetime_seconds: float, operation: str = "AssumeRole"
    ) -> None:
        """Answer AssumeRole with new keys each time: ROLE1, ROLE2 …"""

        async def handler(_: web.Request) -> web.StreamResponse:
            number = self.count(operation)
            expires = datetime.now(UTC) + timedelta(seconds=lifetime_seconds)
            return web.Response(
                content_type="text/xml",
                text=f"""<{operation}Response><{operation}Result><Credentials>
                <AccessKeyId>ROLE{number}</AccessKeyId>
                <SecretAccessKey>secret</SecretAccessKey>
                <SessionToken>token</SessionToken>
                <Expiration>{expires.isoformat()}</Expiration>
                </Credentials></{operation}Result></{operation}Response>""",
            )

        self._answers[operation].append(handler)

    def refuse_role(
        self, code: str, message: str, status: int = 403, operation: str = "AssumeRole"
    ) -> None:
        """Answer AssumeRole with an error of STS."""
        self.answer_raw(operation, _xml_error(code, message), status, "text/xml")

    def count(self, operation: str) -> int:
        """Return the number of requests for an operation."""
        return Counter(seen.operation for seen in self.seen)[operation]

    def keys(self, operation: str) -> list[str]:
        """Return the access keys that signed the requests for an operation."""
        return [seen.access_key for seen in self.seen if seen.operation == operation]

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, web.BaseRequest)
        text = ""
        if request.content_type != CBOR_TYPE:
            text = await request.text()
        target = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        body: dict[str, Any] = {}
        if request.method == "GET":  # an agent of credentials, or SSO
            target, body = request.path, dict(request.query)
        elif target:
            body = json.loads(text) if text else decoded(await request.read())
        else:
            body = {name: values[0] for name, values in parse_qs(text).items()}
        operation = target or body["Action"]
        signature = request.headers.get("Authorization", "Credential=/")
        key = signature.partition("Credential=")[2].partition("/")[0]
        agent = request.headers.get("User-Agent", "")
        raw = await request.read()
        self.seen.append(Seen(operation, key, agent, body, request.headers, raw))
        if (code := self.refused_keys.get(key)) is not None:
            return _refusal(code, is_xml=not target)
        answers = self._answers[operation]
        handler = answers.popleft() if len(answers) > 1 else answers[0]
        return await handler(request)  # type: ignore[arg-type]


def _refusal(code: str, *, is_xml: bool) -> web.Response:
    if is_xml:
        body = _xml_error(code, "refused")
        return web.Response(status=403, body=body, content_type="text/xml")
    return web.json_response({"__type": code, "message": "refused"}, status=400)


def _xml_error(code: str, message: str) -> bytes:
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return f"<ErrorResponse>{error}</ErrorResponse>".encode()


_loader = cache(create_loader)


def _hide_this_machine(patch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            patch.delenv(name)
    patch.setenv("AWS_CONFIG_FILE", os.devnull)
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Hide the AWS configuration and instance credentials of this machine."""
    _hide_this_machine(monkeypatch)
    # Otherwise each session that a test creates would read AWS's definitions again.
    monkeypatch.setattr("botocore.session.create_loader", _loader)
    return monkeypatch


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stub() -> AsyncIterator[AwsStub]:
    """Start one server for all tests of a module."""
    async with AwsStub() as stub:
        yield stub


@pytest.fixture
def aws(stub: AwsStub, environment: pytest.MonkeyPatch) -> AwsStub:
    """Return the stub without answers. Point the environment to it."""
    stub.reset()
    environment.setenv("AWS_ENDPOINT_URL", stub.url)
    environment.setenv("AWS_ACCESS_KEY_ID", "OWN")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    return stub


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared_clients() -> AsyncIterator[ClientFactory]:
    """Open a factory whose AWS clients the tests of a module share."""
    with pytest.MonkeyPatch.context() as patch:
        _hide_this_machine(patch)
        factory = ClientFactory()
    async with factory as clients:
        yield clients


@pytest.fixture
def clients(aws: AwsStub, shared_clients: ClientFactory) -> ClientFactory:
    """Return the module's clients. Tests that change settings create their own."""
    return shared_clients
