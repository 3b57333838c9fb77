"""Check that the resources of a process don't grow after its warm-up."""

from __future__ import annotations

from statistics import linear_regression, mean
from typing import NamedTuple

MIB = 1 << 20
# ``others`` are file descriptors other than those of established connections.
MEASURES = (
    "memory",
    "descriptors",
    "others",
    "connections",
    "tasks",
    "threads",
    "objects",
)
# The growth that still counts as flat: the larger of an absolute amount and a share of
# the first mean. The number of open connections depends on how many reads coincided, at
# most one for each shard: it was 31 to 48 in two hours of a steady client. If each
# reshard and restart leaked a connection, 30 more would be open. A leaked connection
# that the service has closed counts as one of the others. Tasks come and go with reads.
ALLOWED = {
    "memory": (5 * MIB, 0.05),
    "descriptors": (16, 0.0),
    "others": (2, 0.0),
    "connections": (16, 0.0),
    "tasks": (4, 0.1),
    "threads": (1, 0.0),
}
WINDOW_SECONDS = 600.0
RULE = """\
Flat: the mean of the last ten minutes is above the mean of the ten minutes after the
warm-up by at most 5 MiB or 5 % (memory), 16 (descriptors, connections), 4 or 10 %
(tasks), 2 (others: descriptors that are no established connection) and 1 (threads).
Both windows are half of what is left where a process lived for less. Objects aren't
judged."""

Samples = list[dict[str, float]]


class Trend(NamedTuple):
    """The change of one measure of a process after its warm-up."""

    measure: str
    warm: float  # the sample at the end of the warm-up
    # The mean of the first window, which begins after the warm-up.
    before: float
    after: float  # the mean of the last window
    most: float  # the largest sample of the last window
    per_hour: float  # the growth per hour, by least squares

    @property
    def flat(self) -> bool | None:
        """True if the growth is allowed; None for a measure that is not judged."""
        if self.measure not in ALLOWED:
            return None
        least, share = ALLOWED[self.measure]
        return self.after - self.before <= max(least, share * self.before)


def trends(samples: Samples, began: float, ended: float, warm_up: float) -> list[Trend]:
    """Return the trends of a process, or an empty list if it ended too early."""
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
