"""Serve the HTTP requests with which programs control the embedded AWS."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from aiohttp import web

from kinesumer.testing.embedded_aws.faults import Fault
from kinesumer.testing.embedded_aws.identity import Denial, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.testing.embedded_aws.state import ServiceState


class _Account(msgspec.Struct, forbid_unknown_fields=True):
    account: str


class _Keys(msgspec.Struct, forbid_unknown_fields=True):
    account: str
    lifetime_seconds: float | None = None


class _Advance(msgspec.Struct, forbid_unknown_fields=True):
    seconds: float


class Control:
    """Serves ``/_kinesumer/…``, without authentication, only on 127.0.0.1.

    | path | GET | POST (JSON) | DELETE |
    |---|---|---|---|
    | ``health`` | check that the server runs | | |
    | ``faults`` | the active faults | a Fault; returns its number | all faults |
    | ``requests`` | counters and the latest requests | | the log |
    | ``denials`` | the active denials | a Denial | all denials |
    | ``accounts`` | | an account; returns its credentials | |
    | ``keys`` | | an account whose keys to replace; returns the new ones | |
    | ``roles`` | | a Role; returns its ARN | |
    | ``clock`` | the services' time | seconds to advance | |
    """

    PREFIX: ClassVar[str] = "/_kinesumer/"

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        identities = state.identities
        self._routes: dict[tuple[str, str], Callable[[bytes], Any]] = {
            ("GET", "health"): lambda _: {"status": "ok"},
            ("GET", "faults"): lambda _: {
                "faults": state.faults.active(state.clock.now())
            },
            ("POST", "faults"): self._add_fault,
            ("DELETE", "faults"): lambda _: state.faults.remove(),
            ("GET", "requests"): self._requests,
            ("DELETE", "requests"): lambda _: state.journal.clear(),
            ("GET", "denials"): lambda _: identities.denials,
            ("POST", "denials"): lambda body: identities.denials.append(
                msgspec.json.decode(body, type=Denial)
            ),
            ("DELETE", "denials"): lambda _: identities.denials.clear(),
            ("POST", "accounts"): self._account,
            ("POST", "keys"): self._replace_keys,
            ("POST", "roles"): self._role,
            ("GET", "clock"): lambda _: {"now": state.clock.now()},
            ("POST", "clock"): self._advance,
        }

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Serve a control request."""
        name = http.path.removeprefix(self.PREFIX).rstrip("/")
        serve = self._routes.get((http.method, name))
        if serve is None:
            return _response(
                HTTPStatus.NOT_FOUND, {"error": f"nothing to {http.method} at {name}"}
            )
        body = await http.content.read()
        try:
            # Other threads call the methods of EmbeddedAws at the same time.
            with self._state.lock:
                return _response(HTTPStatus.OK, serve(body))
        except (msgspec.DecodeError, ValueError) as error:
            return _response(HTTPStatus.BAD_REQUEST, {"error": str(error)})

    def _add_fault(self, body: bytes) -> dict[str, int]:
        fault = msgspec.json.decode(body, type=Fault)
        return {"number": self._state.faults.add(fault, self._state.clock.now())}

    def _requests(self, _: bytes) -> dict[str, Any]:
        journal = self._state.journal
        return {
            "counts": [count._asdict() for count in journal.counts()],
            "latest": [entry._asdict() for entry in journal.latest],
        }

    def _account(self, body: bytes) -> dict[str, Any]:
        account = msgspec.json.decode(body, type=_Account).account
        return self._state.identities.account(account)._asdict()

    def _replace_keys(self, body: bytes) -> dict[str, Any]:
        asked = msgspec.json.decode(body, type=_Keys)
        identities, now = self._state.identities, self._state.clock.now()
        keys = identities.replace_keys(asked.account, now, asked.lifetime_seconds)
        return keys._asdict()

    def _role(self, body: bytes) -> dict[str, str]:
        role = msgspec.json.decode(body, type=Role)
        self._state.identities.add_role(role)
        return {"arn": role.arn}

    def _advance(self, body: bytes) -> dict[str, float]:
        self._state.advance(msgspec.json.decode(body, type=_Advance).seconds)
        return {"now": self._state.clock.now()}


def _response(status: HTTPStatus, content: Any) -> web.Response:
    body = msgspec.json.encode({} if content is None else content)
    return web.Response(status=status, body=body, content_type="application/json")
