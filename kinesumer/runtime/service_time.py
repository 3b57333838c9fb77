"""Kinesis's own time, where an answer's Date may be somebody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError, StartInFutureError
from kinesumer.model.streams import Start

if TYPE_CHECKING:
    from collections.abc import Collection

    from kinesumer.ports import StreamSource

EARLIER_SECONDS = (0.0, 1.0, 10.0, 100.0)
"""How much earlier a time is asked for that Kinesis refuses as in the future."""


async def reached_time(
    source: StreamSource, open_ids: Collection[str], moment: float
) -> float:
    """Return a time by an answer's Date, or an earlier one that Kinesis has reached.

    A proxy on the way may have written the Date, by a clock that is ahead. A start at
    that time would skip what arrives until Kinesis's own clock has reached it. Raises
    ConfigurationError if the Date is minutes ahead.
    """
    if not open_ids:
        return moment
    shard_id = min(open_ids)
    for earlier in EARLIER_SECONDS:
        start = Start(type="AT_TIMESTAMP", timestamp=moment - earlier)
        try:
            await source.get_iterator(shard_id, start)
        except StartInFutureError:
            continue
        return moment - earlier
    raise ConfigurationError(
        f"shard {shard_id}: the Date of Kinesis's answer is more than "
        f"{EARLIER_SECONDS[-1]:g} s ahead of Kinesis's own clock; correct the clock of "
        "the proxy that writes it"
    )
