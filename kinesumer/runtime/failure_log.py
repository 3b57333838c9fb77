"""Logs once when something starts to fail, and once when it works again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesumer.errors import SourceThrottledError, StoreThrottledError
from kinesumer.telemetry.api import Telemetry
from kinesumer.telemetry.names import CORRUPT_ROWS, THROTTLES

if TYPE_CHECKING:
    from kinesumer.errors import CorruptRowError, ShardThrottledError
    from kinesumer.ports import Clock

logger = logging.getLogger("kinesumer")

RECOVERY_SECONDS = 5.0
"""An object works again if it hasn't failed for this long. It prevents a log line for
each call."""
THROTTLE_RECOVERY_SECONDS = 300.0
"""The same for throttled reads, which occur now and then if apps share a shard."""
CORRUPT_ROW_LOG_SECONDS = 60.0
"""Interval at which a corrupt row is logged again."""
MAX_CORRUPT_ROWS = 1000


class FailureLog:
    """Logs the first of successive failures, and the recovery."""

    def __init__(self, clock: Clock, telemetry: Telemetry | None = None) -> None:
        self._clock = clock
        self._telemetry = telemetry or Telemetry()
        self._failing: dict[str, tuple[float, float]] = {}
        self._throttled: dict[str, tuple[float, float]] = {}
        self._corrupt: dict[str, float] = {}
        """When a corrupt row was last logged, by the error's text."""

    def record_failure(self, what: str, error: Exception) -> None:
        """Record a failure, and log the first of successive ones."""
        self._count_throttle(error)
        now = self._clock.now()
        since, _ = self._failing.get(what, (now, now))
        if what not in self._failing:
            logger.warning(
                "%s fails, trying again: %s",
                what,
                error,
                extra={"object": what, "error": str(error)},
            )
        self._failing[what] = since, now

    def record_throttled_read(self, stream: str, error: ShardThrottledError) -> None:
        """Record a throttled read, and log the first of successive ones."""
        self._count_throttle(error)
        now = self._clock.now()
        since, _ = self._throttled.get(stream, (now, now))
        if stream not in self._throttled:
            logger.warning(
                "Kinesis throttles %r (five reads per second and shard, shared by "
                "all apps): reading it more slowly; %s",
                stream,
                error,
                extra={"object": f"stream {stream}", "error": str(error)},
            )
        self._throttled[stream] = since, now

    def record_read(self, stream: str) -> None:
        """Record a successful read, and log the end of throttling."""
        if stream not in self._throttled:
            return
        since, last = self._throttled[stream]
        if self._clock.now() - last >= THROTTLE_RECOVERY_SECONDS:
            del self._throttled[stream]
            logger.warning(
                "Kinesis no longer throttles %r, it did for %.1f s",
                stream,
                last - since,
                extra={"object": f"stream {stream}", "seconds": last - since},
            )

    def record_corrupt_row(self, error: CorruptRowError) -> None:
        """Record a corrupt row, and log it at intervals until it is repaired.

        The corrupt row stops only the stream, shard or member that it describes.
        """
        self._telemetry.count(CORRUPT_ROWS)
        now, text = self._clock.now(), str(error)
        if (
            now - self._corrupt.get(text, -CORRUPT_ROW_LOG_SECONDS)
            < CORRUPT_ROW_LOG_SECONDS
        ):
            return
        if len(self._corrupt) >= MAX_CORRUPT_ROWS:
            self._corrupt.clear()
        self._corrupt[text] = now
        logger.error("%s", text, extra={"error": text})

    def record_success(self, what: str) -> None:
        """Record a success, and log the recovery."""
        # Two threads record calls to the state store, so look it up once.
        failing = self._failing.get(what)
        if failing is None:
            return
        since, last = failing
        if self._clock.now() - last >= RECOVERY_SECONDS:
            self._failing.pop(what, None)
            logger.warning(
                "%s works again, it failed for %.1f s",
                what,
                last - since,
                extra={"object": what, "seconds": last - since},
            )

    def _count_throttle(self, error: Exception) -> None:
        if isinstance(error, StoreThrottledError):
            self._telemetry.count(THROTTLES, service="dynamodb")
        elif isinstance(error, SourceThrottledError):
            self._telemetry.count(THROTTLES, service="kinesis")
