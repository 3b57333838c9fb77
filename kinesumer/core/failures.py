"""Count how records and calls end, over a sliding window of a minute.

For example, a handler fails at 0 s, 30 s and 80 s. Until 140 s a stream has failures
since 0 s, because no minute passes without one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from kinesumer.model.incidents import QUIET_SECONDS
from kinesumer.model.positions import Position
from kinesumer.model.reports import LastError, Outcomes, StreamFailures
from kinesumer.model.streams import ShardKey

K = TypeVar("K")


class FailedRecord(NamedTuple):
    """A record that user code could not handle, or that could not be decoded."""

    error_type: str
    position: str


class OutcomeMeter:
    """Counts for one owner of a shard how calls end, and which record failed last."""

    __slots__ = ("calls", "failed", "last", "letters", "skipped")

    def __init__(self) -> None:
        self.calls: int = 0
        self.failed: int = 0
        self.letters: int = 0
        self.skipped: int = 0
        self.last: FailedRecord | None = None

    def fail(self, error: BaseException, position: Position) -> None:
        """Note the record at which user code or a decoder has failed."""
        self.last = FailedRecord(type(error).__name__, position.text)

    def skip(self, position: Position) -> None:
        """Count a record that cannot be decoded and is skipped."""
        self.skipped += 1
        self.last = FailedRecord("DecodeError", position.text)

    def read(self, key: ShardKey, done: int) -> Reading:
        """Return the counts of a shard of which so many records are done."""
        counts = Outcomes(done, self.calls, self.failed, self.letters, self.skipped)
        return Reading(key, counts, self.last)


class Reading(NamedTuple):
    """The counts of a shard since its claim."""

    key: ShardKey
    outcomes: Outcomes
    last: FailedRecord | None = None


class _Stream:
    """The counts of one stream in the window."""

    def __init__(self) -> None:
        self.added: deque[tuple[float, Outcomes]] = deque()
        self.since: float | None = None
        self.error: LastError | None = None

    def add(self, outcomes: Outcomes, now: float, wall: float) -> Outcomes:
        """Add counts, and return the sums of the window."""
        self.added.append((now, outcomes))
        while now - self.added[0][0] >= QUIET_SECONDS:
            self.added.popleft()
        sums = Outcomes(*map(sum, zip(*(one for _, one in self.added), strict=True)))
        if not sums.problems:
            self.since = self.error = None
        elif self.since is None:
            self.since = wall
        return sums


class FailureWindows(Generic[K]):
    """Follows the failures of streams from reading to reading."""

    def __init__(self) -> None:
        # By stream ARN: what the last reading added.
        self.added: dict[str, Outcomes] = {}
        self._before: dict[K, Reading] = {}
        self._streams: dict[str, _Stream] = {}

    def update(
        self, readings: Mapping[K, Reading], now: float, wall: float
    ) -> list[StreamFailures]:
        """Return the streams with failures in the last minute, the worst first.

        ``readings`` holds all shards that are owned. ``now`` is of a monotonic clock,
        ``wall`` is in seconds since 1970.
        """
        self.added = {arn: Outcomes() for arn in self._streams}
        for owner, reading in readings.items():
            self._add(reading, self._before.get(owner), wall)
        self._before = dict(readings)
        found = []
        for arn, stream in self._streams.items():
            sums = stream.add(self.added[arn], now, wall)
            if stream.since is not None:
                found.append(StreamFailures(arn, stream.since, sums, stream.error))
        return sorted(found, key=lambda one: -one.outcomes.problems)

    def _add(self, reading: Reading, before: Reading | None, wall: float) -> None:
        (arn, shard_id), outcomes, last = reading
        if before is not None:
            outcomes = outcomes.minus(before.outcomes)
        self.added[arn] = self.added.get(arn, Outcomes()).plus(outcomes)
        stream = self._streams.setdefault(arn, _Stream())
        # Each failure notes another object.
        if last is not None and (before is None or last is not before.last):
            stream.error = LastError(last.error_type, shard_id, last.position, wall)


class MinuteCounts:
    """Adds counts up, and tells them a minute after the first one."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}

    def add(self, counts: Mapping[str, int], now: float) -> dict[str, int]:
        """Add counts by stream ARN, and return the sums that are due now."""
        for arn, count in counts.items():
            if count:
                due, before = self._counts.get(arn, (now + QUIET_SECONDS, 0))
                self._counts[arn] = due, before + count
        found = {arn: n for arn, (due, n) in self._counts.items() if now >= due}
        for arn in found:
            del self._counts[arn]
        return found
