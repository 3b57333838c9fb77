"""Whether a consumer that never slows down reads a shard.

Apps that slow down are seldom refused a read once they read slowly. Beside a consumer
that never slows down, most reads are refused at any pace.
"""

from __future__ import annotations

SLOW_READS_PER_SECOND = 0.5
"""Up to ten apps that read so slowly refuse each other few reads."""
WEIGHT = 0.07
"""How much one read counts in the mean part of the reads that are refused."""
USUAL_PART = 0.3
"""What is assumed at first."""
FOREIGN_PART = 0.5
"""If more than this part of slow reads is refused, a foreign consumer is the cause."""
ALONE_PART = 0.1
"""If less is refused at a fast pace, there is room: the foreign consumer has ended."""
TRIAL_SECONDS, TRIAL_DOUBLINGS = 20.0, 4
"""The first trial begins at a multiple of TRIAL_SECONDS by the wall clock, the next one
at a multiple of twice as many, and so on. So all apps have their trials together: an
app that goes on would refuse reads to the others."""
TRIAL_LENGTH_SECONDS = 3.0
TRIAL_READS = 3
QUIET_SECONDS, SPREAD_SECONDS = 0.5, 0.8
"""From the begin of a trial to its first read: this time, and a random part of that."""
APART_SECONDS, RETRY_SECONDS = 0.7, 0.8
"""From an answered read of a trial to the next one, and from a refused one."""


class Contention:
    """Tells from refused reads whether a foreign consumer reads the shard.

    While it does, a trial comes now and then: a moment of few reads. If TRIAL_READS of
    them are answered, the foreign consumer has ended.

    All times are seconds on one clock of the caller's.
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
        self.foreign = False
        """Whether a consumer that never slows down reads the shard."""
        self._part = USUAL_PART
        """The mean part of the reads that were refused at first."""
        self._doublings = 0
        self._trial_at = self._trial_ends = 0.0
        self._trial_reads: int | None = 0
        """How many reads of the trial were answered. None: one was refused."""
        self._wall_offset = 0.0
        self._jitter = 0.0

    def tries(self, now: float) -> bool:
        """Return whether a trial is under way: each of its reads counts."""
        return self.foreign and now < self._trial_ends

    def answered(self, now: float, rate: float) -> None:
        """Note a read that was answered at once, at a rate of reads a second."""
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
        """Return when to read in place of ``at`` beside a foreign consumer."""
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
            return  # at a higher rate, apps that slow down refuse each other reads
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
