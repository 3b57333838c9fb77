"""Compute lags, record estimates and trends from pages and samples."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.streams import Start

NOISE_MILLIS = 6_000
"""Clients store positions every five seconds, so a steady lag varies by this much."""
MAX_RECORDS_PER_SECOND = 1_000.0
"""Kinesis accepts at most this many records per second and shard."""
MIN_SAMPLE_SECONDS = 0.05

CAUGHT_UP, FALLING, STEADY = "caught up", "falling", "steady"
GROWING, STALLED, UNKNOWN = "growing", "stalled", "unknown"


class LagSample(NamedTuple):
    """The lag of one shard at one time."""

    at: float
    """Seconds on this machine's monotonic clock."""
    millis: int | None
    """How far behind the tip the next record is; None if that record is gone."""
    after: Position | Start
    """The position that was read from."""
    records: int | None = None
    """The number of unread records; None if they weren't counted."""
    exact: bool = False
    """Whether the records were counted rather than estimated from samples."""
    problem: str = ""
    """Why the shard couldn't be read, or what is lost."""


class Trend(NamedTuple):
    """The direction in which a lag moves."""

    trend: str
    millis_per_second: float | None = None
    """How fast the lag grows: 1,000 if nothing is read; None after one sample."""
    seconds_to_catch_up: float | None = None
    """None if the lag doesn't fall, or if that is unknown."""


class ArrivalSample(NamedTuple):
    """The records that arrived in a shard within some time."""

    records: int
    size: int
    """The bytes of their data."""
    seconds: float

    @property
    def records_per_second(self) -> float:
        """The rate, capped at Kinesis's limit: a sample may cover part of a burst."""
        seconds = max(self.seconds, MIN_SAMPLE_SECONDS)
        return min(self.records / seconds, MAX_RECORDS_PER_SECOND)

    @property
    def bytes_per_second(self) -> float:
        """The bytes that arrive with these records."""
        mean = self.size / self.records if self.records else 0.0
        return self.records_per_second * mean


def sample_page(page: Page, since: float, now: float) -> ArrivalSample:
    """Return what a page that was read at ``now`` holds from ``since`` on.

    The page ends as long before ``now`` as Kinesis reports it to be behind.
    """
    until = now - page.millis_behind / 1000
    size = sum(len(record.data) for record in page.records)
    return ArrivalSample(len(page.records), size, until - since)


def page_millis_behind(page: Page, now: float) -> int:
    """Return for how many milliseconds a page's first record has waited.

    Kinesis reports how far the page's last record is behind: 0 for the only unread
    record, however old that record is.
    """
    arrived = page.records[0].approximate_arrival_timestamp if page.records else None
    if arrived is None:
        return page.millis_behind
    return max(page.millis_behind, round((now - arrived) * 1000))


def is_at_tip(page: Page) -> bool:
    """Return whether no record follows a page, for now or forever."""
    return page.next_iterator is None or page.millis_behind == 0


def estimate_records(
    read: int, millis_behind: int, samples: Sequence[ArrivalSample]
) -> int:
    """Return about how many records lie before the tip.

    ``read`` records were counted. The others arrived at the rates of the samples,
    which are spread evenly over the remaining time.
    """
    rates = [sample.records_per_second for sample in samples]
    mean = sum(a + b for a, b in pairwise(rates)) / (2 * (len(rates) - 1))
    return read + round(mean * millis_behind / 1000)


def find_trend(before: LagSample | None, after: LagSample) -> Trend:
    """Compare two samples of one shard, or of the slowest shard of a stream.

    Commits move a position in steps, so a smaller change counts as steady.
    """
    if after.millis is None:
        return Trend(UNKNOWN)
    speed = None
    if before is not None and before.millis is not None and after.at > before.at:
        speed = (after.millis - before.millis) / (after.at - before.at)
    if after.millis <= NOISE_MILLIS:
        return Trend(CAUGHT_UP, speed, 0.0)
    if before is None or before.millis is None or speed is None:
        return Trend(UNKNOWN)
    if before.after == after.after:
        return Trend(STALLED, speed)
    change = after.millis - before.millis
    if change > NOISE_MILLIS:
        return Trend(GROWING, speed)
    if change < -NOISE_MILLIS or speed <= -500:
        return Trend(FALLING, speed, after.millis / -speed)
    return Trend(STEADY, speed)
