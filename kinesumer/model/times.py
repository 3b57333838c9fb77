"""Times and ages that users write as text."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from kinesumer.errors import ConfigurationError

# Where reading ends: a time, or the time at which it begins.
UntilLike = datetime | Literal["now"]
Until = float | Literal["now"]  # seconds since 1970

_AGE = re.compile(r"([0-9]+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_age(age: timedelta | str) -> timedelta:
    """Return an age, given as a timedelta or as a number with the unit s, m, h or d.

    Raise ConfigurationError for other text or a negative age, and OverflowError if a
    timedelta can't hold it.
    """
    if isinstance(age, timedelta) and age >= timedelta(0):
        return age
    match = _AGE.fullmatch(age) if isinstance(age, str) else None
    if match is None:
        raise ConfigurationError(
            f"{age!r} isn't an age: use a number of seconds, minutes, hours or days, "
            "such as 30s, 90m, 2h or 3d, or a timedelta that isn't negative"
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def parse_time(
    name: str, text: str, now: datetime, words: tuple[str, ...] = ()
) -> datetime:
    """Return the time that a text says: an age before ``now``, or a time with its zone.

    Raise ConfigurationError for other text. The error begins with ``name``, such as an
    option of a command, and also mentions ``words`` that the caller accepts.
    """
    try:
        if _AGE.fullmatch(text):
            return now - parse_age(text)
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        known = "".join(f"{word}, " for word in words)
        raise ConfigurationError(
            f"{name} {text}: give {known}a time like 2026-01-31T12:00:00Z, or how "
            "long ago, like 90m, 2h or 3d"
        ) from None
    if time.tzinfo is None:
        raise ConfigurationError(
            f"{name} {text} has no time zone: add Z for UTC, or an offset like +01:00"
        )
    return time


def parse_until(name: str, text: str) -> UntilLike:
    """Return where reading ends: "now", or the time that a text says.

    Raise ConfigurationError as ``parse_time()`` does.
    """
    if text.lower() == "now":
        return "now"
    return parse_time(name, text, datetime.now(UTC), ("now",))


def as_until(until: object) -> Until | None:
    """Return the end of reading. Raise ConfigurationError for other values."""
    if until is None or until == "now":
        return until
    if not isinstance(until, datetime) or until.utcoffset() is None:
        raise ConfigurationError(
            f'until={until!r} must be "now" or a time with its zone, such as '
            "datetime(2026, 1, 31, 12, tzinfo=UTC)"
        )
    # Rows store times in whole milliseconds, rounded down.
    return math.floor(until.timestamp() * 1000) / 1000


def time_text(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC, in whole seconds."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
