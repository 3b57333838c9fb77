"""Detect a consumer that reads a shard and never slows down.

Kinesumer's apps read a shard more slowly when Kinesis refuses reads, so that Kinesis
soon refuses only a few. If another consumer of the shard never slows down, Kinesis
refuses many reads at any pace. Such a consumer is called foreign here.
"""

from __future__ import annotations

# If up to six apps read at this rate, few reads are refused.
SLOW_READS_PER_SECOND = 0.65
WEIGHT = 0.05  # the weight of one read in the moving average of refusals
USUAL_PART = 0.3  # the initial value of the moving average of refusals
# If more than this part of the reads at a slow rate is refused, a foreign consumer is
# assumed. Beside a consumer that polls exactly five times a second, only a slightly
# larger part is refused. Seven apps that slow down can also cause so many refusals, and
# then treat each other as foreign consumers.
FOREIGN_PART = 0.35
# If less than this part of the reads at a fast rate is refused, the foreign consumer
# has ended.
ALONE_PART = 0.1
# A trial begins when the wall clock shows a multiple of a period, so that all apps have
# their trials at the same time. Otherwise the reads of one app would disturb the trial
# of another app. The period is TRIAL_SECONDS at first. It doubles after each trial, at
# most TRIAL_DOUBLINGS times.
TRIAL_SECONDS, TRIAL_DOUBLINGS = 20.0, 4
TRIAL_LENGTH_SECONDS = 3.0
TRIAL_READS = 3
# The first read of a trial comes after QUIET_SECONDS and a random part of
# SPREAD_SECONDS.
QUIET_SECONDS, SPREAD_SECONDS = 0.5, 0.8
# The waits in a trial after an answered read, and after a refused read.
APART_SECONDS, RETRY_SECONDS = 0.7, 0.8


class Contention:
    """Detects from refused reads that a foreign consumer reads the shard.

    While there is a foreign consumer, there are short trials from time to time. If
    TRIAL_READS reads of a trial are answered and none is refused, the foreign consumer
    has ended.

    All times are seconds on one clock.
    """

    __slots__ = (
        "_doublings",
        "_jitter",
        "_part",
        "_trial_at",
        "_trial_ends",
        "_trial_reads",
        "_wall_offset",
        "foreign",
    )

    def __init__(self) -> None:
        # True if a consumer that never slows down was detected.
        self.foreign: bool = False
        # The moving average of reads whose first attempt was refused.
        self._part = USUAL_PART
        self._doublings = 0
        self._trial_at = self._trial_ends = 0.0
        # The answered reads of the trial, or None if a read was refused.
        self._trial_reads: int | None = 0
        self._wall_offset = 0.0
        self._jitter = 0.0

    def tries(self, now: float) -> bool:
        """Return whether a trial is under way."""
        return self.foreign and now < self._trial_ends

    def answered(self, now: float, rate: float) -> None:
        """Note a read that was answered at the first attempt, and the rate of reads."""
        if not self.tries(now):
            self._count(now, 0.0, rate)
        elif self._trial_reads is not None:
            self._trial_reads += 1
            if self._trial_reads == TRIAL_READS:
                self._calm()

    def refused(self, now: float, rate: float, wall: float, jitter: float) -> None:
        """Note a read that was refused; ``wall`` is the wall clock's time."""
        self._wall_offset, self._jitter = wall - now, jitter
        if self.tries(now):
            self._trial_reads = None
        else:
            self._count(now, 1.0, rate)

    def next_read(self, now: float, at: float) -> float:
        """Return when to read beside a foreign consumer: at ``at`` or for a trial."""
        if self.tries(now):
            wait = RETRY_SECONDS if self._trial_reads is None else APART_SECONDS
            return now + (0.9 + 0.2 * self._jitter) * wait
        if at < self._trial_at:
            return at
        first = self._trial_at + QUIET_SECONDS + SPREAD_SECONDS * self._jitter
        self._trial_ends = self._trial_at + TRIAL_LENGTH_SECONDS
        self._trial_reads = 0
        self._doublings = min(self._doublings + 1, TRIAL_DOUBLINGS)
        self._plan_trial(self._trial_ends)
        return max(at, first)

    def _count(self, now: float, part: float, rate: float) -> None:
        if not self.foreign and rate > SLOW_READS_PER_SECOND:
            return  # at a higher rate, any other app can cause refusals
        self._part += WEIGHT * (part - self._part)
        if self.foreign:
            if self._part < ALONE_PART:
                self._calm()
        elif self._part > FOREIGN_PART:
            self.foreign = True
            self._plan_trial(now)

    def _calm(self) -> None:
        self.foreign = False
        self._part = USUAL_PART
        self._doublings = 0

    def _plan_trial(self, after: float) -> None:
        apart = TRIAL_SECONDS * 2**self._doublings
        self._trial_at = after + apart - (after + self._wall_offset) % apart
