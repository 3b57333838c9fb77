"""What stands around every answer of AWS."""

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
    """Return the service's time at its answer, in whole seconds since 1970."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    moment = datetime.now(UTC) if date is None else parsedate_to_datetime(date)
    return moment.timestamp()


_USER = re.compile(r"://[^/?#\s]*@")


def require_no_credentials(what: str, url: str) -> None:
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
