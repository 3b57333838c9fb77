"""Serve the page's files, the stream of states, the changes and the records."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from importlib import resources
from typing import NamedTuple, TypeVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from kinesumer.aws.dynamodb import DynamoStateStore
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.ops.dashboard.actions import Action, ActionHandler
from kinesumer.ops.dashboard.auth import Guard, protect
from kinesumer.ops.dashboard.poller import Poller
from kinesumer.ops.dashboard.records import (
    LetterBrowser,
    LettersRequest,
    RecordBrowser,
    RecordsRequest,
)
from kinesumer.ops.group.apps import apps_report, read_apps
from kinesumer.ports import Clock
from kinesumer.runtime.text import escape_unprintable

T = TypeVar("T")

ADDRESS = "127.0.0.1"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Browsers keep connections open, so the command waits only briefly for their end.
SHUTDOWN_SECONDS = 1.0


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


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether to keep a log record. Invalid requests need no traceback."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


log: logging.Logger = logging.getLogger("kinesumer.dashboard")
log.addFilter(_is_ours)


class File(NamedTuple):
    """A file of the page."""

    body: bytes
    content_type: str


def page_files() -> dict[str, File]:
    """Return the files of the page by name, read from the package."""
    files = {}
    for file in resources.files("kinesumer.ops.dashboard").joinpath("static").iterdir():
        suffix = file.name[file.name.rindex(".") :]
        files[file.name] = File(file.read_bytes(), TYPES[suffix])
    return files


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
        app = web.Application(middlewares=[self._guard.check])
        app.on_response_prepare.append(protect)
        app.on_shutdown.append(self._end)
        app.add_routes(
            [
                web.get("/", self._page),
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

    async def _page(self, _: web.Request) -> web.Response:
        return _answer(self._files["index.html"])

    async def _file(self, request: web.Request) -> web.Response:
        file = self._files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        return _answer(file)

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
        try:
            body = await apps.read()
        except KinesumerError as error:
            return _error_response(409, str(error))
        return web.Response(body=body, content_type="application/json")

    async def _exchange(self, request: web.Request) -> web.Response:
        """Return the token for the printed link's invitation, which is valid once."""
        invitation = (await _decoded(request, INVITATIONS)).invitation
        has_use = any((self._actions, self._records, self._letters))
        token = self._guard.exchange(invitation) if has_use else None
        if token is None:
            return _error_response(
                403,
                "this link was used before, or is another server's: start it again",
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
        try:
            if not apply:
                preview = await self._actions.preview(action)
                return web.json_response(preview._asdict())
            result = await self._actions.apply(action)
        except KinesumerError as error:
            return _error_response(409, str(error))
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
        wanted = await _decoded(request, decoder)
        try:
            answer = await find(wanted)
        except KinesumerError as error:
            return _error_response(409, str(error))
        return web.Response(
            body=msgspec.json.encode(answer), content_type="application/json"
        )


async def _decoded(request: web.Request, decoder: msgspec.json.Decoder[T]) -> T:
    """Return a request's body. Raises HTTPBadRequest."""
    try:
        return decoder.decode(await request.read())
    except INVALID_BODY_ERRORS as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None


def _error_response(status: int, problem: str) -> web.Response:
    return web.json_response({"error": escape_unprintable(problem)}, status=status)


def _answer(file: File) -> web.Response:
    return web.Response(body=file.body, content_type=file.content_type, charset="utf-8")


def listen(port: int) -> socket.socket:
    """Return a socket on a port of 127.0.0.1. For port 0, choose a free one."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # So a restarted server gets its port while old connections are in TIME_WAIT.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((ADDRESS, port))
    except OSError as error:
        opened.close()
        raise ConfigurationError(
            f"can't listen on {ADDRESS}:{port}: {error.strerror}; give another --port, "
            "or none for a free one"
        ) from error
    return opened


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


# Each reading scans the table, so all pages together cause at most one in this time.
FRESH_SECONDS = 10.0


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
