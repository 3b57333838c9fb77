"""Clocks of the machine, of the event loop and of Kinesis."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from kinesumer.errors import ConfigurationError, StartInFutureError
from kinesumer.model.streams import Start
from kinesumer.ports import Clock, StreamSource

# Chosen: a step costs little, and two seconds are little of ``max_processing_seconds``.
STEP_SECONDS = 2.0
# The maximum drift between two clocks, in seconds per second. Computers' quartz drifts
# by at most 100 parts in a million.
DRIFT = 1e-4
# If Kinesis refuses a time because it is in the future, these numbers of seconds are
# subtracted from it, one at a time, until Kinesis accepts the result.
# Chosen: steps of tenfold, and a clock that differs by more needs a repair.
EARLIER_SECONDS = (0.0, 1.0, 10.0, 100.0)


class SystemClock:
    """The machine's clocks. On Linux, ``now()`` also counts suspended time.

    ``now()`` uses CLOCK_BOOTTIME on Linux, and ``time.monotonic()`` elsewhere.
    ``time.monotonic()`` may stop while the machine is suspended. If it does, a client
    trusts its lease for too long afterwards.
    """

    now: Callable[[], float]
    wall: Callable[[], float]

    def __init__(self) -> None:
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        # ``now()`` is called for each record. It is a C function, which takes half the
        # time of a method.
        self.now = time.monotonic if boot is None else partial(time.clock_gettime, boot)
        self.wall = time.time


class LoopClock:
    """Counts the seconds in which the client's event loop wasn't blocked.

    A period in which the loop is blocked counts for two seconds at most. Any thread may
    read the clock. While ``run()`` isn't running, all seconds count.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When the loop's next turn is due, and the loop's total delay so far. One tuple
        # holds both values, since other threads read them.
        self._due_and_held = math.inf, 0.0
        # When a missed turn of the loop was due, and when a call noticed the miss.
        self._seen = math.inf, 0.0

    def now(self) -> float:
        """Return the seconds since an arbitrary start."""
        due, held = self._due_and_held
        return min(self._clock.now(), due) - held

    def to_client_time(self, loop_time: float) -> float:
        """Convert a time of this clock to the client's clock."""
        return self._clock.now() - (self.now() - loop_time)

    def blocked_since(self) -> float | None:
        """Return when the loop was first seen blocked, or None if it isn't blocked."""
        # The time is that of the first call that notices the block, not the time at
        # which the loop's turn was due. After the machine was suspended, threads wake
        # up one by one. At that moment the loop is late, although it isn't blocked.
        due, _ = self._due_and_held
        now = self._clock.now()
        if now <= due:
            return None
        if self._seen[0] != due:
            self._seen = due, now
        return self._seen[1]

    async def run(self) -> None:
        """Measure the loop's delay until cancelled."""
        held = 0.0
        while True:
            due = self._clock.now() + STEP_SECONDS
            self._due_and_held = due, held
            await asyncio.sleep(STEP_SECONDS)
            held += max(0.0, self._clock.now() - due)


TIMER_SECONDS = 0.05
# The part of user code's time that its pauses take. A timer waits for as long, so that
# code that runs for minutes needs few timers.
YIELD_SHARE = 1 / 20


class LoopLag:
    """Measures how much later than scheduled the event loop calls a repeated timer.

    The timer repeats only while user code runs. ``busy_since`` returns the time at
    which user code started, or None if no user code is running.
    """

    def __init__(
        self, now: Callable[[], float], busy_since: Callable[[], float | None]
    ) -> None:
        self._now = now
        self._busy_since = busy_since
        self._due: float | None = None

    def start(self) -> None:
        """Set the timer if it isn't set yet. Call this on the event loop."""
        if self._due is None:
            self._set(TIMER_SECONDS)

    def seconds(self) -> float:
        """Return how late the timer is, or 0 if it isn't set."""
        return 0.0 if self._due is None else max(0.0, self._now() - self._due)

    def _set(self, delay: float) -> None:
        self._due = self._now() + delay
        asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        since = self._busy_since()
        if since is None:
            self._due = None
        else:
            self._set(max(TIMER_SECONDS, YIELD_SHARE * (self._now() - since)))


# Steps of the loop that suffice to receive an answer and send the next request.
YIELD_STEPS = 10
# The longest pause. If user code held the loop for no longer, YIELD_STEPS are enough.
MAX_YIELD_SECONDS = 0.25


async def yield_to_loop(held_seconds: float) -> None:
    """Let other tasks run. If user code has held the loop long, pause longer.

    During the pause, the loop handles the answers that have arrived from Kinesis and
    the state store, and sends the next requests.
    """
    for _ in range(YIELD_STEPS):
        await asyncio.sleep(0)
    if seconds := yield_seconds(held_seconds):
        await asyncio.sleep(seconds)


def yield_seconds(held_seconds: float) -> float:
    """Return how long to sleep after user code has held the event loop."""
    if held_seconds <= MAX_YIELD_SECONDS:
        return 0.0
    return min(YIELD_SHARE * held_seconds, MAX_YIELD_SECONDS)


class ServiceTime:
    """Bounds of Kinesis's clock, relative to this machine's monotonic clock.

    They follow from the dates of responses and the arrival times of records. A proxy
    may falsify a response's Date.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Bounds of Kinesis's time minus the monotonic time, as of ``_bounded_at``.
        self._min_offset, self._max_offset = -math.inf, math.inf
        self._bounded_at = 0.0

    def observe_date(self, service_time: float, asked_at: float) -> None:
        """Note a response's Date (in whole seconds), requested at ``asked_at``."""
        now = self._clock.now()
        self._bound(service_time - now, service_time + 1 - asked_at, now)

    def observe_arrival(self, arrived_at: float) -> None:
        """Note a record's arrival time, which Kinesis's clock has certainly reached."""
        now = self._clock.now()
        if arrived_at - now <= self._max_offset:
            self._bound(arrived_at - now, math.inf, now)

    def earliest(self, at: float | None = None) -> float:
        """Return a time that Kinesis's clock had certainly reached ``at`` a time."""
        now = self._clock.now() if at is None else at
        return now + self._min_offset - DRIFT * (now - self._bounded_at)

    def latest(self) -> float:
        """Return a time that Kinesis's clock has certainly not passed."""
        now = self._clock.now()
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
