"""Check streams: hot and throttled shards, quotas, stored positions, and retention."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from kinesumer.ops.group.doctor.finding import Check, Severity
from kinesumer.ops.group.lag import CAUGHT_UP, FALLING, GROWING, STALLED, find_trend
from kinesumer.ops.group.sampling import MAX_RECORDS_PER_SECOND, NOISE_MILLIS
from kinesumer.ops.group.verify import UNCHECKED
from kinesumer.runtime.text import first_three

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.aws.account import AccountLimits
    from kinesumer.ops.group.doctor.finding import Finding
    from kinesumer.ops.group.doctor.observation import AppObservation, StreamObservation
    from kinesumer.ops.group.sampling import ArrivalSample, LagSample
    from kinesumer.ops.group.verify import Verdict

HOT_SHARDS, LIMITS = Check("hot shards"), Check("shard limits")
POSITIONS, RETENTION = Check("positions"), Check("retention")
# The write limit of a shard; the read limit is twice as much.
MAX_BYTES_PER_SECOND = 1 << 20
HOT_SHARE = 0.8  # a shard is hot from this share of its write limit on
UNEVEN_FACTOR = 4.0  # a shard with this many times the median load is uneven
UNEVEN_MIN_SHARE = 0.1  # shards with a lower share of the limit aren't reported
MIN_THROTTLED_READS = 2  # a single throttled read may be a coincidence
FULL_SHARE = 0.9  # warn when this share of the account's shards is in use
# A lag above the first share of the retention is a warning, and one above the second
# is critical. A falling lag is a warning above the second share.
WARNING_SHARE, CRITICAL_SHARE = 0.5, 0.8


def hot_shards(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about shards with a load near the limit or far above others."""
    for arn, stream in app.streams.items():
        loads = {shard: _load(sample) for shard, sample in stream.arriving.items()}
        full = {shard: load for shard, load in loads.items() if load >= HOT_SHARE}
        if full:
            names = (f"{shard} ({load:.0%})" for shard, load in full.items())
            yield HOT_SHARDS.warning(
                arn,
                f"near the limit of 1 MB or 1,000 records a second: "
                f"{first_three(names)}; Kinesis throttles producers beyond it",
                "split them, or spread the partition keys",
            )
        middle = median(loads.values()) if loads else 0.0
        above = [
            f"{shard} ({load:.0%} of a shard's limit, the median is {middle:.0%})"
            for shard, load in loads.items()
            if load >= max(UNEVEN_MIN_SHARE, UNEVEN_FACTOR * middle)
            and shard not in full
        ]
        if above and len(loads) > 1:
            yield HOT_SHARDS.note(
                arn,
                f"far more data arrives in {first_three(above)} than in the others",
                "look for partition keys that many records share",
            )


def _load(arriving: ArrivalSample) -> float:
    """Return a shard's load as a share of its write limit."""
    return max(
        arriving.bytes_per_second / MAX_BYTES_PER_SECOND,
        arriving.records_per_second / MAX_RECORDS_PER_SECOND,
    )


def throttled_shards(app: AppObservation) -> Iterator[Finding]:
    """Yield a finding about throttled shards with a lag, and one about the others."""
    for arn, stream in app.streams.items():
        behind = {
            key.shard_id
            for key, lag in stream.second.items()
            if lag.millis is None or lag.millis > NOISE_MILLIS
        }
        throttled = {
            s for s, count in stream.throttled.items() if count >= MIN_THROTTLED_READS
        }
        if others := sorted(throttled - behind):
            yield LIMITS.warning(
                arn,
                f"{first_three(others)} throttled the doctor's reads, although this "
                "app's clients have caught up there and read four times a second: "
                "other consumers read them too",
                "all consumers of a shard share 5 reads a second and 2 MB/s: merge the "
                "apps that read it, or use enhanced fan-out for some",
            )
        if own := sorted(throttled & behind):
            yield LIMITS.note(
                arn,
                f"{first_three(own)} are behind, and are read as often as "
                "Kinesis allows",
                "if handlers keep up, split the shards: more clients don't read one "
                "shard faster",
            )


def shard_quota(limits: AccountLimits | None) -> Iterator[Finding]:
    """Yield a finding if the account has nearly all its shards in use."""
    if limits is not None and limits.open_shards >= FULL_SHARE * limits.shard_limit:
        yield LIMITS.warning(
            "the account",
            f"{limits.open_shards:,} of {limits.shard_limit:,} shards are open in this "
            "region: beyond the limit, splits and new streams fail",
            "ask AWS for a higher limit (Service Quotas), or merge shards",
        )


def idle_clients(app: AppObservation) -> Iterator[Finding]:
    """Yield a finding if there are more clients than shards."""
    rows = list(app.second.rows)
    shards = sum(not row.ended and row.ready for row in rows)
    if shards and len(app.assignable) > shards:
        yield LIMITS.note(
            app.subject,
            f"{len(app.assignable)} clients share {shards} shards, and only one client "
            "at a time reads a shard",
            "nothing if spare clients are intended; for more throughput, "
            "split the shards",
        )


def invalid_positions(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about invalid positions, one for each verdict."""
    for arn, stream in app.streams.items():
        shards: dict[Verdict, list[str]] = {}
        for key, verdict in stream.verdicts.items():
            # Another check reports unreadable shards.
            if verdict.severity > Severity.NOTE and verdict.name != UNCHECKED:
                shards.setdefault(verdict, []).append(key.shard_id)
        for verdict, ids in shards.items():
            is_critical = verdict.severity is Severity.CRITICAL
            yield (POSITIONS.critical if is_critical else POSITIONS.warning)(
                arn,
                f"{verdict.name}: {first_three(ids)}: {verdict.text}",
                "kinesumer verify shows each of them; kinesumer seek changes them",
            )


def expiring_records(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about streams whose unread records expire soon."""
    for arn, stream in app.streams.items():
        slowest = max(stream.second.values(), key=_millis, default=None)
        if slowest is not None and slowest.millis is not None:
            yield from _expiring(arn, stream, slowest)


def _millis(sample: LagSample) -> int:
    return -1 if sample.millis is None else sample.millis


def _expiring(
    arn: str, stream: StreamObservation, slowest: LagSample
) -> Iterator[Finding]:
    retention = stream.info.retention_hours * 3_600_000
    share = _millis(slowest) / retention
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
        left = max(retention - _millis(slowest), 0) / trend.millis_per_second
        text += f"; at this rate records are lost in {left / 3600:.1f} h"
    is_critical = share >= CRITICAL_SHARE and not falling
    yield (RETENTION.critical if is_critical else RETENTION.warning)(
        arn,
        text,
        "raise the stream's retention first (it takes effect at once, for records that "
        "are still there), then add clients or make the handler faster",
    )
