"""A server that answers AWS calls as a test says: refusals, stalls, dropped lines."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict, deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

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
    """Answers in the order given for each operation; the last one stays."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self._answers: defaultdict[str, deque[Handler]] = defaultdict(deque)
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        """Listen on a free port."""
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    def answer(self, operation: str, body: object, status: int = 200) -> None:
        """Answer with JSON."""

        async def handler(_: web.Request) -> web.StreamResponse:
            return web.Response(
                status=status,
                body=json.dumps(body).encode(),
                content_type="application/x-amz-json-1.1",
            )

        self._answers[operation].append(handler)

    def answer_raw(self, operation: str, body: bytes, status: int) -> None:
        """Answer with these bytes."""

        async def handler(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, body=body)

        self._answers[operation].append(handler)

    def forget(self, operation: str) -> None:
        """Have no answer for an operation any more."""
        self._answers[operation].clear()

    def refuse(
        self, operation: str, code: str, message: str = "", status: int = 400
    ) -> None:
        """Answer with an error of AWS."""
        self.answer(operation, {"__type": code, "message": message}, status)

    def answer_after(self, operation: str, seconds: float, body: bytes) -> None:
        """Answer with these bytes, some time after the request."""

        async def handler(_: web.Request) -> web.StreamResponse:
            await asyncio.sleep(seconds)
            return web.Response(body=body)

        self._answers[operation].append(handler)

    def refuse_after(self, operation: str, event: asyncio.Event, code: str) -> None:
        """Answer with an error of AWS when an event is set."""

        async def handler(_: web.Request) -> web.StreamResponse:
            await event.wait()
            body = json.dumps({"__type": code, "message": ""}).encode()
            return web.Response(status=400, body=body)

        self._answers[operation].append(handler)

    def drop(self, operation: str) -> None:
        """Close the connection without an answer."""

        async def handler(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        self._answers[operation].append(handler)

    def cut(self, operation: str) -> None:
        """Close the connection in the middle of the answer."""

        async def handler(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            response.content_length = 1000
            await response.prepare(request)
            await response.write(b'{"Records":[')
            assert request.transport is not None
            request.transport.abort()
            return response

        self._answers[operation].append(handler)

    def stall(self, operation: str) -> None:
        """Never answer."""

        async def handler(_: web.Request) -> web.StreamResponse:
            await asyncio.sleep(60)
            return web.Response()

        self._answers[operation].append(handler)

    def drip(self, operation: str) -> None:
        """Answer byte by byte, without an end."""

        async def handler(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            response.content_length = 1_000_000
            await response.prepare(request)
            while True:
                await response.write(b" ")
                await asyncio.sleep(0.01)

        self._answers[operation].append(handler)

    def begin(self, operation: str) -> None:
        """Begin an answer, and say nothing more."""

        async def handler(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            response.content_length = 1_000_000
            await response.prepare(request)
            await response.write(b" ")
            await asyncio.sleep(60)
            return response

        self._answers[operation].append(handler)

    def assume_role(self, lifetime_seconds: float) -> None:
        """Answer AssumeRole with new keys each time: ROLE1, ROLE2 …"""

        async def handler(_: web.Request) -> web.StreamResponse:
            number = self.count("AssumeRole")
            expires = datetime.now(UTC) + timedelta(seconds=lifetime_seconds)
            return web.Response(
                content_type="text/xml",
                text=f"""<AssumeRoleResponse><AssumeRoleResult><Credentials>
                <AccessKeyId>ROLE{number}</AccessKeyId>
                <SecretAccessKey>secret</SecretAccessKey>
                <SessionToken>token</SessionToken>
                <Expiration>{expires.isoformat()}</Expiration>
                </Credentials></AssumeRoleResult></AssumeRoleResponse>""",
            )

        self._answers["AssumeRole"].append(handler)

    def refuse_role(self, code: str, message: str, status: int = 403) -> None:
        """Answer AssumeRole with an error of STS."""

        async def handler(_: web.Request) -> web.StreamResponse:
            return web.Response(
                status=status,
                content_type="text/xml",
                text=f"<ErrorResponse><Error><Code>{code}</Code>"
                f"<Message>{message}</Message></Error></ErrorResponse>",
            )

        self._answers["AssumeRole"].append(handler)

    def count(self, operation: str) -> int:
        """Return how many requests for an operation came."""
        return Counter(seen.operation for seen in self.seen)[operation]

    def keys(self, operation: str) -> list[str]:
        """Return the access keys that signed the requests for an operation."""
        return [seen.access_key for seen in self.seen if seen.operation == operation]

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, web.BaseRequest)
        text = await request.text()
        target = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        if target:
            body = json.loads(text)
        else:
            body = {name: values[0] for name, values in parse_qs(text).items()}
        operation = target or body["Action"]
        signature = request.headers.get("Authorization", "Credential=/")
        key = signature.partition("Credential=")[2].partition("/")[0]
        agent = request.headers.get("User-Agent", "")
        raw = await request.read()
        self.seen.append(Seen(operation, key, agent, body, request.headers, raw))
        answers = self._answers[operation]
        handler = answers.popleft() if len(answers) > 1 else answers[0]
        return await handler(request)  # type: ignore[arg-type]
