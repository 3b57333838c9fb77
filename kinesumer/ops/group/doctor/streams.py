"""Check streams: hot shards, quotas, positions, retention, lags, and consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from kinesumer.aws.account import AccountLimits
from kinesumer.aws.dynamodb import DynamoStateStore
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.stream_consumers import (
    MAX_CONSUMERS,
    QUOTA,
    StreamConsumer,
    StreamConsumers,
)
from kinesumer.core.batch_ranges import MAX_BYTES_PER_SECOND, MAX_ROWS_PER_SECOND
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import stream_name
from kinesumer.model.table_streams import is_table_stream
from kinesumer.ops.group.client_reports import LiveUses, read_live_uses
from kinesumer.ops.group.connect import Roles
from kinesumer.ops.group.doctor.observation import AppObservation, StreamObservation
from kinesumer.ops.group.doctor.permission_probe import ProbeLog
from kinesumer.ops.group.lag import (
    CAUGHT_UP,
    FALLING,
    GROWING,
    STALLED,
    WINDOW_SECONDS,
    Trend,
    find_trend,
    moves_fast,
    slowest_of,
)
from kinesumer.ops.group.problems import FAN_OUT, Check, Finding, Severity
from kinesumer.ops.group.shard_reads import NOISE_MILLIS, ArrivalSample
from kinesumer.ops.group.verify import UNCHECKED, Verdict
from kinesumer.runtime.text import duration_text, first_three

HOT_SHARDS, LIMITS, LAG = Check("hot shards"), Check("shard limits"), Check("lag")
POSITIONS, RETENTION = Check("positions"), Check("retention")
# A shard with this many times the median load is uneven, if it would be near its limit
# with this many times its load.
UNEVEN_FACTOR = 4.0
# What reaches this share of a limit is near it: a shard's load, the quotas of shards
# and consumers, and the age of unread records, whose limit is the retention. A lag is
# a warning from the lower share on unless it falls.
NEAR_SHARE, WARNING_SHARE = 0.8, 0.5


def hot_shards(app: AppObservation) -> Iterator[Finding]:
    """Yield findings about shards with a load near the limit or far above others."""
    for arn, stream in app.streams.items():
        loads = {shard: _load(sample) for shard, sample in stream.arriving.items()}
        full = [f"{s} ({load:.0%})" for s, load in loads.items() if load >= NEAR_SHARE]
        if full:
            yield HOT_SHARDS.warning(
                arn,
                f"near the limit of 1 MB or 1,000 records a second: "
                f"{first_three(full)}; Kinesis throttles producers beyond it",
                "split them, or spread the partition keys",
            )
        middle = median(loads.values()) if loads else 0.0
        least = max(NEAR_SHARE / UNEVEN_FACTOR, UNEVEN_FACTOR * middle)
        above = [
            f"{shard} ({load:.0%} of a shard's limit, the median is {middle:.0%})"
            for shard, load in loads.items()
            if least <= load < NEAR_SHARE
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
        arriving.records_per_second / MAX_ROWS_PER_SECOND,
    )


def throttled_shards(app: AppObservation) -> Iterator[Finding]:
    """Yield a finding about throttled shards with a lag, and one about the others."""
    for arn, stream in app.streams.items():
        behind = {
            key.shard_id
            for key, lag in stream.second.items()
            if lag.millis is None or lag.millis > NOISE_MILLIS
        }
        # A single throttled read may be a coincidence.
        throttled = {s for s, count in stream.throttled.items() if count > 1}
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
    if limits is not None and limits.open_shards >= NEAR_SHARE * limits.shard_limit:
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
    clients = len(app.second.assignable)
    if shards and clients > shards:
        yield LIMITS.note(
            app.subject,
            f"{clients} clients share {shards} shards, and only one client at a time "
            "reads a shard",
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
        after = slowest_of(stream.second.values())
        if after is not None and after.millis is not None:
            trend = find_trend(slowest_of(stream.first.values()), after)
            yield from _expiring(arn, stream, after.millis, trend)


def _expiring(
    arn: str, stream: StreamObservation, millis: int, trend: Trend
) -> Iterator[Finding]:
    retention = stream.info.retention_hours * 3_600_000
    share = millis / retention
    falling = trend.trend == FALLING
    threshold = NEAR_SHARE if falling else WARNING_SHARE
    if share < threshold or trend.trend == CAUGHT_UP:
        return
    text = f"the oldest unread record is {share:.0%} of its retention old"
    if falling:
        text += ", though the lag falls"
    elif trend.trend in (GROWING, STALLED) and trend.millis_per_second:
        left = max(retention - millis, 0) / trend.millis_per_second
        text += f"; at this rate records are lost in {left / 3600:.1f} h"
    is_critical = share >= NEAR_SHARE and not falling
    yield (RETENTION.critical if is_critical else RETENTION.warning)(
        arn,
        text,
        "raise the stream's retention first (it takes effect at once, for records that "
        "are still there), then add clients or make the handler faster",
    )


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
    # A shorter lag may come from commits, or from a short burst of records.
    if after is None or (after.millis or 0) < 1000 * WINDOW_SECONDS:
        return False
    if app.second.state(row) != "owned" or app.second.pause(row) is not None:
        return False  # other checks report shards that nobody reads
    trend, speed, _ = find_trend(stream.first.get(row.key), after)
    return trend in (GROWING, STALLED) or moves_fast(speed or 0)


class ConsumerObservation(NamedTuple):
    """The registered consumers of streams, by ARN, and who uses them."""

    registered: Mapping[str, Sequence[StreamConsumer]]
    uses: LiveUses
    table: str


async def observe_consumers(
    clients: ClientFactory,
    roles: Roles,
    names: Iterable[str],
    store: DynamoStateStore,
    table: str,
    log: ProbeLog,
) -> ConsumerObservation | None:
    """List the consumers of streams, as far as allowed, and read who uses them.

    Returns None if the table can't be read.
    """

    async def list_consumers(name: str) -> tuple[str, list[StreamConsumer]]:
        source = await open_source(clients, roles.stream(name))
        arn = (await source.describe()).arn
        return arn, await StreamConsumers(source).list()

    lists = (
        log.attempt("kinesis:ListStreamConsumers", name, list_consumers(name))
        for name in names
        if not is_table_stream(name)
    )
    found = await asyncio.gather(*lists)
    scan = read_live_uses(store, time.time())
    uses = await log.attempt("dynamodb:Scan", f"table {table}", scan)
    if uses is None:
        return None
    return ConsumerObservation(dict(filter(None, found)), uses, table)


def unused_consumers(observed: ConsumerObservation) -> Iterator[Finding]:
    """Yield a finding for each stream with consumers that no live client uses."""
    for arn, consumers in observed.registered.items():
        unused = [c.name for c in consumers if (arn, c.name) not in observed.uses]
        if unused:
            yield FAN_OUT.note(
                arn,
                f"no live client in table {observed.table} uses the stream consumer "
                f"{first_three(unused)}: AWS bills a registered consumer for each "
                "shard and hour",
                "unless another program uses it: kinesumer fan-out deregister "
                f"{stream_name(arn)} {unused[0]}",
            )


def full_streams(observed: ConsumerObservation) -> Iterator[Finding]:
    """Yield a finding for each stream that can have few further consumers."""
    for arn, consumers in observed.registered.items():
        if len(consumers) >= NEAR_SHARE * MAX_CONSUMERS:
            yield FAN_OUT.note(
                arn,
                f"{len(consumers)} stream consumers are registered: {QUOTA}",
                "deregister what nobody uses, or raise the quota, before another app "
                "reads the stream by fan-out",
            )
