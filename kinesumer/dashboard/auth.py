"""Accept requests only from the server's own page, and changes only with a token.

The server listens on 127.0.0.1, to which any web page open in the user's browser can
send requests. So the Host header must be the server's, since another name may resolve
to 127.0.0.1, and an Origin header must name the server's page. Browsers request images
and scripts for other pages without an Origin, but with Sec-Fetch-Site. Only the page
itself may be opened by a link from elsewhere.
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
    """Rejects requests from other pages, and issues the token."""

    def __init__(self, port: int, new_token: Callable[[], str] | None = None) -> None:
        new_token = new_token or secrets.token_urlsafe
        self._url = f"http://127.0.0.1:{port}/"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._invitation: str | None = new_token()
        self._token = new_token()

    def link(self, control: bool) -> str:
        """Return the page's URL, with the invitation if changes are allowed.

        The invitation is in the fragment, which browsers don't send to servers.
        """
        return self._url + (f"#token={self._invitation}" if control else "")

    def exchange(self, invitation: str) -> str | None:
        """Return the token for the invitation, once."""
        known = self._invitation
        if known is None or not _equal(known, invitation):
            return None
        self._invitation = None
        return self._token

    def may_change(self, request: web.Request) -> bool:
        """Return whether a request has the token."""
        return _equal(self._token, request.headers.get(TOKEN_HEADER, ""))

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle requests from the page; reject all others."""
        if problem := self._problem(request):
            raise web.HTTPForbidden(text=problem)
        return await handler(request)

    def _problem(self, request: web.Request) -> str | None:
        if request.headers.get("Host") not in self._hosts:
            return "this server answers only at 127.0.0.1: open the printed link\n"
        if not _is_ours(request):
            return "this server answers only its own page: open the printed link\n"
        return None


def _is_ours(request: web.Request) -> bool:
    """Return whether a request comes from the page, opens it, or is from no browser."""
    origin = request.headers.get("Origin")
    if origin is None and request.method == "POST":
        return False
    if origin not in (None, f"http://{request.headers['Host']}"):
        return False
    site = request.headers.get("Sec-Fetch-Site", "none")
    return request.path == "/" or site in ("same-origin", "none")


async def protect(_: web.Request, response: web.StreamResponse) -> None:
    """Set the security headers of every response, including errors and streams."""
    response.headers.update(HEADERS)


def _equal(one: str, other: str) -> bool:
    # Header values may contain bytes that aren't valid text.
    return compare_digest(one.encode(), other.encode(errors="surrogateescape"))
