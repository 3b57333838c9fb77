"""How many writes a second one client sends to the state store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.model.streams import HASH_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.model.streams import Range

UNITS_PER_SECOND = 1000.0
"""What DynamoDB lets one partition take: the writers share it at first."""
COMMITS_PER_SECOND = 800.0
"""Commits of one stream that all clients together send: claims and ends fit beside."""
BURST_SECONDS = 1.0
"""Writes saved up for so long may be sent at once."""
GAIN = 0.25
"""Share of the first rate by which the rate grows a second while writes wait for it."""
CUT = 0.5
"""What is left of the rate after a refusal."""
MIN_PER_SECOND = 0.5
MAX_PAUSE_SECONDS = 0.25
"""After a refusal, nothing is sent for up to so long."""
FORGET_SECONDS = 5.0
"""A rate that made no write wait for so long says nothing of the table any more."""
ALMOST_ONE = 1.0 - 1e-6
"""Sums of floats fall short: a wait for the last bit might never end."""


class WriteRate:
    """A rate found by additive increase and multiplicative decrease.

    All times are seconds on one clock of the caller's.
    """

    __slots__ = (
        "_cut_at",
        "_limited_at",
        "_rate",
        "_resume_at",
        "_saved",
        "_saved_at",
        "_writers",
    )

    def __init__(self, now: float) -> None:
        self._writers = 1
        self._rate = self._share
        self._saved = self._share * BURST_SECONDS
        self._saved_at = now
        self._limited_at = self._cut_at = self._resume_at = -math.inf

    @property
    def per_second(self) -> float:
        """The rate as it is now."""
        return self._rate

    def share_among(self, writers: int) -> None:
        """Take a part of what a table takes as the first rate of each burst."""
        self._writers = max(1, writers)

    def wait_seconds(self, now: float) -> float:
        """Return how long the next write must wait. At 0 it is counted as sent."""
        if now - self._limited_at > FORGET_SECONDS:
            self._rate = self._share
        gained = (now - self._saved_at) * self._rate
        most = max(1.0, self._rate * BURST_SECONDS)
        self._saved, self._saved_at = min(most, self._saved + gained), now
        if now < self._resume_at:
            return self._resume_at - now
        if self._saved >= ALMOST_ONE:
            self._saved -= 1.0
            return 0.0
        self._limited_at = now
        return (1.0 - self._saved) / self._rate

    def accepted(self, now: float) -> None:
        """Note that the store took a write."""
        if now - self._limited_at <= 1.0:
            grown = self._rate + GAIN * self._share / self._rate
            self._rate = min(UNITS_PER_SECOND, grown)

    def refused(self, sent_at: float, now: float, jitter: float) -> None:
        """Note that the store throttled a write.

        Of the writes that were under way together only the first one counts.
        ``jitter`` is evenly distributed from 0 to 1.
        """
        self._limited_at = now
        if sent_at < self._cut_at:
            return
        self._rate = max(MIN_PER_SECOND, CUT * self._rate)
        self._cut_at, self._saved = now, 0.0
        self._resume_at = now + jitter * MAX_PAUSE_SECONDS

    @property
    def _share(self) -> float:
        return max(MIN_PER_SECOND, UNITS_PER_SECOND / self._writers)


def commit_interval_seconds(
    counts: Mapping[str, int], shares: Mapping[str, float]
) -> float:
    """Return for how long the commits just made must last.

    ``counts`` says how many shards of each stream were committed, and ``shares`` which
    part of what a stream's partition takes is this client's.
    """
    return max(
        (count / (COMMITS_PER_SECOND * shares[arn]) for arn, count in counts.items()),
        default=0.0,
    )


def share_of(arn: str, range_: Range, clients: int) -> float:
    """Return a client's part of what the partition of a stream's rows takes.

    A client that has a larger part of the hash keys than others has more shards.
    """
    keys = sum(last - first + 1 for of, first, last in range_ if of == arn)
    return max(keys / HASH_KEYS, 1 / clients)
