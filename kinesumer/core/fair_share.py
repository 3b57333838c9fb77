"""One reader's share of a shard that several apps read.

All apps that read a shard share its five reads and two megabytes a second. An app knows
nothing of other apps. It learns its fair share from refused reads.
"""

from __future__ import annotations

import math

# The minimum time between two reads. AWS allows five reads per second and shard, for
# all consumers together. The time is more than 0.2 s, since the network can shorten the
# time between reads, so that six reads would arrive within one second.
CALL_SECONDS = 0.205
MOST_READS_PER_SECOND = 1 / CALL_SECONDS
# AWS allows this many bytes per second and shard. After a larger page, AWS refuses all
# apps' reads of the shard for a while.
BYTES_PER_SECOND = 2_000_000
PAGE_BYTES = 1_500_000  # maximum size of a page
SHARED_PAGE_BYTES = 500_000  # maximum size of a page while other apps read the shard
# The extra wait after a page of more than BYTES_PER_SECOND, in which the shard's
# allowance of bytes recovers. Otherwise AWS would refuse reads again after the next
# page.
REFILL_SECONDS = 1.0
# The fair share if two apps read the shard. A refusal lowers the rate at least to this
# share, since it proves that there is a second consumer.
HALF_READS_PER_SECOND = 2.4
SIXTH_READS_PER_SECOND = 0.8  # the fair share if six apps read the shard
FEWEST_READS_PER_SECOND = 0.4  # the fair share if twelve apps read the shard
# A refusal lowers a higher rate by a larger part, so that the apps' shares become
# equal. The part is the rate times CUT_PER_READ, but at least LEAST_CUT and at most
# MOST_CUT.
CUT_PER_READ = 0.133
LEAST_CUT, MOST_CUT = 0.15, 0.25
# Below SIXTH_READS_PER_SECOND, a refusal lowers the rate by the part SMALL_CUT, and
# each second raises it by the part SMALL_GROWTH. With the rules for higher rates, some
# apps would stay too slow.
SMALL_CUT, SMALL_GROWTH = 0.15, 0.015
REACTION_READS = 1.5  # a cut is possible only after this many reads since the last one
# After a cut, a rate of one read per second stays constant for HOLD_SECONDS, and a
# higher rate stays constant for a little longer. Attempts to read faster must be rare,
# since each of them causes refused reads of some apps.
HOLD_SECONDS, HOLD_POWER = 110.0, 0.1
# After the rate has been constant, it grows exponentially: by GROWTH_READS_PER_SECOND
# times e^(t / GROWTH_SECONDS) - 1. It must grow slowly at first. Several apps often
# grow at the same time, and all reads above the limit of the shard are refused.
GROWTH_SECONDS = 10.0
GROWTH_READS_PER_SECOND = 0.04
# If a read was refused several times, the reader retries at short intervals, since a
# consumer that never slows down leaves only short gaps.
FIRST_RETRY_SECONDS = 0.25
RETRY_SECONDS = 0.1
RETRY_LEAST_SECONDS = 0.03
RETRY_SHRINK = 0.9
# Beside such a consumer, the wait before a retry is at most CONTENDED_RETRY_SECONDS.
# The longer ago the last answered read is, the shorter is the wait.
CONTENDED_RETRY_SECONDS = 0.1
CONTENDED_RETRY_LEAST_SECONDS = 0.02
CONTENDED_RETRY_SHRINK = 0.3


