"""Decide the time and the record limit of the next read of a shard.

All consumers of a shard share its five reads and two megabytes a second. The apps of
one state store know how many of them read a stream, and each one takes its equal part.
Beside other consumers, refused reads lower the rate: additive increase, multiplicative
decrease (Chiu and Jain, 1989).

For example, each of two apps reads at most 2.4 times a second. After a refusal it reads
1.95 times a second, and 49 seconds later 2.4 times again.
"""

from __future__ import annotations

from kinesumer.core.backoff import Backoff

# The minimum time between two reads. AWS allows five reads per second and shard, for
# all consumers together. The time is more than 0.2 s, since the network can shorten the
# time between reads, so that six reads would arrive within one second.
CALL_SECONDS = 0.205
# AWS allows this many bytes per second and shard. After a larger page, AWS refuses all
# apps' reads of the shard for a while.
BYTES_PER_SECOND = 2_000_000
# Maximum size of a page. Its records may be a third larger than those of the last page,
# by which it is estimated.
PAGE_BYTES = BYTES_PER_SECOND * 3 // 4
# The same while others read the shard: pages of four apps fit into a second.
SHARED_PAGE_BYTES = BYTES_PER_SECOND // 4
# The extra wait after a page of more than BYTES_PER_SECOND, in which the shard's
# allowance of bytes recovers. Otherwise AWS would refuse reads again after the next
# page. A second fills the allowance, which is that of a second.
REFILL_SECONDS = 1.0
# docs/decisions/03-fair-shares.md has the experiments for these numbers.
RETRY_SECONDS = 0.02, 0.1  # the least and the most wait after a refusal
CUT = 0.8  # factor by which a refusal changes the rate
GROWTH_READS_PER_SECOND = 0.01  # added to the rate in each second without a refusal
FEWEST_READS_PER_SECOND = 0.8  # refusals don't lower the rate further

CAUGHT_UP_SECONDS = 0.25
IDLE_SECONDS = 1.0
# A shard without records for this time is read less and less often.
IDLE_AFTER_SECONDS = 10.0  # after as much again, reads are IDLE_SECONDS apart
# Of failed reads. These waits are random from 0 on, so the longest one has about the
# mean of CALL_BACKOFF's longest wait.
BACKOFF = Backoff(0.5, 5.0)
# If all reads are refused for this time, a longer wait follows, as in an outage.
# Chosen: bursts of other consumers are shorter.
RETRY_FOR_SECONDS = 8.0


