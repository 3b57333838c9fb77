"""One reader's share of a shard that several apps read.

All apps that read a shard share its five reads and two megabytes a second. None knows
of the others: each learns from refusals what its fair share is.
"""

from __future__ import annotations

CALL_SECONDS = 0.205
"""AWS allows five reads a second and shard, by all consumers together. On their way
reads draw nearer to each other: with 0.2 some seconds would see six."""
MOST_READS_PER_SECOND = 1 / CALL_SECONDS
BYTES_PER_SECOND = 2_000_000
"""AWS allows this much a second and shard; a larger page is paid for afterwards."""
PAGE_BYTES = 1_500_000
"""A page of more than a second's bytes closes the shard to all other apps until it is
paid for: what is asked for stays below that."""
REFILL_SECONDS = 1.0
"""After such a page, what the shard has saved up is given time to come back: else the
next page would find nothing, and close the shard again."""
SHARED_PAGE_BYTES = 500_000
"""The same while other apps are known to read the shard."""
HALF_READS_PER_SECOND = 2.4
"""A refusal proves a second consumer: more than half is never a fair share then."""
SIXTH_READS_PER_SECOND = 0.8
"""The share among six."""
FEWEST_READS_PER_SECOND = 0.4
"""The share among twelve."""
CUT_PER_READ = 0.133
LEAST_CUT, MOST_CUT = 0.15, 0.25
"""A refusal lowers the rate by this part: a fast reader's more than a slow one's, so
that shares become equal."""
SMALL_CUT, SMALL_GROWTH = 0.15, 0.015
"""Below SIXTH_READS_PER_SECOND a refusal lowers the rate by the first part, and in each
second the rate grows by the second one: otherwise some apps stayed too slow."""
REACTION_READS = 1.5
"""Reads after a cut that show whether it was enough; until then there is no other."""
HOLD_SECONDS, HOLD_POWER = 85.0, 0.4
"""After a cut, a rate of one read a second is kept for so many seconds, a higher one
longer: each attempt at more costs some app a refused read."""
GROWTH_SECONDS = 25.0
GROWTH_READS_PER_SECOND = 0.6
"""Then the rate grows with the third power of time: by this much in GROWTH_SECONDS."""
FIRST_RETRY_SECONDS = 0.25
RETRY_SECONDS = 0.1
RETRY_LEAST_SECONDS = 0.03
RETRY_SHRINK = 0.9
"""How soon a reader asks again for a read that was refused several times: what a
consumer that never slows down leaves free is gone in a moment."""
CONTENDED_RETRY_SECONDS = 0.1
CONTENDED_RETRY_LEAST_SECONDS = 0.02
CONTENDED_RETRY_SHRINK = 0.3
"""Beside such a consumer, the wait for another try is CONTENDED_RETRY_SECONDS at most.
It shrinks with the time since the last read: an app that waits for long asks often."""


class Share:
    """One reader's share of a shard's reads: lowered by refusals, raised by time."""

    __slots__ = ("_cut_at", "_fewest", "_grown", "_kept", "rate")

    def __init__(self, fewest: float = FEWEST_READS_PER_SECOND) -> None:
        self._fewest = fewest
        self.rate = MOST_READS_PER_SECOND
        """Reads a second."""
        self._kept: float | None = None
        """The rate after the last cut. None: the whole shard is this reader's."""
        self._grown = 0.0
        """For how many seconds the rate has been used since the last cut."""
        self._cut_at = 0.0

    @property
    def whole(self) -> bool:
        """Whether no other consumer of the shard has been noticed."""
        return self._kept is None

    def cut(self, now: float, used: float) -> None:
        """Lower the rate after a refusal, from the rate that was ``used``."""
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
        """Take half of the shard beside a consumer that never slows down."""
        self.rate = self._kept = HALF_READS_PER_SECOND

    def calm(self) -> None:
        """Share the shard again with apps that slow down."""
        self.rate = self._kept = SIXTH_READS_PER_SECOND
        self._grown = 0.0

    def hurries(self, refusals: int) -> bool:
        """Return whether so many refusals of one read ask for quick tries.

        Readers that slow down don't refuse each other reads so often in a row.
        """
        return refusals > 2

    def retry_seconds(self, refusals: int, jitter: float) -> float:
        """Return how long to wait after so many refusals of one read.

        ``jitter`` is evenly distributed from 0 to 1: it keeps apps that share a shard
        from asking at the same moments.
        """
        if not self.hurries(refusals):
            return (0.8 + 0.2 * jitter) * FIRST_RETRY_SECONDS
        soon = RETRY_SECONDS * RETRY_SHRINK ** min(refusals, 50)
        return max((0.5 + 0.5 * jitter) * soon, RETRY_LEAST_SECONDS)

    def contended_retry_seconds(self, since_read: float, jitter: float) -> float:
        """Return how long to wait after a refusal beside a foreign consumer."""
        shrunk = min(CONTENDED_RETRY_SHRINK / max(since_read, 0.01), 1.0)
        wait = (0.5 + 0.5 * jitter) * shrunk * CONTENDED_RETRY_SECONDS
        return max(wait, CONTENDED_RETRY_LEAST_SECONDS)

    def pause_seconds(self, payload_bytes: int) -> float:
        """Return what must lie between a page of this size and the next read."""
        part = self.rate / MOST_READS_PER_SECOND
        paid = payload_bytes / BYTES_PER_SECOND
        if payload_bytes > BYTES_PER_SECOND:
            paid += REFILL_SECONDS
        return max(1 / self.rate, paid / part)

    @property
    def page_bytes(self) -> int:
        """How large a page may be without harm to other apps."""
        return PAGE_BYTES if self.whole else SHARED_PAGE_BYTES

    def grow(self, seconds: float) -> None:
        """Note that the rate was used for a time without a refusal."""
        if self._kept is None:
            return
        if self.rate < SIXTH_READS_PER_SECOND:
            grown = self.rate * (1 + SMALL_GROWTH * seconds)
            self.rate = self._kept = min(grown, SIXTH_READS_PER_SECOND)
            return
        self._grown += seconds
        growing = self._grown - HOLD_SECONDS * self._kept**HOLD_POWER
        if growing > 0:
            grown = GROWTH_READS_PER_SECOND * (growing / GROWTH_SECONDS) ** 3
            self.rate = self._kept + grown
        if self.rate >= MOST_READS_PER_SECOND:
            self.rate, self._kept = MOST_READS_PER_SECOND, None
