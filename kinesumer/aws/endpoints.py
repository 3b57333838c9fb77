"""Checks of endpoint URLs, and the time of a service's response."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


def service_time(answer: Mapping[str, Any]) -> float:
    """Return the service's time of a response, in whole seconds since 1970."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = datetime.now(UTC) if date is None else parsedate_to_datetime(date)
    return now.timestamp()


_USER = re.compile(r"://[^/?#\s]*@")


def require_no_credentials(what: str, url: str) -> None:
    """Raise ConfigurationError for a URL with user or password, without the URL.

    Requests have a signature instead of a user and password.
    """
    if _USER.search(url):
        raise ConfigurationError(f"{what} contains credentials: remove them")


def check_port(what: str, url: str) -> None:
    """Raise ConfigurationError for a URL with an invalid port."""
    try:
        urlsplit(url).port  # noqa: B018  raises ValueError
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}; correct the URL") from None


def masked(text: str) -> str:
    """Return text in which URLs have no user names and passwords."""
    return _USER.sub("://***@", text)
