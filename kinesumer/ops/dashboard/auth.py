"""Accept requests only from the server's own page, and some only with a token.

Changes and records need the token.

The server listens on 127.0.0.1, to which any page in the user's browser can send
requests. The Host header must be the server's, since other names may resolve to
127.0.0.1. An Origin header must name the server's page. When another page requests
images or scripts, browsers send no Origin header, but a Sec-Fetch-Site header. Links on
other pages may open only the page itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from hmac import compare_digest

from aiohttp import web

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
