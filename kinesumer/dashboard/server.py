"""Serve the page's files, the stream of states, and the changes."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import aclosing, asynccontextmanager, suppress
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from kinesumer.dashboard.actions import Action
from kinesumer.dashboard.auth import protect
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kinesumer.dashboard.actions import ActionHandler
    from kinesumer.dashboard.auth import Guard
    from kinesumer.dashboard.poller import Poller

    Answer = Callable[[ActionHandler, Action], Awaitable[dict[str, Any]]]

T = TypeVar("T")

ADDRESS = "127.0.0.1"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
RETRY_MILLIS = 1000
"""The time after which a browser reconnects."""
SHUTDOWN_SECONDS = 1.0


class Invitation(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the printed link's fragment."""

    invitation: str


INVITATIONS = msgspec.json.Decoder(Invitation)
CHANGES: msgspec.json.Decoder[Action] = msgspec.json.Decoder(Action)
INVALID_BODY_ERRORS = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    RecursionError,
    web.RequestPayloadError,
    ConnectionResetError,
)
"""Errors of reading a body that is missing or isn't valid JSON."""


def _is_ours(record: logging.LogRecord) -> bool:
    """Leave out errors of callers, which are answered and need no traceback."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


log = logging.getLogger("kinesumer.dashboard")
log.addFilter(_is_ours)


class File(NamedTuple):
    """A file of the page."""

    body: bytes
    content_type: str


def page_files() -> dict[str, File]:
    """Return the files of the page by name, read from the package."""
    files = {}
    for file in resources.files("kinesumer.dashboard").joinpath("static").iterdir():
        suffix = file.name[file.name.rindex(".") :]
        files[file.name] = File(file.read_bytes(), TYPES[suffix])
    return files


class Server:
    """Serves the pages of one fleet."""

    def __init__(
        self, poller: Poller, guard: Guard, actions: ActionHandler | None = None
    ) -> None:
        self._poller, self._guard, self._actions = poller, guard, actions
        self._files = page_files()

    def application(self) -> web.Application:
        """Return the application, to run on a socket of 127.0.0.1."""
        app = web.Application(middlewares=[self._guard.check])
        app.on_response_prepare.append(protect)
        app.on_shutdown.append(self._end)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/states", self._states),
                web.get("/{name}", self._file),
                web.post("/token", self._exchange),
                web.post("/preview", self._preview),
                web.post("/change", self._change),
            ]
        )
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
        """Send every state as an event; each is complete, so pages may reconnect."""
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        await response.prepare(request)
        with suppress(ConnectionResetError):  # the page was closed
            await response.write(b"retry: %d\n\n" % RETRY_MILLIS)
            async with aclosing(self._poller.states()) as states:
                async for state in states:
                    await response.write(b"data: %b\n\n" % state)
        return response

    async def _exchange(self, request: web.Request) -> web.Response:
        """Exchange the invitation in the printed link for the token, once."""
        invitation = (await _decoded(request, INVITATIONS)).invitation
        token = self._guard.exchange(invitation) if self._actions else None
        if token is None:
            return _error_response(
                403,
                "this link was used before, or is another server's: start it again",
            )
        return web.json_response({"token": token})

    async def _preview(self, request: web.Request) -> web.Response:
        return await self._answered(request, self._preview_action)

    async def _change(self, request: web.Request) -> web.Response:
        return await self._answered(request, self._apply_action)

    async def _answered(self, request: web.Request, answer: Answer) -> web.Response:
        """Answer a request that has the token."""
        if self._actions is None:
            return _error_response(
                403, "read-only: start it again with --allow-changes"
            )
        if not self._guard.may_change(request):
            return _error_response(403, "changes need the token: open the printed link")
        action = await _decoded(request, CHANGES)
        try:
            return web.json_response(await answer(self._actions, action))
        except KinesumerError as error:
            return _error_response(409, str(error))

    async def _preview_action(
        self, actions: ActionHandler, action: Action
    ) -> dict[str, Any]:
        return (await actions.preview(action))._asdict()

    async def _apply_action(
        self, actions: ActionHandler, action: Action
    ) -> dict[str, Any]:
        done = await actions.apply(action)
        self._poller.wake()
        return {"done": done}


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
    """Return a socket of 127.0.0.1 on that port, or for 0 on a free one.

    Raises ConfigurationError.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
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
    """Serve and poll while the block runs; the task ends only if polling fails."""
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
