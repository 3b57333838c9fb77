"""Log once when something starts to fail or an incident begins, and once at its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from kinesumer.core.failures import MAX_SUBJECTS, IncidentTracker, Subject
from kinesumer.errors import (
    CorruptRowError,
    ShardThrottledError,
    SourceThrottledError,
    StoreThrottledError,
)
from kinesumer.model.incidents import Incident, IncidentKind
from kinesumer.model.records import Record
from kinesumer.model.streams import stream_name
from kinesumer.ports import Clock
from kinesumer.telemetry.api import Telemetry

logger: logging.Logger = logging.getLogger("kinesumer")

# Something counts as working again if it hasn't failed for this long. Without this
# wait, a line could be logged for each call, if calls fail and succeed in turn.
# It is longer than CALL_BACKOFF's longest wait between two calls.
RECOVERY_SECONDS = 5.0
# The same for throttled reads. The time is longer, since throttled reads are normal if
# apps share a shard. Chosen: one line for a phase of many minutes.
THROTTLE_RECOVERY_SECONDS = 300.0
# A line that repeats for one subject is logged at this interval.
# Chosen: a reader sees that the failure lasts, and a day has 1,440 lines at most.
LOG_REPEAT_SECONDS = 60.0


class RepeatedLines:
    """Decides which lines of a log are due: one a minute for each subject."""

    def __init__(self) -> None:
        # By subject: when its next line is due, and the lines left out until then.
        self._lines: dict[str, tuple[float, int]] = {}

    def left_out(self, subject: str, now: float, *, is_new: bool = False) -> int | None:
        """Return how many lines were left out before this one, which is due.

        Return None if it is left out as well. A line that ``is_new`` is always due.
        """
        due, count = self._lines.get(subject, (now, 0))
        if now < due and not is_new:
            self._lines[subject] = due, count + 1
            return None
        if len(self._lines) >= MAX_SUBJECTS:
            self._lines.clear()
        self._lines[subject] = now + LOG_REPEAT_SECONDS, 0
        return count

    def is_due(self, subject: str, now: float) -> bool:
        """Return whether a line is due."""
        return self.left_out(subject, now) is not None


class _Failures:
    """The first and last failure of each object that fails."""

    def __init__(self, recovery_seconds: float) -> None:
        self._recovery_seconds = recovery_seconds
        self._times: dict[str, tuple[float, float]] = {}

    def begins(self, what: str, now: float) -> bool:
        """Record a failure. Return True if it is the first of successive ones."""
        is_first = what not in self._times
        self._times[what] = self._times.get(what, (now, now))[0], now
        return is_first

    def ended(self, what: str, clock: Clock) -> float | None:
        """Return a failure's duration if the object works again, else None."""
        # Another thread may remove the entry meanwhile, so read the entry only once.
        times = self._times.get(what)
        if times is None or clock.now() - times[1] < self._recovery_seconds:
            return None
        self._times.pop(what, None)
        return times[1] - times[0]


