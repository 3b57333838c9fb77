"""Retention that runs out before a lag is caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity
from kinesumer.admin.lag_trend import (
    CAUGHT_UP,
    FALLING,
    GROWING,
    STALLED,
    LagSample,
    find_trend,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.admin.doctor.observation import AppObservation, StreamObservation

CHECK = "retention"
NEAR = 0.5
"""A lag that doesn't fall is told of from this part of the retention on …"""
AT_ONCE = 0.8
"""… and this urgently."""


def expiring_records(seen: AppObservation) -> Iterator[Finding]:
    """Tell of records that soon will be lost."""
    for arn, stream in seen.streams.items():
        slowest = max(stream.second.values(), key=_millis, default=None)
        if slowest is not None and slowest.millis is not None:
            yield from _soon(arn, stream, slowest)


def _millis(look: LagSample) -> int:
    return -1 if look.millis is None else look.millis


def _soon(arn: str, stream: StreamObservation, slowest: LagSample) -> Iterator[Finding]:
    kept = stream.info.retention_hours * 3_600_000
    part = (slowest.millis or 0) / kept
    before = max(stream.first.values(), key=_millis, default=None)
    going = find_trend(before, slowest)
    if part < NEAR or going.trend == CAUGHT_UP:
        return
    falling = going.trend == FALLING
    if falling and part < AT_ONCE:
        return
    text = f"the oldest unread record is {part:.0%} of its retention old"
    if falling:
        text += ", though the lag falls"
    elif going.trend in (GROWING, STALLED) and going.millis_per_second:
        left = max(kept - (slowest.millis or 0), 0) / going.millis_per_second
        text += f"; at this rate records are lost in {left / 3600:.1f} h"
    yield Finding(
        CHECK,
        Severity.CRITICAL if part >= AT_ONCE and not falling else Severity.WARNING,
        arn,
        text,
        "raise the stream's retention first (it takes effect at once, for records that "
        "are still there), then add clients or make the handler faster",
    )
