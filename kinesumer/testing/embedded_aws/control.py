"""Serve the HTTP requests with which programs control the embedded AWS."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar

import msgspec
from aiohttp import web

from kinesumer.errors import KinesumerError
from kinesumer.testing.embedded_aws.state import RequestLog, ServiceState


class Control:
    """Serves ``/_kinesumer/…``, without authentication, only on 127.0.0.1.

    A POST request has the arguments of a method of ``EmbeddedAws`` as JSON.

    | path | GET | POST | DELETE |
    |---|---|---|---|
    | ``health`` | check that the server runs | | |
    | ``faults`` | the active faults | ``fault()``; returns its number | all faults |
    | ``requests`` | counters and the latest requests | | the log |
    | ``denials`` | | ``deny()`` | all denials and policies |
    | ``accounts`` | | ``account()``; returns its credentials | |
    | ``keys`` | | ``replace_keys()``; returns the new ones | |
    | ``roles`` | | ``create_role()``; returns its ARN | |
    | ``clock`` | the services' time | ``advance()`` | |
    """

    PREFIX: ClassVar[str] = "/_kinesumer/"

    def __init__(self, aws: Any, state: ServiceState) -> None:
        # The type of ``aws`` is EmbeddedAws, whose module imports this one.
        clock = state.clock
        self._routes: dict[tuple[str, str], Callable[..., Any]] = {
            ("GET", "health"): lambda: {"status": "ok"},
            ("GET", "faults"): lambda: {"faults": state.faults.active(clock.now())},
            ("POST", "faults"): lambda **which: {"number": aws.fault(**which)},
            ("DELETE", "faults"): aws.clear_faults,
            ("GET", "requests"): lambda: _requests(state.journal),
            ("DELETE", "requests"): state.journal.clear,
            ("POST", "denials"): aws.deny,
            ("DELETE", "denials"): aws.allow,
            ("POST", "accounts"): lambda **which: aws.account(**which)._asdict(),
            ("POST", "keys"): lambda **which: aws.replace_keys(**which)._asdict(),
            ("POST", "roles"): lambda **role: {"arn": aws.create_role(**role).arn},
            ("GET", "clock"): lambda: {"now": clock.now()},
            ("POST", "clock"): aws.advance,
        }

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Serve a control request."""
        name = http.path.removeprefix(self.PREFIX).rstrip("/")
        serve = self._routes.get((http.method, name))
        if serve is None:
            return _response(
                HTTPStatus.NOT_FOUND, {"error": f"nothing to {http.method} at {name}"}
            )
        body = await http.content.read() if http.method == "POST" else b"{}"
        try:
            arguments = msgspec.json.decode(body, type=dict[str, Any])
            return _response(HTTPStatus.OK, serve(**arguments) or {})
        except (KinesumerError, msgspec.MsgspecError, ValueError, TypeError) as error:
            return _response(HTTPStatus.BAD_REQUEST, {"error": str(error)})


def _requests(journal: RequestLog) -> dict[str, Any]:
    return {
        "counts": [count._asdict() for count in journal.counts()],
        "latest": [entry._asdict() for entry in journal.latest],
    }


def _response(status: HTTPStatus, content: Any) -> web.Response:
    body = msgspec.json.encode(content)
    return web.Response(status=status, body=body, content_type="application/json")
