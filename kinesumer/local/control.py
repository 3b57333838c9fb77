"""The control path: what tests in other processes do to the embedded AWS by HTTP."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from aiohttp import web

from kinesumer.local.faults import Fault
from kinesumer.local.identity import DEFAULT_ACCOUNT, Denial

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local.state import ServiceState


class _Account(msgspec.Struct, forbid_unknown_fields=True):
    account: str


class _Role(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    account: str
    trusted: list[str] = msgspec.field(default_factory=lambda: [DEFAULT_ACCOUNT])
    external_id: str | None = None
    actions: list[str] = msgspec.field(default_factory=lambda: ["*"])
    session_seconds: float | None = None


class _Advance(msgspec.Struct, forbid_unknown_fields=True):
    seconds: float


class Control:
    """Serves ``/_kinesumer/…``, without authentication: it listens on 127.0.0.1.

    | path | GET | POST (JSON) | DELETE |
    |---|---|---|---|
    | ``health`` | is it there | | |
    | ``faults`` | those in force | a Fault; its number | all of them |
    | ``requests`` | counters and the latest requests | | forget them |
    | ``denials`` | those in force | a Denial | all of them |
    | ``accounts`` | | an account; its credentials | |
    | ``roles`` | | a role; its ARN | |
    | ``clock`` | the services' time | seconds to go forward | |
    """

    PREFIX: ClassVar[str] = "/_kinesumer/"

    def __init__(self, world: ServiceState) -> None:
        self._world = world
        self._routes: dict[tuple[str, str], Callable[[bytes], Any]] = {
            ("GET", "health"): lambda _: {"status": "ok"},
            ("GET", "faults"): self._faults,
            ("POST", "faults"): self._add_fault,
            ("DELETE", "faults"): lambda _: world.faults.remove(),
            ("GET", "requests"): self._requests,
            ("DELETE", "requests"): lambda _: world.journal.clear(),
            ("GET", "denials"): lambda _: world.identities.denials,
            ("POST", "denials"): self._deny,
            ("DELETE", "denials"): lambda _: world.identities.denials.clear(),
            ("POST", "accounts"): self._account,
            ("POST", "roles"): self._role,
            ("GET", "clock"): lambda _: {"now": world.clock.now()},
            ("POST", "clock"): self._advance,
        }

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer a control request."""
        name = http.path.removeprefix(self.PREFIX).rstrip("/")
        act = self._routes.get((http.method, name))
        if act is None:
            return _answer(
                HTTPStatus.NOT_FOUND, {"error": f"nothing to {http.method} at {name}"}
            )
        body = await http.content.read()
        try:
            with self._world.lock:
                return _answer(HTTPStatus.OK, act(body))
        except (msgspec.DecodeError, ValueError) as error:
            return _answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})

    def _faults(self, _: bytes) -> dict[str, Any]:
        active = self._world.faults.active(self._world.clock.now())
        return {"faults": active}

    def _add_fault(self, body: bytes) -> dict[str, int]:
        fault = msgspec.json.decode(body, type=Fault)
        return {"number": self._world.faults.add(fault, self._world.clock.now())}

    def _requests(self, _: bytes) -> dict[str, Any]:
        journal = self._world.journal
        return {
            "counts": [count._asdict() for count in journal.counts()],
            "latest": [entry._asdict() for entry in journal.latest],
        }

    def _deny(self, body: bytes) -> None:
        denial = msgspec.json.decode(body, type=_Denial)
        self._world.identities.denials.append(denial.denial)

    def _account(self, body: bytes) -> dict[str, Any]:
        account = msgspec.json.decode(body, type=_Account).account
        return self._world.identities.account(account)._asdict()

    def _role(self, body: bytes) -> dict[str, str]:
        fields = msgspec.structs.asdict(msgspec.json.decode(body, type=_Role))
        return {"arn": self._world.identities.create_role(**fields).arn}

    def _advance(self, body: bytes) -> dict[str, float]:
        self._world.clock.advance(msgspec.json.decode(body, type=_Advance).seconds)
        return {"now": self._world.clock.now()}


class _Denial(msgspec.Struct, forbid_unknown_fields=True):
    action: str
    resource: str = "*"
    caller: str = "*"

    @property
    def denial(self) -> Denial:
        return Denial(self.action, self.resource, self.caller)


def _answer(status: HTTPStatus, content: Any) -> web.Response:
    body = msgspec.json.encode({} if content is None else content)
    return web.Response(status=status, body=body, content_type="application/json")
