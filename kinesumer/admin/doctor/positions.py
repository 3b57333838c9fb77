"""Check stored positions: invalid ones, and those close to the end of the retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.admin.lag_trend import (
    CAUGHT_UP,
    FALLING,
    GROWING,
    STALLED,
    LagSample,
    find_trend,
)
from kinesumer.admin.verify import UNCHECKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.admin.doctor.observation import AppObservation, StreamObservation
    from kinesumer.admin.verify import Verdict

POSITIONS = "positions"
RETENTION = "retention"
WARNING_SHARE = 0.5
"""The share of the retention from which a lag that doesn't fall is a warning."""
CRITICAL_SHARE = 0.8
"""The share of the retention from which a lag that doesn't fall is critical."""


def invalid_positions(seen: AppObservation) -> Iterator[Finding]:
    """Yield invalid positions, grouped by verdict."""
    for arn, stream in seen.streams.items():
        shards: dict[Verdict, list[str]] = {}
        for key, verdict in stream.verdicts.items():
            # Shards that can't be read are a finding of their own.
            if verdict.severity > Severity.NOTE and verdict.name != UNCHECKED:
                shards.setdefault(verdict, []).append(key.shard_id)
        for verdict, ids in shards.items():
            yield Finding(
                POSITIONS,
                verdict.severity,
                arn,
                f"{verdict.name}: {abbreviate(ids)}: {verdict.text}",
                "kinesumer verify shows each of them; kinesumer seek changes them",
            )


def expiring_records(seen: AppObservation) -> Iterator[Finding]:
    """Yield streams whose unread records soon expire."""
    for arn, stream in seen.streams.items():
        slowest = max(stream.second.values(), key=_millis, default=None)
        if slowest is not None and slowest.millis is not None:
            yield from _expiring(arn, stream, slowest)


def _millis(sample: LagSample) -> int:
    return -1 if sample.millis is None else sample.millis


def _expiring(
    arn: str, stream: StreamObservation, slowest: LagSample
) -> Iterator[Finding]:
    retention = stream.info.retention_hours * 3_600_000
    share = (slowest.millis or 0) / retention
    before = max(stream.first.values(), key=_millis, default=None)
    trend = find_trend(before, slowest)
    falling = trend.trend == FALLING
    threshold = CRITICAL_SHARE if falling else WARNING_SHARE
    if share < threshold or trend.trend == CAUGHT_UP:
        return
    text = f"the oldest unread record is {share:.0%} of its retention old"
    if falling:
        text += ", though the lag falls"
    elif trend.trend in (GROWING, STALLED) and trend.millis_per_second:
        left = max(retention - (slowest.millis or 0), 0) / trend.millis_per_second
        text += f"; at this rate records are lost in {left / 3600:.1f} h"
    critical = share >= CRITICAL_SHARE and not falling
    yield Finding(
        RETENTION,
        Severity.CRITICAL if critical else Severity.WARNING,
        arn,
        text,
        "raise the stream's retention first (it takes effect at once, for records that "
        "are still there), then add clients or make the handler faster",
    )
