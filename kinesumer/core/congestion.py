"""Limit what one client asks of the services: congestion control.

A window limits the bytes that are requested from Kinesis at a time, and a rate the
writes to the state store. Both grow while all goes well, and halve when it does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kinesumer.model.streams import HASH_KEYS, Range

# The memory that is reserved for a page of unknown size. A page has at most 10 MiB as
# JSON, or 10,000 records.
FULL_PAGE_BYTES = 16 * 1024 * 1024
FIRST_BYTES = 4 * FULL_PAGE_BYTES
MIN_BYTES = 128 * 1024
QUICK_SECONDS = 3.0  # the window grows fast while answers take less time than this
# The window doesn't grow if an answer takes this long: a third of the time-out.
SLOW_SECONDS = 10.0
# DynamoDB's limit of writes per partition. At first, each writer uses an equal share.
UNITS_PER_SECOND = 1000.0
# Maximum commits per second for one stream, by all clients together. The rest of
# DynamoDB's limit is for claims, and for marking shards as ended.
COMMITS_PER_SECOND = 800.0
# While writes have to wait, the rate grows each second by this part of its initial
# value.
GAIN = 0.25
CUT = 0.5  # factor by which a throttled write changes the rate
MIN_PER_SECOND = 0.5
MAX_PAUSE_SECONDS = 0.25  # maximum pause after a throttled write
# If no write has had to wait in this time, the rate returns to its initial value.
FORGET_SECONDS = 5.0
# Sums of floats are inexact: waiting for a full 1.0 might never end.
ALMOST_ONE = 1.0 - 1e-6


class CongestionWindow:
    """The maximum number of bytes in flight. Answers raise it, and time-outs halve it.

    If the window is smaller than a page, only one answer at a time is requested, and
    its size is limited to the window. All times are seconds on one clock.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max(max_bytes, FULL_PAGE_BYTES)
        self._halved_at = -math.inf
        self.size: int = min(FIRST_BYTES, self._max_bytes)

    @property
    def answer_bytes(self) -> int:
        """The maximum bytes of one answer."""
        return min(self.size, FULL_PAGE_BYTES)

    @property
    def is_smallest(self) -> bool:
        """True if the window has its minimum size."""
        return self.size <= MIN_BYTES

    def answered(self, answer_bytes: int, seconds: float, in_flight: int) -> None:
        """Note an answer, its duration, and the bytes that were in flight.

        The window grows only if at least half of it was in use.
        """
        if 2 * in_flight < self.size or seconds >= SLOW_SECONDS:
            return
        step = answer_bytes
        # Grow by about one page per full window of answers.
        if seconds >= QUICK_SECONDS:
            step = min(step, FULL_PAGE_BYTES * answer_bytes // self.size)
        self.size = min(self._max_bytes, self.size + step)

    def timed_out(self, began: float, now: float, in_flight: int) -> None:
        """Note that a request sent at ``began`` has timed out.

        A request that was sent before the last halving doesn't halve the window again.
        """
        if began < self._halved_at:
            return
        self._halved_at = now
        self.size = max(MIN_BYTES, min(self.size, in_flight) // 2)

    def restart(self) -> None:
        """Shrink to the initial size, since a new connection may take another route."""
        self.size = min(self.size, FIRST_BYTES)


class WriteRate:
    """A rate with additive increase and multiplicative decrease.

    All times are seconds on one clock.
    """

    def __init__(self, now: float) -> None:
        self._writers = 1
        self.per_second: float = self._share
        self._saved = self._share  # a burst may send a second's writes
        self._saved_at = now
        self._limited_at = self._cut_at = self._resume_at = -math.inf

    def share_among(self, writers: int) -> None:
        """Set the number of writers that share the partition's limit."""
        self._writers = max(1, writers)

    def wait_seconds(self, now: float) -> float:
        """Return the wait before the next write. If it is 0, a write counts as sent."""
        if now - self._limited_at > FORGET_SECONDS:
            self.per_second = self._share
        gained = (now - self._saved_at) * self.per_second
        maximum = max(1.0, self.per_second)
        self._saved, self._saved_at = min(maximum, self._saved + gained), now
        if now < self._resume_at:
            return self._resume_at - now
        if self._saved >= ALMOST_ONE:
            self._saved -= 1.0
            return 0.0
        self._limited_at = now
        return (1.0 - self._saved) / self.per_second

    def accepted(self, now: float) -> None:
        """Note a write that the store accepted."""
        # At a low rate, the wait itself takes longer than a second.
        if now - self._limited_at <= 1.0 + 1.0 / self.per_second:
            grown = self.per_second + GAIN * self._share / self.per_second
            self.per_second = min(UNITS_PER_SECOND, grown)

    def refused(self, sent_at: float, now: float, jitter: float) -> None:
        """Note a write that the store throttled.

        ``jitter`` is uniform between 0 and 1.
        """
        self._limited_at = now
        # Of several throttled writes that were in flight together, only the first one
        # lowers the rate.
        if sent_at < self._cut_at:
            return
        self.per_second = max(MIN_PER_SECOND, CUT * self.per_second)
        self._cut_at, self._saved = now, 0.0
        self._resume_at = now + jitter * MAX_PAUSE_SECONDS

    @property
    def _share(self) -> float:
        return max(MIN_PER_SECOND, UNITS_PER_SECOND / self._writers)


def commit_interval_seconds(
    counts: Mapping[str, int], shares: Mapping[str, float]
) -> float:
    """Return how many seconds to wait at least until the next commits.

    ``counts`` holds the number of shards of each stream that were just committed.
    ``shares`` holds this client's share of each stream's limit.
    """
    return max(
        (count / (COMMITS_PER_SECOND * shares[arn]) for arn, count in counts.items()),
        default=0.0,
    )


def share_of(arn: str, range_: Range, clients: int) -> float:
    """Return a client's share of the write limit of a stream's partition."""
    # A client with a larger part of the hash keys has more shards to commit.
    keys = sum(last - first + 1 for of, first, last in range_ if of == arn)
    return max(keys / HASH_KEYS, 1 / clients)
