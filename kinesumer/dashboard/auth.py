"""Who may ask: this machine's browser, from our own page, and to change with a token.

The server listens on 127.0.0.1, where any page of the internet that the user has open
can send requests to. So the Host has to be ours (another name may have been pointed at
127.0.0.1 after it was allowed), and the Origin that of our page where there is one.
Pictures and scripts of other pages are asked for without an Origin: browsers tell of
them by Sec-Fetch-Site. Only the page itself may be come to from elsewhere, by a link.
"""

from __future__ import annotations

import secrets
from hmac import compare_digest
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

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


class Guard:
    """Refuses what doesn't come from the page, and knows the tokens."""

    def __init__(self, port: int, make: Callable[[], str] | None = None) -> None:
        make = make or secrets.token_urlsafe
        self._url = f"http://127.0.0.1:{port}/"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._invitation: str | None = make()
        self._token = make()

    def link(self, control: bool) -> str:
        """Return where the page is, with the invitation if changes are allowed.

        It stands in the fragment, which no browser sends to a server.
        """
        return self._url + (f"#token={self._invitation}" if control else "")

    def exchange(self, invitation: str) -> str | None:
        """Return the token for the invitation, the first time only."""
        known = self._invitation
        if known is None or not _equal(known, invitation):
            return None
        self._invitation = None
        return self._token

    def may_change(self, request: web.Request) -> bool:
        """Tell whether a request has the token."""
        return _equal(self._token, request.headers.get(TOKEN_HEADER, ""))

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer what comes from the page, with headers that keep others out."""
        if problem := self._problem(request):
            raise web.HTTPForbidden(text=problem)
        return await handler(request)

    def _problem(self, request: web.Request) -> str | None:
        if request.headers.get("Host") not in self._hosts:
            return "this server answers under 127.0.0.1 only\n"
        if not _is_ours(request):
            return "this server answers its own page only\n"
        return None


def _is_ours(request: web.Request) -> bool:
    """Tell whether our page asks, or somebody who comes to it, or no browser at all."""
    origin = request.headers.get("Origin")
    if origin is None and request.method == "POST":
        return False
    if origin not in (None, f"http://{request.headers['Host']}"):
        return False
    site = request.headers.get("Sec-Fetch-Site", "none")
    return request.path == "/" or site in ("same-origin", "none")


async def protect(_: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of every answer, errors and streams too, before it is sent."""
    response.headers.update(HEADERS)


def _equal(one: str, other: str) -> bool:
    # Headers may hold bytes that are no text.
    return compare_digest(one.encode(), other.encode(errors="surrogateescape"))
