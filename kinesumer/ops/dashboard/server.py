"""Serve the page's files, states, changes and records, to its own page only."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from hmac import compare_digest
from importlib import resources
from typing import TypeVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from kinesumer.aws.dynamodb import DynamoStateStore
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.ops.dashboard.actions import Action, ActionHandler
from kinesumer.ops.dashboard.poller import Poller
from kinesumer.ops.dashboard.records import (
    LetterBrowser,
    LettersRequest,
    RecordBrowser,
    RecordsRequest,
)
from kinesumer.ops.group.snapshot import apps_report, read_apps
from kinesumer.ports import Clock
from kinesumer.runtime.text import escape_unprintable

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ADDRESS = "127.0.0.1"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
TOKEN_HEADER = "X-Kinesumer-Token"  # noqa: S105 - the name of a header
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Browsers keep connections open, so the command waits only briefly for their end.
SHUTDOWN_SECONDS = 1.0
# Each list of apps scans the table, so all pages together cause at most one in this
# time.
FRESH_SECONDS = 10.0


class Invitation(msgspec.Struct, forbid_unknown_fields=True):
    """The body by which a page exchanges the printed link's invitation."""

    invitation: str


INVITATIONS = msgspec.json.Decoder(Invitation)
CHANGES: msgspec.json.Decoder[Action] = msgspec.json.Decoder(Action)
LETTERS = msgspec.json.Decoder(LettersRequest)
RECORDS = msgspec.json.Decoder(RecordsRequest)
# The errors that are raised if a body is missing or isn't valid JSON.
INVALID_BODY_ERRORS = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    RecursionError,
    web.RequestPayloadError,
    ConnectionResetError,
)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return whether to keep a log record. Invalid requests need no traceback."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


log: logging.Logger = logging.getLogger("kinesumer.dashboard")
log.addFilter(_is_wanted)


class Guard:
    """Rejects requests from other pages, and issues the token.

    Changes and records need the token.

    The server listens on 127.0.0.1, to which any page in the user's browser can send
    requests. The Host header must be the server's, since other names may resolve to
    127.0.0.1. An Origin header must name the server's page. When another page requests
    images or scripts, browsers send no Origin header, but a Sec-Fetch-Site header.
    Links on other pages may open only the page itself.
    """

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        # The printed link may remain in a terminal or a history, so its invitation is
        # valid only once. Only the page that used the invitation knows the token.
        self._invitation: str | None = secrets.token_urlsafe()
        self._token = secrets.token_urlsafe()

    def link(self, *, invites: bool) -> str:
        """Return the page's URL, with the invitation if the page may get the token.

        The invitation is in the fragment, which browsers don't send to servers.
        """
        return self._url + (f"#token={self._invitation}" if invites else "")

    def exchange(self, invitation: str) -> str | None:
        """Return the token for the invitation, which is valid once."""
        known = self._invitation
        if known is None or not _equal(known, invitation):
            return None
        self._invitation = None
        return self._token

    def has_token(self, request: web.Request) -> bool:
        """Return whether a request has the token."""
        return _equal(self._token, request.headers.get(TOKEN_HEADER, ""))

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle requests from the page; reject all others."""
        answers = None
        if request.headers.get("Host") not in self._hosts:
            answers = "at 127.0.0.1"
        elif not _is_ours(request):
            answers = "its own page"
        if answers is not None:
            text = f"this server answers only {answers}: open the printed link\n"
            raise web.HTTPForbidden(text=text)
        return await handler(request)


def _is_ours(request: web.Request) -> bool:
    """Return whether a request is from the page, opens it, or isn't from a browser."""
    origin = request.headers.get("Origin")
    # Browsers send an Origin with each POST, so this request isn't from the page.
    if origin is None and request.method == "POST":
        return False
    if origin not in (None, f"http://{request.headers['Host']}"):
        return False
    # Programs such as curl send no Sec-Fetch-Site, and may read.
    site = request.headers.get("Sec-Fetch-Site", "none")
    return request.path == "/" or site in ("same-origin", "none")


async def protect(_: web.Request, response: web.StreamResponse) -> None:
    """Set the security headers of every response, including errors and streams."""
    response.headers.update(HEADERS)


def _equal(one: str, other: str) -> bool:
    # compare_digest() takes the same time wherever the texts differ, so the time
    # reveals nothing about a token. Headers may contain bytes that aren't valid text.
    return compare_digest(one.encode(), other.encode(errors="surrogateescape"))


def page_files() -> dict[str, bytes]:
    """Return the files of the page by name, read from the package."""
    static = resources.files("kinesumer.ops.dashboard").joinpath("static")
    return {file.name: file.read_bytes() for file in static.iterdir()}


