"""What stands around every answer of AWS."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def service_time(answer: Mapping[str, Any]) -> float:
    """Return the service's time at its answer, in whole seconds since 1970."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    moment = datetime.now(UTC) if date is None else parsedate_to_datetime(date)
    return moment.timestamp()