class FailureLog:
    """Logs the first of successive failures, and the recovery."""

    def __init__(self, clock: Clock, telemetry: Telemetry | None = None) -> None:
        self._clock = clock
        self._telemetry = telemetry or Telemetry()
        self._failing = _Failures(RECOVERY_SECONDS)
        self._throttled = _Failures(THROTTLE_RECOVERY_SECONDS)
        self._corrupt = RepeatedLines()

    def record_failure(self, what: str, error: Exception) -> None:
        """Record a failure, and log the first of successive ones."""
        self._count_throttle(error)
        if self._failing.begins(what, self._clock.now()):
            logger.warning(
                "%s fails, trying again: %s",
                what,
                error,
                extra={"object": what, "error": str(error)},
            )

    def record_throttled_read(self, stream: str, error: ShardThrottledError) -> None:
        """Record a throttled read, and log the first of successive ones."""
        self._count_throttle(error)
        if self._throttled.begins(stream, self._clock.now()):
            logger.warning(
                "Kinesis throttles %r (five reads per second and shard, shared by "
                "all apps): reading it more slowly; %s",
                stream,
                error,
                extra={"object": f"stream {stream}", "error": str(error)},
            )

    def record_read(self, stream: str) -> None:
        """Record a successful read, and log the end of throttling."""
        seconds = self._throttled.ended(stream, self._clock)
        if seconds is not None:
            logger.warning(
                "Kinesis no longer throttles %r, after %.1f s",
                stream,
                seconds,
                extra={"object": f"stream {stream}", "seconds": seconds},
            )

    def record_corrupt_row(self, error: CorruptRowError) -> None:
        """Record a corrupt row, and log it at intervals until it is repaired.

        The corrupt row stops only the stream, shard or member that it describes.
        """
        self._telemetry.count("corrupt_rows")
        text = str(error)
        if self._corrupt.is_due(text, self._clock.now()):
            logger.error("%s", text, extra={"error": text})

    def record_corrupt_aggregates(self, records: Sequence[Record]) -> None:
        """Record a shard's aggregates that can't be opened, and log it at intervals."""
        first = records[0]
        self._telemetry.count("corrupt_aggregates", first.stream_arn, len(records))
        subject = f"{first.stream_arn} {first.shard_id}"
        if self._corrupt.is_due(subject, self._clock.now()):
            logger.warning(
                "%s %s: records that begin like KPL aggregates can't be opened, and "
                "are delivered whole (the first has the sequence number %s)",
                first.stream,
                first.shard_id,
                first.sequence_number,
                extra={"stream": first.stream, "shard_id": first.shard_id},
            )

    def record_success(self, what: str) -> None:
        """Record a success, and log the recovery."""
        seconds = self._failing.ended(what, self._clock)
        if seconds is not None:
            logger.warning(
                "%s works again, after failing for %.1f s",
                what,
                seconds,
                extra={"object": what, "seconds": seconds},
            )

    def _count_throttle(self, error: Exception) -> None:
        if isinstance(error, StoreThrottledError):
            self._telemetry.count("throttles", service="dynamodb")
        elif isinstance(error, SourceThrottledError):
            self._telemetry.count("throttles", service="kinesis")


class IncidentLog:
    """The incidents of one client or producer. Any thread may call it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tracker = IncidentTracker()
        self._lock = threading.Lock()

    def note(
        self,
        kind: IncidentKind,
        stream_arn: str = "",
        shard_id: str = "",
        *,
        error: object = "",
    ) -> None:
        """Note a failure of a shard, a stream, or the client itself.

        Call this beside each warning. Several notes within a minute begin an incident.
        ``error`` is shortened, and must not contain data of records.
        """
        subject = Subject(kind, stream_arn, shard_id)
        now, wall = self._clock.now(), self._clock.wall()
        with self._lock:
            begun = self._tracker.note(subject, str(error), now, wall)
        if begun is not None:
            logger.error(
                "%s: %s %s%s",
                begun.subject,
                kind.meaning,
                kind.remedy,
                f" Last error: {begun.error}" if begun.error else "",
                extra=_fields(begun),
            )

    def note_credentials(self, trouble: str) -> None:
        """Note what is wrong with the credentials; an empty text if nothing is."""
        if trouble:
            self.note(IncidentKind.CREDENTIALS, error=trouble)
        else:
            self.resolve(IncidentKind.CREDENTIALS)

    def resolve(self, kind: IncidentKind, *, stream_arn: str = "") -> None:
        """End an incident, because the cause is gone. Do nothing without one."""
        with self._lock:
            ended = self._tracker.resolve(Subject(kind, stream_arn))
        if ended is not None:
            self._log_end(ended)

    def current(self) -> list[Incident]:
        """End the incidents that have not been noted for a while; return the others."""
        with self._lock:
            ended = self._tracker.expire(self._clock.now())
            found = self._tracker.current()
        for incident in ended:
            self._log_end(incident)
        return found

    def _log_end(self, incident: Incident) -> None:
        logger.warning(
            "%s: the incident %r is over after %.0f s",
            incident.subject,
            incident.kind.value,
            self._clock.wall() - incident.since,
            extra=_fields(incident),
        )


def _fields(incident: Incident) -> dict[str, object]:
    fields: dict[str, object] = {"incident": incident.kind.value}
    if incident.stream_arn:
        fields["stream"] = stream_name(incident.stream_arn)
    if incident.shard_id:
        fields["shard_id"] = incident.shard_id
    return fields | {"error": incident.error}
