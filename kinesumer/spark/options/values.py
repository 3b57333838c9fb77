"""The value of an option, read from its text."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from kinesumer.aws.endpoints import require_no_credentials
from kinesumer.errors import ConfigurationError

MIN_SKEW_SECONDS = 60.0

_URI_WITH_PASSWORD = re.compile(r"[a-z0-9+.-]+://[^/]*:[^/]*@", re.IGNORECASE)


def text(_name: str, value: str) -> str:
    """Return the text itself."""
    return value


def flag(name: str, value: str) -> bool:
    """Return true or false."""
    if value.lower() not in ("true", "false"):
        raise ConfigurationError(f"option {name}={value!r} must be true or false")
    return value.lower() == "true"


def count(name: str, value: str) -> int:
    """Return a whole number of at least 1."""
    if not re.fullmatch(r"\d{1,18}", value, re.ASCII) or int(value) == 0:
        raise ConfigurationError(
            f"option {name}={value!r} must be a whole number greater than 0"
        )
    return int(value)


def size_bytes(name: str, value: str) -> int:
    """Return a number of bytes in Spark's notation: 1048576, 64m, 1g."""
    match = re.fullmatch(r"(\d{1,18})\s*([kmgt]?)b?", value.lower(), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise ConfigurationError(
            f"option {name}={value!r} must be a number of bytes greater than 0, such "
            "as 67108864 or 64m"
        )
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ")


def seconds(name: str, value: str) -> float:
    """Return a time in Spark's notation: 250ms, 1s, 2m. 250 means 250ms."""
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|m|min|)", value.lower(), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise ConfigurationError(
            f"option {name}={value!r} must be a time greater than 0, such as 250ms "
            "or 1s"
        )
    return int(match[1]) * {"s": 1.0, "m": 60.0, "min": 60.0}.get(match[2], 0.001)


def skew(name: str, value: str) -> float:
    """Return a time of at least MIN_SKEW_SECONDS."""
    found = seconds(name, value)
    if found < MIN_SKEW_SECONDS:
        raise ConfigurationError(
            f"option {name} is {found:g} s; it must be 1m or more: records of the last "
            "minute are not a backlog"
        )
    return found


def rate(name: str, value: str) -> float:
    """Return a number greater than 0, which may have decimals."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII) or not float(value):
        raise ConfigurationError(
            f"option {name}={value!r} must be a number greater than 0"
        )
    return float(value)


def directory(name: str, value: str) -> str:
    """Return a path or a URI. An error for a URI with a password doesn't repeat it."""
    if _URI_WITH_PASSWORD.match(value):
        raise ConfigurationError(
            f"option {name} holds credentials: remove them, and set them where the "
            "filesystem finds them by itself"
        )
    return value


def url(name: str, value: str) -> str:
    """Return an endpoint. An error for one with credentials doesn't repeat them."""
    if "://" not in value:  # Databricks takes the name of a host alone
        value = f"https://{value}"
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  raises ValueError
    except ValueError:
        raise ConfigurationError(
            f"option {name} must be a URL, such as https://HOST:PORT"
        ) from None
    require_no_credentials(f"option {name}", value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"option {name}={value!r} must be an http(s) URL")
    return value
