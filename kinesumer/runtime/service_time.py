"""Kinesis's own time, which the Date of a response may not show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError, StartInFutureError
from kinesumer.model.streams import Start

if TYPE_CHECKING:
    from collections.abc import Collection

    from kinesumer.ports import StreamSource

EARLIER_SECONDS = (0.0, 1.0, 10.0, 100.0)
"""Steps by which a time is moved back while Kinesis says that it is in the future."""


async def reached_time(
    source: StreamSource, open_ids: Collection[str], moment: float
) -> float:
    """Return a response's Date, or an earlier time that Kinesis has reached.

    A proxy with a clock that is ahead may have written the Date. A start at that time
    would skip the records that arrive before Kinesis's clock reaches it. Raise
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
        f"shard {shard_id}: the Date of Kinesis's response is more than "
        f"{EARLIER_SECONDS[-1]:g} s ahead of Kinesis's own clock; correct the clock of "
        "the proxy that writes it"
    )
