"""When to read a shard next, and how large a page may be.

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
CAUGHT_UP_SECONDS = 0.25
IDLE_SECONDS = 1.0
IDLE_AFTER_SECONDS = 10.0
"""A shard without records for so long is slowly read less often …"""
IDLE_SLOWING_SECONDS = 10.0
"""… and this much later only every IDLE_SECONDS."""
BACKOFF_SECONDS = 0.5
BACKOFF_LIMIT_SECONDS = 5.0

HALF_READS_PER_SECOND = 2.4
"""A refusal proves a second consumer: more than half is never a fair share then."""
FEWEST_READS_PER_SECOND = 0.8
"""The share among six. Consumers that never slow down can't push a reader below it."""
CUT_PER_READ = 0.133
LEAST_CUT, MOST_CUT = 0.1, 0.25
"""A refusal lowers the rate by this part: a fast reader's more than a slow one's, so
that shares become equal."""
REACTION_READS = 1.5
"""Reads after a cut that show whether it was enough; until then there is no other."""
HOLD_SECONDS = 85.0
"""After a cut, a rate of one read a second is kept for this long, a higher one longer:
each attempt at more costs somebody a refused read."""
GROWTH_SECONDS = 25.0
GROWTH_READS_PER_SECOND = 0.6
"""Then the rate grows with the third power of time: by this much in GROWTH_SECONDS."""
RETRY_SECONDS = 0.1
RETRY_LEAST_SECONDS = 0.03
RETRY_SHRINK = 0.9
"""How soon a reader at its least rate asks again for a read that was refused twice or
more: what a consumer that never slows down leaves free is gone in a moment."""
RETRY_FOR_SECONDS = 5.0
"""After so long without any read it pauses, as in an outage, before it goes on."""


class Share:
    """One reader's share of a shard's reads: lowered by refusals, raised by time."""

    __slots__ = ("_cut_at", "_grown", "_kept", "rate")

    def __init__(self) -> None:
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

    @property
    def least(self) -> bool:
        """Whether the rate can't be lowered any more."""
        return self.rate <= FEWEST_READS_PER_SECOND

    def cut(self, now: float, used: float) -> None:
        """Lower the rate after a refusal, from the rate that was ``used``."""
        if not self.whole and now - self._cut_at < REACTION_READS / self.rate:
            return
        used = min(used, self.rate)
        part = min(max(CUT_PER_READ * used, LEAST_CUT), MOST_CUT)
        rate = min(used * (1 - part), HALF_READS_PER_SECOND)
        self.rate = self._kept = max(rate, FEWEST_READS_PER_SECOND)
        self._cut_at, self._grown = now, 0.0

    def grow(self, seconds: float) -> None:
        """Note that the rate was used for a time without a refusal."""
        if self._kept is None:
            return
        self._grown += seconds
        growing = self._grown - HOLD_SECONDS * self._kept**0.6
        if growing > 0:
            grown = GROWTH_READS_PER_SECOND * (growing / GROWTH_SECONDS) ** 3
            self.rate = self._kept + grown
        if self.rate >= MOST_READS_PER_SECOND:
            self.rate, self._kept = MOST_READS_PER_SECOND, None


class Pacing:
    """The pace of one shard's reads: told what came of a read, says when the next may
    start.

    All times are seconds on one clock of the caller's.
    """

    __slots__ = (
        "_failures",
        "_last_record",
        "_pace",
        "_record_bytes",
        "_refusals",
        "_refused_since",
        "_share",
        "_wait",
    )

    def __init__(self, now: float, pace_seconds: float = CALL_SECONDS) -> None:
        self._pace = max(pace_seconds, CALL_SECONDS)
        self._share = Share()
        self._wait = CAUGHT_UP_SECONDS
        """How long it would be to the next read if no other app read the shard."""
        self._last_record = now
        self._record_bytes = 0.0
        """Of the last page. 0: none had records yet."""
        self._failures = 0
        self._refusals = 0
        self._refused_since = now

    def page_records(self, most: int) -> int:
        """Return how many records to ask for, so that a page doesn't harm other apps.

        A page of more than a second's bytes would close the shard to all of them.
        """
        if not self._record_bytes:
            return most
        size = PAGE_BYTES if self._share.whole else SHARED_PAGE_BYTES
        return max(1, min(most, int(size / self._record_bytes)))

    def after_page(
        self, started: float, *, records: int, payload_bytes: int, millis_behind: int
    ) -> float:
        """Return when to start the next read after one that began at ``started``.

        Behind: as soon as the share allows. Caught up: a steady pace, slower after ten
        seconds without records.
        """
        self._failures = self._refusals = 0
        if records:
            self._last_record = started
            self._record_bytes = payload_bytes / records
        self._wait = self._pace
        if not millis_behind:
            self._wait = max(self._pace, self._caught_up_wait(started))
        part = self._share.rate / MOST_READS_PER_SECOND
        paid = payload_bytes / BYTES_PER_SECOND
        if payload_bytes > BYTES_PER_SECOND:
            paid += REFILL_SECONDS
        shared = max(1 / self._share.rate, paid / part)
        if shared > self._wait:
            self._share.grow(shared)
        return started + max(self._wait, shared)

    def after_throttle(self, now: float, jitter: float) -> float:
        """Return when to try again after a read that Kinesis refused as too fast.

        ``jitter`` is evenly distributed from 0 to 1: it keeps apps that share a shard
        from asking at the same moments.
        """
        self._refusals += 1
        if self._refusals == 1:  # further ones in a row are of the same cause
            self._refused_since = now
            self._share.cut(now, 1 / self._wait)
        elif now - self._refused_since > RETRY_FOR_SECONDS:
            self._refusals = 0
            return self.after_failure(now, jitter)
        if self._share.least and self._refusals > 1:
            soon = RETRY_SECONDS * RETRY_SHRINK ** min(self._refusals, 50)
            wait = max((0.5 + 0.5 * jitter) * soon, RETRY_LEAST_SECONDS)
            return now + (wait if self._pace == CALL_SECONDS else self._pace)
        return now + max(self._pace, (0.2 + 0.4 * jitter) / self._share.rate)

    def after_failure(self, now: float, jitter: float) -> float:
        """Return when to try again after a read that failed.

        ``jitter`` is evenly distributed from 0 to 1: it spreads the tries of many
        clients over the whole wait, which doubles with each failure in a row.
        """
        limit = BACKOFF_LIMIT_SECONDS
        if self._failures < 10:
            limit = min(limit, BACKOFF_SECONDS * 2**self._failures)
        self._failures += 1
        return now + max(self._pace, jitter * limit)

    def _caught_up_wait(self, now: float) -> float:
        idle = now - self._last_record - IDLE_AFTER_SECONDS
        slowed = min(max(idle / IDLE_SLOWING_SECONDS, 0.0), 1.0)
        return CAUGHT_UP_SECONDS + slowed * (IDLE_SECONDS - CAUGHT_UP_SECONDS)
