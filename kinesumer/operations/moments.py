"""Times as options name them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from kinesumer.model import Start

NAMED = ("LATEST", "TRIM_HORIZON")
_AGO = re.compile(r"([0-9]+)([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment(
    option: str, text: str, now: datetime, names: tuple[str, ...] = ()
) -> datetime:
    """Return the time that an option names; it might have named others, too.

    Raises ConfigurationError.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        known = "".join(f"{name} nor " for name in names)
        raise ConfigurationError(
            f"{option} {text}: neither {known}a time like 2026-01-31T12:00:00Z, nor "
            "how long ago, like 90m, 2h or 3d"
        ) from None
    if found.tzinfo is None:
        raise ConfigurationError(
            f"{option} {text} has no time zone: add Z for UTC, or an offset like +01:00"
        )
    return found


def start_at(option: str, text: str) -> Start:
    """Return the start that an option names. Raises ConfigurationError."""
    # Heavy, and not needed by who asks for help.
    from kinesumer.model import Start

    if text.upper() in NAMED:
        return Start(type=text.upper())
    return Start.at(moment(option, text, datetime.now(UTC), NAMED))