class Server:
    """Serves the pages of one fleet."""

    def __init__(
        self,
        poller: Poller,
        guard: Guard,
        actions: ActionHandler | None = None,
        records: RecordBrowser | None = None,
        apps: AppList | None = None,
        letters: LetterBrowser | None = None,
    ) -> None:
        self._poller, self._guard, self._apps = poller, guard, apps
        self._actions, self._records, self._letters = actions, records, letters
        self._files = page_files()

    def application(self) -> web.Application:
        """Return the web application, which must run on a socket of 127.0.0.1."""
        app = web.Application(middlewares=[self._guard.check, _tell_errors])
        app.on_response_prepare.append(protect)
        app.on_shutdown.append(self._end)
        app.add_routes(
            [
                web.get("/", self._file),
                web.get("/states", self._states),
                web.get(r"/{name:\w+\.\w+}", self._file),
                web.post("/token", self._exchange),
                web.post("/preview", partial(self._answered, apply=False)),
                web.post("/change", partial(self._answered, apply=True)),
            ]
        )
        if self._apps is not None:
            app.router.add_get("/apps", partial(self._listed, self._apps))
        if self._records is not None:
            find = partial(self._found, self._records.find, RECORDS)
            app.router.add_post("/records", find)
        if self._letters is not None:
            find = partial(self._found, self._letters.find, LETTERS)
            app.router.add_post("/letters", find)
        return app

    async def _end(self, _: web.Application) -> None:
        await self._poller.end()

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        if name not in self._files:
            raise web.HTTPNotFound
        type_ = TYPES[name[name.rindex(".") :]]
        return web.Response(body=self._files[name], content_type=type_, charset="utf-8")

    async def _states(self, request: web.Request) -> web.StreamResponse:
        """Send each state as an event. It is complete, so a page may reconnect."""
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        await response.prepare(request)
        with suppress(ConnectionResetError):  # the page was closed
            # The milliseconds after which a browser reconnects.
            await response.write(b"retry: 1000\n\n")
            async with aclosing(self._poller.states()) as states:
                async for state in states:
                    await response.write(b"data: %b\n\n" % state)
        return response

    async def _listed(self, apps: AppList, _: web.Request) -> web.Response:
        return web.Response(body=await apps.read(), content_type="application/json")

    async def _exchange(self, request: web.Request) -> web.Response:
        """Return the token for the printed link's invitation, which is valid once."""
        invitation = (await _decoded(request, INVITATIONS)).invitation
        has_use = any((self._actions, self._records, self._letters))
        token = self._guard.exchange(invitation) if has_use else None
        if token is None:
            return _error_response(
                403, "this link was used before, or is another server's: start it again"
            )
        return web.json_response({"token": token})

    async def _answered(self, request: web.Request, *, apply: bool) -> web.Response:
        """Preview or apply the action in a request, which must have the token."""
        if self._actions is None:
            return _error_response(
                403, "read-only: start it again with --allow-changes"
            )
        if not self._guard.has_token(request):
            return _error_response(403, "changes need the token: open the printed link")
        action = await _decoded(request, CHANGES)
        if not apply:
            preview = await self._actions.preview(action)
            return web.json_response(preview._asdict())
        result = await self._actions.apply(action)
        self._poller.wake()  # to show the change at once
        return web.json_response({"done": result})

    async def _found(
        self,
        find: Callable[[T], Awaitable[object]],
        decoder: msgspec.json.Decoder[T],
        request: web.Request,
    ) -> web.Response:
        """Return records or dead letters. The request must have the token."""
        if not self._guard.has_token(request):
            return _error_response(403, "records need the token: open the printed link")
        answer = msgspec.json.encode(await find(await _decoded(request, decoder)))
        return web.Response(body=answer, content_type="application/json")


@web.middleware
async def _tell_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request that fails with the error's text."""
    try:
        return await handler(request)
    except KinesumerError as error:
        return _error_response(409, str(error))


async def _decoded(request: web.Request, decoder: msgspec.json.Decoder[T]) -> T:
    """Return a request's body. Raises HTTPBadRequest."""
    try:
        return decoder.decode(await request.read())
    except INVALID_BODY_ERRORS as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None


def _error_response(status: int, problem: str) -> web.Response:
    return web.json_response({"error": escape_unprintable(problem)}, status=status)


def listen(port: int) -> socket.socket:
    """Return a socket on a port of 127.0.0.1. For port 0, choose a free one."""
    try:
        # A restarted server gets its port while old connections are in TIME_WAIT.
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ConfigurationError(
            f"can't listen on {ADDRESS}:{port}: {reason}; give another --port, or none "
            "for a free one"
        ) from error


@asynccontextmanager
async def serving(
    server: Server, poller: Poller, opened: socket.socket
) -> AsyncIterator[asyncio.Task[None]]:
    """Serve and poll while the block runs. The yielded task ends if polling fails."""
    runner = web.AppRunner(
        server.application(),
        access_log=None,
        logger=log,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    await web.SockSite(runner, opened).start()
    polling = asyncio.create_task(poller.run())
    try:
        yield polling
    finally:
        polling.cancel()
        await runner.cleanup()
        await asyncio.wait({polling})


class AppList:
    """Reads the apps of a table for all open pages."""

    def __init__(self, table: str, store: DynamoStateStore, clock: Clock) -> None:
        self._table, self._store, self._clock = table, store, clock
        self._reading = asyncio.Lock()
        self._answer, self._read_at = b"", -FRESH_SECONDS

    async def read(self) -> bytes:
        """Return the report of ``kinesumer apps`` as JSON. Raises KinesumerError."""
        async with self._reading:
            if self._clock.now() - self._read_at >= FRESH_SECONDS:
                found = await read_apps(self._store, self._clock.wall())
                self._answer = msgspec.json.encode(apps_report(self._table, found))
                self._read_at = self._clock.now()
        return self._answer
