"""When to read a shard next, and how many records to ask for."""

from __future__ import annotations

from kinesumer.core.contention import Contention
from kinesumer.core.fair_share import CALL_SECONDS, Share

CAUGHT_UP_SECONDS = 0.25
IDLE_SECONDS = 1.0
IDLE_AFTER_SECONDS = 10.0
"""A shard without records for so long is slowly read less often …"""
IDLE_SLOWING_SECONDS = 10.0
"""… and this much later only every IDLE_SECONDS."""
BACKOFF_SECONDS = 0.5
BACKOFF_LIMIT_SECONDS = 5.0
RETRY_FOR_SECONDS = 8.0
"""After so long without any read it pauses, as in an outage, before it goes on."""
CREDIT_SECONDS = 0.4
"""By so much the next read may come sooner if a foreign consumer delayed this one."""


class Pacing:
    """The pace of one shard's reads.

    Each method gets the outcome of a read and returns when the next may start.

    All times are seconds on one clock of the caller's.
    """

    __slots__ = (
        "_contention",
        "_due",
        "_failures",
        "_last_record",
        "_pace",
        "_read_at",
        "_record_bytes",
        "_refusals",
        "_refused_since",
        "_share",
        "_wait",
    )

    def __init__(
        self, now: float, min_read_interval_seconds: float = CALL_SECONDS
    ) -> None:
        self._pace = max(min_read_interval_seconds, CALL_SECONDS)
        self._share = Share()
        self._contention = Contention()
        self._wait = CAUGHT_UP_SECONDS
        """How long it would be to the next read if no other app read the shard."""
        self._last_record = now
        self._record_bytes = 0.0
        """Of the last page. 0: none had records yet."""
        self._failures = 0
        self._refusals = 0
        self._refused_since = now
        self._read_at = self._due = now
        """When the last read began; when it was due beside a foreign consumer."""

    def page_records(self, most: int) -> int:
        """Return how many records to ask for, so that a page doesn't harm other apps.

        A page of more than a second's bytes would close the shard to all of them.
        """
        if not self._record_bytes:
            return most
        return max(1, min(most, int(self._share.page_bytes / self._record_bytes)))

    def after_page(
        self, started: float, *, records: int, payload_bytes: int, millis_behind: int
    ) -> float:
        """Return when to start the next read after one that began at ``started``.

        Behind: as soon as the share allows. Caught up: a steady pace, slower after ten
        seconds without records.
        """
        contention = self._contention
        if not self._refusals or contention.tries(started):
            foreign = contention.foreign
            contention.answered(started, self._share.rate)
            if foreign and not contention.foreign:
                self._share.calm()
        self._failures = self._refusals = 0
        self._read_at = started
        if records:
            self._last_record = started
            self._record_bytes = payload_bytes / records
        self._wait = self._pace
        if not millis_behind:
            self._wait = max(self._pace, self._caught_up_wait(started))
        shared = self._share.pause_seconds(payload_bytes)
        if contention.foreign:
            self._due = max(self._due, started - CREDIT_SECONDS) + shared
            return contention.next_read(started, max(self._due, started + self._wait))
        if shared > self._wait:
            self._share.grow(shared)
        return started + max(self._wait, shared)

    def after_throttle(self, now: float, wall: float, jitter: float) -> float:
        """Return when to try again after a read that Kinesis refused as too fast.

        ``wall`` is the wall clock's time, in seconds: it lets apps that share a shard
        do the same at the same moments. ``jitter`` is evenly distributed from 0 to 1.
        """
        self._refusals += 1
        if self._refusals == 1 or self._contention.tries(now):
            self._refuse(now, wall, jitter)
        if self._refusals == 1:
            self._refused_since = now
        elif now - self._refused_since > RETRY_FOR_SECONDS:
            self._refusals = 0
            return self.after_failure(now, jitter)
        if self._contention.foreign:
            since = now - self._read_at
            wait = self._share.contended_retry_seconds(since, jitter)
            return self._contention.next_read(now, now + wait)
        wait = self._share.retry_seconds(self._refusals, jitter)
        if self._pace > CALL_SECONDS or not self._share.hurries(self._refusals):
            wait = max(wait, self._pace)
        return now + wait

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

    def _refuse(self, now: float, wall: float, jitter: float) -> None:
        """Lower the share after a refusal; further ones in a row have its cause."""
        contention, share = self._contention, self._share
        foreign = contention.foreign
        if self._pace <= CALL_SECONDS:
            contention.refused(now, share.rate, wall, jitter)
        if not contention.foreign:
            share.cut(now, 1 / self._wait)
        elif not foreign:
            share.contend()

    def _caught_up_wait(self, now: float) -> float:
        idle = now - self._last_record - IDLE_AFTER_SECONDS
        slowed = min(max(idle / IDLE_SLOWING_SECONDS, 0.0), 1.0)
        return CAUGHT_UP_SECONDS + slowed * (IDLE_SECONDS - CAUGHT_UP_SECONDS)