class Share:
    """A reader's share of a shard's reads. Refusals lower it, and time raises it."""

    __slots__ = ("_cut_at", "_fewest", "_grown", "_kept", "rate")

    rate: float

    def __init__(self, fewest: float = FEWEST_READS_PER_SECOND) -> None:
        self._fewest = fewest
        self.rate = MOST_READS_PER_SECOND
        # The rate after the last cut. None if no other consumer was noticed.
        self._kept: float | None = None
        # The seconds for which the rate has been used since the last cut.
        self._grown = 0.0
        self._cut_at = 0.0

    @property
    def whole(self) -> bool:
        """True if no other consumer of the shard has been noticed."""
        return self._kept is None

    def cut(self, now: float, used: float) -> None:
        """Lower the rate after a refusal; ``used`` is the rate of the actual reads."""
        # The last cut needs time to show its effect.
        if not self.whole and now - self._cut_at < REACTION_READS / self.rate:
            return
        used = min(used, self.rate)
        if used > SIXTH_READS_PER_SECOND:
            part = min(max(CUT_PER_READ * used, LEAST_CUT), MOST_CUT)
            rate = min(used * (1 - part), HALF_READS_PER_SECOND)
            rate = max(rate, SIXTH_READS_PER_SECOND)
        else:
            rate = used * (1 - SMALL_CUT)
        self.rate = self._kept = max(rate, self._fewest)
        self._cut_at, self._grown = now, 0.0

    def contend(self) -> None:
        """Set the rate to half of the reads, since there is a foreign consumer."""
        self.rate = self._kept = HALF_READS_PER_SECOND

    def calm(self) -> None:
        """Set the rate to a sixth of the reads, as the foreign consumer has ended."""
        self.rate = self._kept = SIXTH_READS_PER_SECOND
        self._grown = 0.0

    def hurries(self, refusals: int) -> bool:
        """Return whether to retry quickly after this many refusals of one read.

        If all readers slow down, one read is rarely refused so often in a row.
        """
        return refusals > 2

    def retry_seconds(self, refusals: int, jitter: float) -> float:
        """Return the wait after this many refusals of one read.

        ``jitter`` is evenly distributed from 0 to 1. It keeps apps that share a shard
        from reading at the same moments.
        """
        if not self.hurries(refusals):
            return (0.8 + 0.2 * jitter) * FIRST_RETRY_SECONDS
        soon = RETRY_SECONDS * RETRY_SHRINK ** min(refusals, 50)
        return max((0.5 + 0.5 * jitter) * soon, RETRY_LEAST_SECONDS)

    def contended_retry_seconds(self, since_read: float, jitter: float) -> float:
        """Return the wait after a refusal beside a foreign consumer."""
        shrunk = min(CONTENDED_RETRY_SHRINK / max(since_read, 0.01), 1.0)
        wait = (0.5 + 0.5 * jitter) * shrunk * CONTENDED_RETRY_SECONDS
        return max(wait, CONTENDED_RETRY_LEAST_SECONDS)

    def pause_seconds(self, payload_bytes: int) -> float:
        """Return the minimum time between a page of this size and the next read."""
        part = self.rate / MOST_READS_PER_SECOND
        paid = payload_bytes / BYTES_PER_SECOND
        if payload_bytes > BYTES_PER_SECOND:
            paid += REFILL_SECONDS
        return max(1 / self.rate, paid / part)

    @property
    def page_bytes(self) -> int:
        """The maximum size of a page that doesn't harm other apps."""
        return PAGE_BYTES if self.whole else SHARED_PAGE_BYTES

    def grow(self, seconds: float) -> None:
        """Raise the rate after it was used for ``seconds`` without a refusal."""
        if self._kept is None:
            return
        if self.rate < SIXTH_READS_PER_SECOND:
            grown = self.rate * (1 + SMALL_GROWTH * seconds)
            self.rate = self._kept = min(grown, SIXTH_READS_PER_SECOND)
            return
        self._grown += seconds
        growing = self._grown - HOLD_SECONDS * self._kept**HOLD_POWER
        if growing > 0:
            grown = GROWTH_READS_PER_SECOND * math.expm1(growing / GROWTH_SECONDS)
            self.rate = self._kept + grown
        if self.rate >= MOST_READS_PER_SECOND:
            self.rate, self._kept = MOST_READS_PER_SECOND, None
