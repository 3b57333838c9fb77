"""Check endpoint URLs, and read the time of a service's response."""

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
    """Return the time in a response's Date header, in whole seconds since 1970.

    Without this header, return the local time.
    """
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = datetime.now(UTC) if date is None else parsedate_to_datetime(date)
    return now.timestamp()


_USER = re.compile(r"://[^/?#\s]*@")


def require_no_credentials(what: str, url: str) -> None:
    """Raise ConfigurationError if a URL has a user or password.

    AWS needs neither, since requests are signed. The error doesn't show the URL, so
    that the password isn't logged.
    """
    if _USER.search(url):
        raise ConfigurationError(f"{what} contains credentials: remove them")


def check_port(what: str, url: str) -> None:
    """Raise ConfigurationError for a URL with an invalid port."""
    try:
        # Check now, since an error in a later request would count as an outage.
        urlsplit(url).port  # noqa: B018  raises ValueError
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}; correct the URL") from None


def masked(text: str) -> str:
    """Return text after replacing the user names and passwords in its URLs."""
    return _USER.sub("://***@", text)
