"""Endpoints: URLs are shown, logged and pickled, so nothing secret may be in them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from kinesumer.errors import ConfigurationError

_USER = re.compile(r"://[^/?#\s]*@")


def refuse_credentials(what: str, url: str) -> None:
    """Raise ConfigurationError, without repeating it, for a URL with user or password.

    No request could be sent there: it has a signature in their place.
    """
    if _USER.search(url):
        raise ConfigurationError(f"{what} holds credentials: remove them")


def check_port(what: str, url: str) -> None:
    """Raise ConfigurationError for a URL with a port that is none."""
    try:
        urlsplit(url).port  # noqa: B018  raises ValueError
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}") from None


def masked(text: str) -> str:
    """Return text without the user names and passwords of the URLs in it."""
    return _USER.sub("://***@", text)
