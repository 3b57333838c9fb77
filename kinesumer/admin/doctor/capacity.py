"""Check shard limits: hot shards, throttled reads, quotas and idle clients."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.admin.lag_trend import MAX_RECORDS_PER_SECOND, NOISE_MILLIS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.admin.doctor.observation import AppObservation, StreamObservation
    from kinesumer.aws.account import AccountLimits


CHECK = "shard limits"
MAX_BYTES_PER_SECOND = 1 << 20
"""Kinesis's write limit of a shard; all its readers together get twice as much."""
HOT_SHARE = 0.8
"""The share of its write limit from which a shard is hot."""
UNEVEN_FACTOR = 4.0
"""A shard with this many times the median load is uneven."""
UNEVEN_MIN_SHARE = 0.1
"""The share of its limit below which a shard isn't reported as uneven."""
MIN_THROTTLED_READS = 2
"""A single throttled read may be a coincidence."""
FULL_SHARE = 0.9
"""The share of the account's shards from which splits may soon fail."""


def hot_shards(seen: AppObservation) -> Iterator[Finding]:
    """Yield shards near their write limit, and those far above the others."""
    for arn, stream in seen.streams.items():
        loads = _loads(stream)
        full = {shard: load for shard, load in loads.items() if load >= HOT_SHARE}
        if full:
            names = (f"{shard} ({load:.0%})" for shard, load in full.items())
            yield Finding(
                "hot shards",
                Severity.WARNING,
                arn,
                f"near the limit of 1 MB or 1,000 records a second: "
                f"{abbreviate(names)}; Kinesis throttles producers beyond it",
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
            yield Finding(
                "hot shards",
                Severity.NOTE,
                arn,
                f"far more data than in the others arrives in {abbreviate(above)}",
                "look for partition keys that many records share",
            )


def _loads(stream: StreamObservation) -> dict[str, float]:
    """Return each open shard's load as a share of its write limit."""
    return {
        shard: max(
            arriving.bytes_per_second / MAX_BYTES_PER_SECOND,
            arriving.records_per_second / MAX_RECORDS_PER_SECOND,
        )
        for shard, arriving in stream.arriving.items()
    }


def throttled_shards(seen: AppObservation) -> Iterator[Finding]:
    """Yield shards that throttled reads although their owners had caught up."""
    for arn, stream in seen.streams.items():
        behind = {
            key.shard_id
            for key, look in stream.second.items()
            if look.millis is None or look.millis > NOISE_MILLIS
        }
        throttled = sorted(
            s for s, count in stream.throttled.items() if count >= MIN_THROTTLED_READS
        )
        others = [shard for shard in throttled if shard not in behind]
        if others:
            yield Finding(
                CHECK,
                Severity.WARNING,
                arn,
                f"{abbreviate(others)} throttled the doctor's reads, although this "
                "app's clients have caught up there and read four times a second: "
                "other consumers read them too",
                "all consumers of a shard share 5 reads a second and 2 MB/s: merge the "
                "apps that read it, or use enhanced fan-out for some",
            )
        own = [shard for shard in throttled if shard in behind]
        if own:
            yield Finding(
                CHECK,
                Severity.NOTE,
                arn,
                f"{abbreviate(own)} are behind, and are read as often as "
                "Kinesis allows",
                "if handlers keep up, split the shards: more clients don't read one "
                "shard faster",
            )


def shard_quota(limits: AccountLimits | None) -> Iterator[Finding]:
    """Yield a finding if the account has nearly all its shards in use."""
    if limits is None or limits.open_shards < FULL_SHARE * limits.shard_limit:
        return
    yield Finding(
        CHECK,
        Severity.WARNING,
        "the account",
        f"{limits.open_shards:,} of {limits.shard_limit:,} shards are open in this "
        "region: beyond the limit, splits and new streams fail",
        "ask AWS for a higher limit (Service Quotas), or merge shards",
    )


def idle_clients(seen: AppObservation) -> Iterator[Finding]:
    """Yield a finding if there are more clients than shards."""
    rows = [row for page in seen.second.shards.values() for row in page]
    shards = sum(not row.ended and row.ready for row in rows)
    if shards and len(seen.assignable) > shards:
        yield Finding(
            CHECK,
            Severity.NOTE,
            f"app {seen.app}",
            f"{len(seen.assignable)} clients share {shards} shards, each read by one",
            "nothing if spare clients are intended; for more throughput, "
            "split the shards",
        )
