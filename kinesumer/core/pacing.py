"""When to read a shard next."""

from __future__ import annotations

CALL_SECONDS = 0.205
"""AWS allows five reads a second and shard, by all consumers together. On their way
reads draw nearer to each other: with 0.2 some seconds would see six."""
BYTES_PER_SECOND = 2_000_000
"""AWS allows this much a second and shard; a larger page is paid for afterwards."""
CAUGHT_UP_SECONDS = 0.25
IDLE_SECONDS = 1.0
IDLE_AFTER_SECONDS = 10.0
"""A shard without records for so long is slowly read less often …"""
IDLE_SLOWING_SECONDS = 10.0
"""… and this much later only every IDLE_SECONDS."""
BACKOFF_SECONDS = 0.5
BACKOFF_LIMIT_SECONDS = 5.0


class Pacing:
    """The pace of one shard's reads: told what came of a read, says when the next may
    start.

    All times are seconds on one clock of the caller's.
    """

    __slots__ = ("_failures", "_last_record", "_pace")

    def __init__(self, now: float, pace_seconds: float = CALL_SECONDS) -> None:
        self._pace = max(pace_seconds, CALL_SECONDS)
        self._last_record = now
        self._failures = 0

    def after_page(
        self, started: float, *, records: int, payload_bytes: int, millis_behind: int
    ) -> float:
        """Return when to start the next read after one that began at ``started``.

        Behind: as soon as AWS allows. Caught up: a steady pace, slower after ten
        seconds without records.
        """
        self._failures = 0
        if records:
            self._last_record = started
        wait = max(self._pace, payload_bytes / BYTES_PER_SECOND)
        if not millis_behind:
            wait = max(wait, self._caught_up_wait(started))
        return started + wait

    def after_failure(self, now: float, jitter: float) -> float:
        """Return when to try again after a read that failed or was throttled.

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
