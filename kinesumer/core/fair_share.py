"""Divide a shard's reads: equal shares for known apps, AIMD beside other consumers.

All consumers of a shard share its five reads and two megabytes a second. The apps of
one state store know how many of them read a stream, and each one takes its equal part.
Beside other consumers, refused reads lower the rate: additive increase, multiplicative
decrease (Chiu and Jain, 1989).

For example, each of two apps reads at most 2.4 times a second. After a refusal it reads
1.95 times a second, and 49 seconds later 2.4 times again.
"""

from __future__ import annotations

# The minimum time between two reads. AWS allows five reads per second and shard, for
# all consumers together. The time is more than 0.2 s, since the network can shorten the
# time between reads, so that six reads would arrive within one second.
CALL_SECONDS = 0.205
# AWS allows this many bytes per second and shard. After a larger page, AWS refuses all
# apps' reads of the shard for a while.
BYTES_PER_SECOND = 2_000_000
PAGE_BYTES = 1_500_000  # maximum size of a page
SHARED_PAGE_BYTES = 500_000  # maximum size of a page while others read the shard
# The extra wait after a page of more than BYTES_PER_SECOND, in which the shard's
# allowance of bytes recovers. Otherwise AWS would refuse reads again after the next
# page.
REFILL_SECONDS = 1.0
# docs/decisions/03-fair-shares.md has the experiments for these numbers.
RETRY_SECONDS = 0.02, 0.1  # the least and the most wait after a refusal
CUT = 0.8  # factor by which a refusal changes the rate
GROWTH_READS_PER_SECOND = 0.01  # added to the rate in each second without a refusal
FEWEST_READS_PER_SECOND = 0.8  # refusals don't lower the rate further


def retry_seconds(jitter: float) -> float:
    """Return the wait after a refusal.

    ``jitter`` is evenly distributed from 0 to 1. It keeps apps that share a shard from
    reading at the same moments.
    """
    least, most = RETRY_SECONDS
    return least + jitter * (most - least)


class Share:
    """A reader's share of a shard's reads. Refusals lower it, and time raises it."""

    __slots__ = ("_apps", "_cut_at", "rate")

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
