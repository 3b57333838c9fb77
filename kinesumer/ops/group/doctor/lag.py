"""Check for lags that grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.ops.group.doctor.finding import Check
from kinesumer.ops.group.lag import GROWING, STALLED, find_trend
from kinesumer.runtime.text import duration_text, first_three

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.model.rows import ShardRow
    from kinesumer.ops.group.doctor.finding import Finding
    from kinesumer.ops.group.doctor.observation import AppObservation, StreamObservation

LAG = Check("lag")
# A shorter lag may come from commits, or from a short burst of records.
GROWING_LAG_MILLIS = 60_000
# A lag that grows by half of the time that passes doesn't grow by chance.
GROWING_MILLIS_PER_SECOND = 500


def growing_lags(app: AppObservation) -> Iterator[Finding]:
    """Yield a finding for each stream with shards that are read too slowly."""
    for arn, stream in app.streams.items():
        rows = app.second.shards.get(arn, [])
        growing = [row for row in rows if _grows(app, stream, row)]
        if growing:
            worst = max(stream.second[row.key].millis or 0 for row in growing)
            names = first_three(row.key.shard_id for row in growing)
            yield LAG.warning(
                arn,
                f"{names}: up to {duration_text(worst)} behind, and the lag grows",
                "kinesumer lag shows the trend; if handlers are the limit, make them "
                "faster or add clients; else split the shards",
            )


def _grows(app: AppObservation, stream: StreamObservation, row: ShardRow) -> bool:
    after = stream.second.get(row.key)
    if after is None or (after.millis or 0) < GROWING_LAG_MILLIS:
        return False
    if app.second.state(row) != "owned" or app.second.pause(row) is not None:
        return False  # other checks report shards that nobody reads
    trend = find_trend(stream.first.get(row.key), after)
    if trend.trend in (GROWING, STALLED):
        return True
    return (trend.millis_per_second or 0) >= GROWING_MILLIS_PER_SECOND