class Pacing:
    """The pace of one shard's reads.

    Each ``after_...`` method takes the outcome of a read and returns when the next read
    may start.

    All times are seconds on one clock.
    """

    def __init__(
        self,
        now: float,
        min_read_interval_seconds: float = CALL_SECONDS,
        max_bytes_per_second: float | None = None,
    ) -> None:
        """Begin to read a shard.

        With ``max_bytes_per_second``, a reader that shares the shard with no other one
        keeps only its own two limits. They may be above those of AWS, since other
        servers allow more.
        """
        self._pace = min_read_interval_seconds
        if max_bytes_per_second is None:
            self._pace = max(min_read_interval_seconds, CALL_SECONDS)
        self._max_bytes_per_second = max_bytes_per_second
        self._next_at = now
        self._share = Share()
        # The wait before the next read if no other app reads the shard.
        self._wait = CAUGHT_UP_SECONDS
        self._last_record = now
        # The bytes per record of the last page with records. 0 if there was none.
        self._record_bytes = 0.0
        self._failures = 0
        # When Kinesis first refused the present read, or None.
        self._refused_since: float | None = None

    def share_among(self, apps: int) -> None:
        """Set the number of apps that read the shard, including this one."""
        self._share.share_among(apps)

    @property
    def is_shared(self) -> bool:
        """True if another consumer of the shard is known."""
        return not self._share.is_whole

    def starts_at(self, now: float) -> float:
        """Return when a further reader of the shard, with the same pace, may begin."""
        return max(now, self._next_at) if self.is_shared else now

    def page_records(self, limit: int) -> int:
        """Return a record limit that keeps a page small enough for other apps.

        After a page of more bytes than a shard allows per second, Kinesis refuses the
        reads of all apps for a while.
        """
        if not self._record_bytes:
            return limit
        return max(1, min(limit, int(self._share.page_bytes / self._record_bytes)))

    def after_page(
        self, started: float, *, records: int, payload_bytes: int, millis_behind: int
    ) -> float:
        """Return when to start the next read, after a page requested at ``started``.

        A reader that is behind reads as soon as its share allows. Otherwise it reads at
        a steady pace, which becomes slower after ten seconds without records.
        """
        self._failures, self._refused_since = 0, None
        if records:
            self._last_record = started
            self._record_bytes = payload_bytes / records
        self._wait = self._pace
        if not millis_behind:
            self._wait = max(self._pace, self._caught_up_wait(started))
        if self._max_bytes_per_second is not None:
            own = payload_bytes / self._max_bytes_per_second
            self._wait = max(self._wait, own)
            if not self.is_shared:
                return self._at(started + self._wait)
        shared = self._share.pause_seconds(payload_bytes)
        if shared > self._wait:
            self._share.grow(shared)
        return self._at(started + max(self._wait, shared))

    def after_throttle(self, now: float, jitter: float) -> float:
        """Return the time of the next try after Kinesis refused a read as too fast.

        ``jitter`` is evenly distributed from 0 to 1.
        """
        # Repeated refusals of one read say nothing new about the share.
        if self._refused_since is None:
            self._refused_since = now
            self._share.cut(now, 1 / max(self._wait, CALL_SECONDS))
        elif now - self._refused_since > RETRY_FOR_SECONDS:
            self._refused_since = None
            return self.after_failure(now, jitter)
        if self._pace > CAUGHT_UP_SECONDS:  # the user has set a slower pace
            return self._at(now + self._pace)
        return self._at(now + retry_seconds(jitter))

    def after_failure(self, now: float, jitter: float) -> float:
        """Return the time of the next try after a failed read.

        ``jitter`` is evenly distributed from 0 to 1. It spreads the tries of many
        clients over the whole wait, which doubles with each failure in a row.
        """
        self._failures += 1
        longest = BACKOFF.limit_seconds(self._failures)
        return self._at(now + max(self._pace, jitter * longest))

    def _at(self, time: float) -> float:
        self._next_at = time
        return time

    def _caught_up_wait(self, now: float) -> float:
        idle = now - self._last_record - IDLE_AFTER_SECONDS
        slowed = min(max(idle / IDLE_AFTER_SECONDS, 0.0), 1.0)
        return CAUGHT_UP_SECONDS + slowed * (IDLE_SECONDS - CAUGHT_UP_SECONDS)


def retry_seconds(jitter: float) -> float:
    """Return the wait after a refusal.

    ``jitter`` is evenly distributed from 0 to 1. It keeps apps that share a shard from
    reading at the same moments.
    """
    least, most = RETRY_SECONDS
    return least + jitter * (most - least)


class Share:
    """A reader's share of a shard's reads. Refusals lower it, and time raises it."""

    def __init__(self) -> None:
        self._apps = 1
        self._cut_at = 0.0
        self.rate: float = self._most

    @property
    def _most(self) -> float:
        return 1 / (CALL_SECONDS * self._apps)

    @property
    def is_whole(self) -> bool:
        """True if no other consumer of the shard is known."""
        return self._apps == 1 and self.rate == self._most

    def share_among(self, apps: int) -> None:
        """Set the number of apps that read the shard, including this one."""
        if apps != self._apps:
            was_most = self.rate == self._most
            self._apps = apps
            self.rate = self._most if was_most else min(self.rate, self._most)

    def cut(self, now: float, used: float) -> None:
        """Lower the rate after a refusal; ``used`` is the rate of the actual reads."""
        if now - self._cut_at < 1 / self.rate:
            return  # the last cut has had no effect yet
        fewest = min(FEWEST_READS_PER_SECOND, self._most)
        self.rate = max(CUT * min(self.rate, used), fewest)
        self._cut_at = now

    def grow(self, seconds: float) -> None:
        """Raise the rate after it was used for ``seconds`` without a refusal."""
        self.rate = min(self.rate + GROWTH_READS_PER_SECOND * seconds, self._most)

    def pause_seconds(self, payload_bytes: int) -> float:
        """Return the minimum time between a page of this size and the next read."""
        part = self.rate * CALL_SECONDS
        paid = payload_bytes / BYTES_PER_SECOND
        if payload_bytes > BYTES_PER_SECOND:
            paid += REFILL_SECONDS
        return max(1 / self.rate, paid / part)

    @property
    def page_bytes(self) -> int:
        """The maximum size of a page that doesn't harm other apps."""
        return PAGE_BYTES if self.is_whole else SHARED_PAGE_BYTES
