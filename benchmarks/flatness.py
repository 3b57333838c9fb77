"""Judges whether what a process has stays flat once it has warmed up."""

from __future__ import annotations

from statistics import linear_regression, mean
from typing import NamedTuple

MIB = 1 << 20
MEASURES = (
    "memory",
    "descriptors",
    "others",
    "connections",
    "tasks",
    "threads",
    "objects",
)
"""``others`` are the descriptors that are no established connections."""
ALLOWED = {
    "memory": (5 * MIB, 0.05),
    "descriptors": (16, 0.0),
    "others": (2, 0.0),
    "connections": (16, 0.0),
    "tasks": (4, 0.1),
    "threads": (1, 0.0),
}
"""Growth that is flat still: so much, or this share. How many connections stay open
follows from how many reads last coincided, at most one for each shard: 31 to 48 in two
hours of a steady client. One left behind at each reshard and restart would be 30 more;
one that the service closes counts among the others. Tasks come and go with reads."""
WINDOW_SECONDS = 600.0
RULE = """\
Flat: the mean of the last ten minutes is above the mean of the ten minutes after the
warm-up by at most 5 MiB or 5 % (memory), 16 (descriptors, connections), 4 or 10 %
(tasks), 2 (others: descriptors that are no established connection) and 1 (threads).
Both windows are half of what is left where a process lived for less. Objects aren't
judged."""

Samples = list[dict[str, float]]


class Trend(NamedTuple):
    """One measure of one process, after its warm-up."""

    measure: str
    warm: float
    """The sample at the end of the warm-up."""
    before: float
    """The mean of the window after the warm-up."""
    after: float
    """The mean of the last window."""
    most: float
    """The most of the last window."""
    per_hour: float
    """The slope, by least squares."""

    @property
    def flat(self) -> bool | None:
        """Whether it stays within the rule; None for what isn't judged."""
        if self.measure not in ALLOWED:
            return None
        least, share = ALLOWED[self.measure]
        return self.after - self.before <= max(least, share * self.before)


def trends(samples: Samples, began: float, ended: float, warm_up: float) -> list[Trend]:
    """Return the trends of a process; none if it didn't live for long enough."""
    since = began + warm_up
    window = min(WINDOW_SECONDS, (ended - since) / 2)
    rest = [one for one in samples if since <= one["at"] <= ended]
    first = [one for one in rest if one["at"] <= since + window]
    last = [one for one in rest if one["at"] >= ended - window]
    if len(first) < 2 or len(last) < 2:
        return []
    hours = [(one["at"] - since) / 3600 for one in rest]
    return [
        Trend(
            measure,
            warm=first[0][measure],
            before=mean(one[measure] for one in first),
            after=mean(one[measure] for one in last),
            most=max(one[measure] for one in last),
            per_hour=linear_regression(hours, [one[measure] for one in rest]).slope,
        )
        for measure in MEASURES
    ]
