"""Models how Kinesis shares a shard's reads among several apps."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Protocol

from kinesumer.coordination.app_count import ALIVE_SECONDS, COUNT_SECONDS, LEAST_SECONDS
from kinesumer.core.pacing import Pacing
from kinesumer.testing.kinesis.limits import Bucket

WAY_SECONDS = 0.0025, 0.015  # the least and most that a message travels


class Reads(Protocol):
    """Decides which reads a shard answers."""

    def take(self, now: float) -> bool:
        """Return whether a read is answered now."""


class TokenBucket:
    """The embedded AWS's limit: five reads at once, then one each fifth of a second."""

    def __init__(self) -> None:
        self._bucket = Bucket(5)

    def take(self, now: float) -> bool:
        return self._bucket.take(1, now)


class RollingSecond:
    """A limit of five reads within any period of a second."""

    def __init__(self) -> None:
        self._taken: deque[float] = deque(maxlen=5)

    def take(self, now: float) -> bool:
        if len(self._taken) == 5 and self._taken[0] > now - 1:
            return False
        self._taken.append(now)
        return True


class FixedSecond:
    """A limit of five reads within each second of the clock."""

    def __init__(self) -> None:
        self._second, self._taken = -1, 0

    def take(self, now: float) -> bool:
        if int(now) != self._second:
            self._second, self._taken = int(now), 0
        self._taken += 1
        return self._taken <= 5


class Foreign:
    """A consumer that reads at a fixed pace, and never slows down."""

    def __init__(self, min_read_interval_seconds: float, retry_seconds: float) -> None:
        self._pace, self._retry = min_read_interval_seconds, retry_seconds

    def after_page(self, started: float, **_: object) -> float:
        return started + self._pace

    def after_throttle(self, now: float, jitter: float) -> float:
        return now + self._retry


class App:
    """One consumer of the shard. Known apps share a state store."""

    def __init__(
        self,
        pacing: Pacing | Foreign | None = None,
        *,
        begins: float = 0.0,
        ends: float = 1e9,
        backlog_bytes: float = 0.0,
        record_bytes: int = 1000,
        is_known: bool = True,
    ) -> None:
        self._is_known, self._counted_at, self._apps = is_known, -math.inf, 1
        self.pacing = pacing or Pacing(begins)
        is_known = is_known and pacing is None
        self.begins, self.ends = begins, ends
        self.backlog_bytes, self.record_bytes = backlog_bytes, record_bytes
        self.read_at: list[float] = [begins]
        self.refused_at: list[float] = []
        self.read_bytes: list[tuple[float, float]] = []

    def page_bytes(self) -> float:
        if isinstance(self.pacing, Foreign):
            return 0.0
        return self.record_bytes * self.pacing.page_records(10_000)

    def next_after(self, sent: float, now: float, page: float, jitter: float) -> float:
        return self.pacing.after_page(
            sent,
            records=max(1, int(page / self.record_bytes)),
            payload_bytes=int(page),
            millis_behind=1000 if self.backlog_bytes else 0,
        )

    def count(self, apps: Sequence[App], now: float) -> None:
        """Count the apps of one state store as a client does."""
        if isinstance(self.pacing, Foreign) or not self._is_known:
            return
        is_refused = bool(self.refused_at) and self.refused_at[-1] > self._counted_at
        usual = 2 * COUNT_SECONDS if self._apps == 1 else COUNT_SECONDS
        if now - self._counted_at >= (LEAST_SECONDS if is_refused else usual):
            self._counted_at = now
            self._apps = sum(app.is_counted(now) for app in apps)
            self.pacing.share_among(self._apps)

    def is_counted(self, now: float) -> bool:
        """Return whether the row of the app exists and is young enough."""
        return self._is_known and self.begins <= now < self.ends + ALIVE_SECONDS

    def waits(self, first: float, last: float) -> list[float]:
        """Return how long records wait for a read if they arrive evenly in a period."""
        waits: list[float] = []
        for before, after in zip(self.read_at, self.read_at[1:], strict=False):
            if first <= before and after <= last:
                steps = max(1, int((after - before) / 0.02))
                waits += [(after - before) * (i + 0.5) / steps for i in range(steps)]
        return waits

    def p99(self, first: float, last: float) -> float:
        waits = sorted(self.waits(first, last))
        # The waits end when the shard is read; then the answer must still travel.
        return waits[int(0.99 * len(waits))] + WAY_SECONDS[1]

    def rate(self, first: float, last: float) -> float:
        return sum(first <= at < last for at in self.read_at) / (last - first)

    def megabytes_per_second(self, first: float, last: float) -> float:
        got = sum(size for at, size in self.read_bytes if first <= at < last)
        return got / (last - first) / 1e6


class Shard:
    """One shard and all its consumers."""

    def __init__(self, reads: Callable[[], Reads], seed: int) -> None:
        self._reads = reads()
        self._apps: Sequence[App] = ()
        self._bytes = Bucket(2 << 20)
        self._random = Random(seed)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = count()

    def run(self, apps: Sequence[App], seconds: float) -> None:
        self._apps = apps
        for app in apps:
            first = app.begins + 0.2 * self._random.random()
            self._at(first, lambda now, app=app: self._send(app, now))  # type: ignore[misc]
        while self._events and self._events[0][0] <= seconds:
            now, _, act = heapq.heappop(self._events)
            act(now)

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), act))

    def _way(self) -> float:
        return self._random.uniform(*WAY_SECONDS)

    def _send(self, app: App, now: float) -> None:
        if now < app.ends:
            self._at(now + self._way(), lambda at: self._serve(app, now, at))

    def _serve(self, app: App, sent: float, now: float) -> None:
        page: float | None = None
        if self._bytes.holds(0, now) and self._reads.take(now):
            page = min(app.backlog_bytes, app.page_bytes(), 10e6)
            app.backlog_bytes -= page
            self._bytes.spend(page)
            app.read_at.append(now)
            app.read_bytes.append((now, page))
        else:
            app.refused_at.append(now)
        self._at(now + self._way(), lambda at: self._answer(app, sent, page, at))

    def _answer(self, app: App, sent: float, page: float | None, now: float) -> None:
        jitter = self._random.random()
        app.count(self._apps, now)
        if page is None:
            following = app.pacing.after_throttle(now, jitter)
        else:
            following = app.next_after(sent, now, page, jitter)
        self._at(max(now, following), lambda at: self._send(app, at))


def refused(apps: Sequence[App], first: float, last: float) -> float:
    """Return the share of the apps' reads that was refused in a period."""
    no = sum(first <= at < last for app in apps for at in app.refused_at)
    yes = sum(first <= at < last for app in apps for at in app.read_at)
    return no / (no + yes)
