"""Estimates of Kinesis's own time, since a proxy may falsify a response's Date."""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import suppress

from kinesumer.errors import ConfigurationError, StartInFutureError
from kinesumer.model.streams import Start
from kinesumer.ports import Clock, StreamSource

# If Kinesis refuses a time because it is in the future, these numbers of seconds are
# subtracted from it, one at a time, until Kinesis accepts the result.
EARLIER_SECONDS = (0.0, 1.0, 10.0, 100.0)


class ServiceTime:
    """Bounds of Kinesis's clock, relative to this machine's monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds = ClockBounds()

    def observe_date(self, service_time: float, asked_at: float) -> None:
        """Note a response's Date (in whole seconds), requested at ``asked_at``."""
        self._bounds.observe_date(service_time, asked_at, self._clock.now())

    def observe_arrival(self, arrived_at: float) -> None:
        """Note a record's arrival time, which Kinesis's clock has certainly reached."""
        self._bounds.observe_arrival(arrived_at, self._clock.now())

    def earliest(self) -> float:
        """Return a time that Kinesis's clock has certainly reached."""
        return self._bounds.earliest(self._clock.now())

    def latest(self) -> float:
        """Return a time that Kinesis's clock has certainly not passed."""
        return self._bounds.latest(self._clock.now())


async def iterator_at(
    source: StreamSource, shard_id: str, timestamp: float
) -> tuple[str, float]:
    """Return an iterator that starts at or shortly before a time, and its start time.

    If Kinesis refuses the time because it is in the future, try the earlier times that
    EARLIER_SECONDS gives. Raise StartInFutureError if Kinesis refuses them all.
    """
    for earlier in EARLIER_SECONDS:
        start = Start(type="AT_TIMESTAMP", timestamp=timestamp - earlier)
        with suppress(StartInFutureError):
            return await source.get_iterator(shard_id, start), timestamp - earlier
    raise StartInFutureError(
        f"shard {shard_id}: Kinesis refuses the time {timestamp:.3f} as later than its "
        "own clock; correct the clock of the proxy that writes Kinesis's Date"
    )


async def reached_time(
    source: StreamSource, open_ids: Collection[str], moment: float
) -> float:
    """Return ``moment``, or an earlier time that Kinesis's clock has reached.

    ``moment`` is the Date of a response, which may come from a proxy whose clock is
    ahead. A start at that time would skip the records that arrive before Kinesis's
    clock reaches it. Raise ConfigurationError if the Date is minutes ahead.
    """
    if not open_ids:
        return moment
    shard_id = min(open_ids)
    try:
        return (await iterator_at(source, shard_id, moment))[1]
    except StartInFutureError as error:
        raise ConfigurationError(
            f"shard {shard_id}: the Date of Kinesis's response is more than "
            f"{EARLIER_SECONDS[-1]:g} s ahead of Kinesis's own clock; correct the "
            "clock of the proxy that writes it"
        ) from error


# The maximum drift between two clocks, in seconds per second.
DRIFT = 1e-4


class ClockBounds:
    """Bounds that follow from the dates of responses and the arrival times of records.

    ``now`` is always the monotonic time of the call.
    """

    def __init__(self) -> None:
        # Bounds of Kinesis's time minus the monotonic time, as of ``_bounded_at``.
        self._min_offset, self._max_offset = -math.inf, math.inf
        self._bounded_at = 0.0

    def observe_date(self, service_time: float, asked_at: float, now: float) -> None:
        """Note a response's Date (in whole seconds), requested at ``asked_at``."""
        self._bound(service_time - now, service_time + 1 - asked_at, now)

    def observe_arrival(self, arrived_at: float, now: float) -> None:
        """Note a record's arrival time, which Kinesis's clock has certainly reached."""
        min_offset = arrived_at - now
        if min_offset <= self._max_offset:
            self._bound(min_offset, math.inf, now)

    def earliest(self, now: float) -> float:
        """Return a time that Kinesis's clock has certainly reached."""
        return now + self._min_offset - DRIFT * (now - self._bounded_at)

    def latest(self, now: float) -> float:
        """Return a time that Kinesis's clock has certainly not passed."""
        return now + self._max_offset + DRIFT * (now - self._bounded_at)

    def _bound(self, min_offset: float, max_offset: float, now: float) -> None:
        drift = DRIFT * (now - self._bounded_at)
        low = max(min_offset, self._min_offset - drift)
        high = min(max_offset, self._max_offset + drift)
        if low > high:
            # The bounds contradict each other: Kinesis's clock was adjusted, or this
            # machine was suspended. Use only the newest observation.
            low, high = min_offset, max_offset
        self._min_offset, self._max_offset = low, high
        self._bounded_at = now
