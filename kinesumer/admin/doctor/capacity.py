"""Hot shards, and readers that share what a shard gives."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate
from kinesumer.admin.lag_trend import MAX_RECORDS_PER_SECOND, NOISE_MILLIS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.admin.doctor.observation import AppObservation, StreamObservation
    from kinesumer.aws.account import AccountLimits


MOST_BYTES_PER_SECOND = 1 << 20
"""Kinesis takes so much a second and shard, and gives twice as much to all readers."""


HOT = 0.8
"""From this part of a shard's limit on it is hot …"""


UNEVEN = 4.0
"""… and uneven with so many times the load of the stream's middle shard, …"""


REFUSALS = 2
"""One may be a coincidence."""


WORTH_TELLING = 0.1
"""… if that is this part of the limit."""


def hot_shards(seen: AppObservation) -> Iterator[Finding]:
    """Tell of shards near what they can take, and of those far above the others."""
    for arn, stream in seen.streams.items():
        loads = _loads(stream)
        full = {shard: load for shard, load in loads.items() if load >= HOT}
        if full:
            told = (f"{shard} ({load:.0%})" for shard, load in full.items())
            yield Finding(
                "hot shards",
                Severity.WARNING,
                arn,
                f"near the 1 MB or 1,000 records a second that a shard takes: "
                f"{abbreviate(told)}; beyond it producers are refused",
                "split them, or spread the partition keys",
            )
        middle = median(loads.values()) if loads else 0.0
        above = [
            f"{shard} ({load:.0%} of a shard's limit, the middle one has {middle:.0%})"
            for shard, load in loads.items()
            if load >= max(WORTH_TELLING, UNEVEN * middle) and shard not in full
        ]
        if above and len(loads) > 1:
            yield Finding(
                "hot shards",
                Severity.NOTE,
                arn,
                f"far more than the others arrives in {abbreviate(above)}",
                "look for partition keys that many records share",
            )


def _loads(stream: StreamObservation) -> dict[str, float]:
    """Return each open shard's load as a part of what it can take."""
    return {
        shard: max(
            arriving.bytes_per_second / MOST_BYTES_PER_SECOND,
            arriving.records_per_second / MAX_RECORDS_PER_SECOND,
        )
        for shard, arriving in stream.arriving.items()
    }


def throttled_shards(seen: AppObservation) -> Iterator[Finding]:
    """Tell of shards that refused reads though those who own them had caught up."""
    for arn, stream in seen.streams.items():
        behind = {
            key.shard_id
            for key, look in stream.second.items()
            if look.millis is None or look.millis > NOISE_MILLIS
        }
        refused = sorted(
            s for s, count in stream.throttled.items() if count >= REFUSALS
        )
        others = [shard for shard in refused if shard not in behind]
        if others:
            yield Finding(
                "shard limits",
                Severity.WARNING,
                arn,
                f"{abbreviate(others)} refused reads as too many, though this "
                "app's clients have caught up there and read four times a second: "
                "others read too",
                "all consumers of a shard share 5 reads a second and 2 MB/s: see which "
                "other apps read it, let them share one, or give some enhanced fan-out",
            )
        its_own = [shard for shard in refused if shard in behind]
        if its_own:
            yield Finding(
                "shard limits",
                Severity.NOTE,
                arn,
                f"{abbreviate(its_own)} are behind, and read as often as "
                "Kinesis allows",
                "more clients don't read one shard faster: if handlers keep up, split "
                "the shards",
            )


CHECK = "shard limits"


NEAR = 0.9


def shard_quota(limits: AccountLimits | None) -> Iterator[Finding]:
    """Tell that splits will be refused."""
    if limits is None or limits.open_shards < NEAR * limits.shard_limit:
        return
    yield Finding(
        CHECK,
        Severity.WARNING,
        "the account",
        f"{limits.open_shards:,} of {limits.shard_limit:,} shards are open in this "
        "region: splits and new streams are refused from there on",
        "ask AWS for a higher limit (Service Quotas), or merge shards",
    )


def idle_clients(seen: AppObservation) -> Iterator[Finding]:
    """Tell of clients that have no shard, since there are fewer shards than clients."""
    rows = [row for page in seen.second.shards.values() for row in page]
    shards = sum(not row.ended and row.ready for row in rows)
    if shards and len(seen.takers) > shards:
        yield Finding(
            CHECK,
            Severity.NOTE,
            f"app {seen.app}",
            f"{len(seen.takers)} clients share {shards} shards: a shard is read by one",
            "spare clients take over at once when others die; for more throughput, "
            "split the shards",
        )
