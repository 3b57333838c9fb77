"""What lies between a stored position and its shard's tip, and when it will be read."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.streams import Start

NOISE_MILLIS = 6_000
"""A position is stored every five seconds: the lag of who keeps up goes up and down by
so much."""
MAX_RECORDS_PER_SECOND = 1_000.0
"""Kinesis takes no more records a second and shard."""
SHORTEST_SECONDS = 0.05

CAUGHT_UP, FALLING, STEADY = "caught up", "falling", "steady"
GROWING, STALLED, UNKNOWN = "growing", "stalled", "unknown"


class LagSample(NamedTuple):
    """What Kinesis said of one shard at one moment."""

    at: float
    """Seconds on a clock of this machine that never goes back."""
    millis: int | None
    """How far behind its tip the next record is; None if that is gone."""
    after: Position | Start
    """From where it was looked."""
    records: int | None = None
    """How many records are to be read; None if nobody counted."""
    exact: bool = False
    """Whether they were counted, rather than estimated from samples."""
    problem: str = ""
    """Why it couldn't be looked at, or what is lost."""


class Trend(NamedTuple):
    """Where a lag is going."""

    trend: str
    millis_per_second: float | None = None
    """How fast the lag grows; 1,000 where nothing is read. None after one look."""
    seconds_to_catch_up: float | None = None
    """None: not as it is now, or nobody knows."""


class ArrivalSample(NamedTuple):
    """What arrived in a shard in a stretch of time."""

    records: int
    size: int
    """Bytes of their data."""
    seconds: float

    @property
    def records_per_second(self) -> float:
        """Return at most what Kinesis takes: of a burst only a part is seen."""
        return min(
            self.records / max(self.seconds, SHORTEST_SECONDS), MAX_RECORDS_PER_SECOND
        )

    @property
    def bytes_per_second(self) -> float:
        """Return the bytes that go with these records."""
        mean = self.size / self.records if self.records else 0.0
        return self.records_per_second * mean


def sample_page(page: Page, since: float, now: float) -> ArrivalSample:
    """Return what a page holds that was read from a time on, at a time.

    The page reaches up to as much before now as Kinesis says that it is behind.
    """
    until = now - page.millis_behind / 1000
    size = sum(len(record.data) for record in page.records)
    return ArrivalSample(len(page.records), size, until - since)


def page_millis_behind(page: Page, now: float) -> int:
    """Return for how many milliseconds a page's first record has waited.

    Kinesis tells how far the page's last one is behind: of the only record that is to
    be read it says 0, however old it is.
    """
    arrived = page.records[0].approximate_arrival_timestamp if page.records else None
    if arrived is None:
        return page.millis_behind
    return max(page.millis_behind, round((now - arrived) * 1000))


def is_at_tip(page: Page) -> bool:
    """Tell whether nothing follows a page, for now or for ever."""
    return page.next_iterator is None or page.millis_behind == 0


def estimate_records(
    read: int, millis_behind: int, samples: Sequence[ArrivalSample]
) -> int:
    """Return about how many records lie before the tip.

    ``read`` were counted; the others arrived at the rates of samples that are evenly
    spread over the time that is left.
    """
    rates = [sample_page.records_per_second for sample_page in samples]
    parts = len(rates) - 1
    mean = sum(a + b for a, b in pairwise(rates)) / (2 * parts)
    return read + round(mean * millis_behind / 1000)


def find_trend(before: LagSample | None, after: LagSample) -> Trend:
    """Compare two looks at one shard, or at the slowest shard of a stream.

    Commits move a position in steps, so a change by less than a step is none.
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
