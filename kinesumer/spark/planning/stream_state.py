"""The planner's state of one stream: its description, shards and probes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import inf
from typing import Any

from kinesumer.aws.fan_out import CALL_SECONDS, REPLACE_SECONDS
from kinesumer.consuming.prefetch import PAGE_RECORDS
from kinesumer.consuming.read_place import FRESH_SECONDS
from kinesumer.core.batch_ranges import MAX_BYTES_PER_SECOND, ProbedRecord
from kinesumer.core.lineage import leaves
from kinesumer.core.pacing import BYTES_PER_SECOND, CAUGHT_UP_SECONDS
from kinesumer.errors import ExpiredIteratorError, SourceUnavailableError
from kinesumer.model.positions import (
    After,
    End,
    Positions,
    ShardPosition,
    may_be_trimmed,
)
from kinesumer.model.streams import Shard, ShardKey, Stream, StreamInfo
from kinesumer.ports import Clock, StreamSource
from kinesumer.runtime.clock import ServiceTime, reached_time
from kinesumer.spark.planning.data_loss import DataLoss, holds_all_after, unproven
from kinesumer.spark.planning.probe import ShardProbe
from kinesumer.spark.process import MAX_OUTAGE_SECONDS, PLAN_RETRIES

# The maximum size of a sample, by which a probe learns a shard's rate, and the number
# of records in a sample while their size is unknown.
SAMPLE_BYTES, SAMPLE_RECORDS, FIRST_SAMPLE = 128_000, 100, 10
# The maximum number of records that one trigger probes with a call for each shard.
FLEET_RECORDS = 20_000

# Ranges of fewer bytes than producers put in a second are polled, unless other apps
# read the shard: a page of GetRecords has up to 10 MB, and Kinesis permits a shard's
# next subscription only five seconds after the last one began.
POLLED_BYTES = int(MAX_BYTES_PER_SECOND)
# The time between two subscriptions of a shard. The tasks begin some time after their
# plan, so this is longer than Kinesis's five seconds.
SUBSCRIPTION_SECONDS = REPLACE_SECONDS + CALL_SECONDS


class StreamState:
    """The state of one stream while a query runs."""

    requested: Stream
    source: StreamSource
    service: ServiceTime

    info: StreamInfo
    shards: Sequence[Shard]

    def __init__(
        self,
        requested: Stream,
        source: StreamSource,
        clock: Clock,
        service: ServiceTime,
        loss: DataLoss,
        period_seconds: float = CAUGHT_UP_SECONDS,
    ) -> None:
        self.requested, self.source, self.service = requested, source, service
        # By shard: how far the end of the last planned batch is behind the tip.
        self.lag_seconds: dict[str, float] = {}
        # By shard, estimated. The rates only influence how ranges are distributed to
        # tasks, not which records a batch has.
        self.bytes_per_second: dict[str, float] = {}
        self.records_per_second: dict[str, float] = {}
        # By shard that waits for its parents: the time just before its first record.
        self.first_arrivals: dict[str, float] = {}
        self.apps: int = 1  # how many apps poll the stream, including the query
        self.consumer_arn: str | None = None  # of the consumer for subscriptions
        # When the stream of this consumer was created.
        self._stream_created_at: float | None = None
        self._clock, self._loss = clock, loss
        self._period_seconds = period_seconds  # between two reads of a shard
        self._probes: dict[str, ShardProbe] = {}
        self._subscribed_at: dict[str, float] = {}  # by shard
        self._refreshed: float | None = None
        # By shard whose position is an End, but that is listed as open: the time of the
        # first listing that shows it.
        self._suspected: dict[str, float] = {}
        self._record_bytes = 0.0

    @property
    def arn(self) -> str:
        """The stream's ARN."""
        return self.info.arn

    @property
    def retention_seconds(self) -> float:
        """The retention of the stream."""
        return self.info.retention_hours * 3600.0

    async def refresh(self, *, now: bool = False) -> None:
        """Describe the stream and list its shards, if FRESH_SECONDS have passed.

        After a reshard, do so at once, since the parents' ends show it.
        """
        due = self._refreshed is None or (
            self._clock.now() - self._refreshed > FRESH_SECONDS
        )
        if due or now:
            # List the shards before describing the stream: records written after the
            # listing go to shards that were open at that time, or to their children.
            self.shards = await PLAN_RETRIES.call(self.source.list_shards)
            self.info = await PLAN_RETRIES.call(self._describe)
            self._refreshed = self._clock.now()

    def wrong_ends(self, positions: Positions) -> list[str]:
        """Return the shards with the position End that two listings show as open."""
        listed = self._refreshed or 0.0
        opened = {shard.shard_id for shard in leaves(self.shards) if not shard.closed}
        suspected = {
            shard_id: self._suspected.get(shard_id, listed)
            for shard_id, position in positions.items()
            if isinstance(position, End) and shard_id in opened
        }
        self._suspected = suspected
        return [shard_id for shard_id, since in suspected.items() if since < listed]

    async def _describe(self) -> StreamInfo:
        requested_at = self._clock.now()
        info = await self.source.describe()
        self.service.observe_date(info.now, requested_at)
        return info

    async def resolve_now(self) -> None:
        """Correct the time at which a query with LATEST begins.

        So far, it is the Date of an HTTP answer. That may come from a proxy whose clock
        is ahead of Kinesis's clock.
        """
        open_ids = [shard.shard_id for shard in self.shards if not shard.closed]
        source, now = self.source, self.info.now
        now = await PLAN_RETRIES.call(reached_time, source, open_ids, now)
        self.info = self.info._replace(now=now)

    async def check_retention(
        self, shard_id: str, position: ShardPosition, seen: float
    ) -> None:
        """Report data loss if records after a position may have expired."""
        if may_be_trimmed(seen, self.retention_seconds, self.service.latest()):
            key = ShardKey(self.arn, shard_id)
            if not await holds_all_after(self.source, key, position):
                self.report_loss(shard_id, position, unproven(seen))

    def report_loss(
        self, shard_id: str, position: ShardPosition | None, reason: str
    ) -> None:
        """Raise DataLossError, or count the loss if the query allows losses."""
        self._loss.report(self.arn, shard_id, position, reason)

    def reshards(self) -> None:
        """List the shards again at the next trigger."""
        self._refreshed = None

    def probe(self, shard_id: str) -> ShardProbe:
        """Return the ShardProbe of a shard. The first call creates it."""
        probe = self._probes.get(shard_id)
        if probe is None:
            clock, period = self._clock, self._period_seconds
            probe = ShardProbe(self.source, shard_id, clock, self.service, period)
            self._probes[shard_id] = probe
        probe.pacing.share_among(self.apps)
        return probe

    def estimate_bytes(
        self, shard_id: str, last: ShardPosition, span_seconds: float
    ) -> int:
        """Estimate the bytes of a range that ends at a position.

        The result is exact if the whole range was probed. Otherwise, it is
        estimated from the shard's rate, and is at least the number of probed bytes.
        """
        rate = self.bytes_per_second.get(shard_id, MAX_BYTES_PER_SECOND)
        probe = self._probes.get(shard_id)
        if probe is not None and probe.measured is not None:
            end, size, is_whole = probe.measured
            if isinstance(last, After) and last.position == end:
                return size if is_whole else max(size, int(rate * span_seconds))
        return int(rate * (span_seconds or 1.0))

    async def find_consumer(self, find: Callable[[Stream], Awaitable[str]]) -> None:
        """Find or register the consumer, unless that was done for this stream."""
        if self._stream_created_at != self.info.created_at:
            self.consumer_arn = await find(self.requested)
            self._stream_created_at = self.info.created_at

    def subscribes(self, shard_id: str, estimated_bytes: int) -> bool:
        """Return whether to subscribe to a shard now for a range, and note it."""
        probe, now = self._probes.get(shard_id), self._clock.now()
        is_shared = probe is not None and probe.pacing.is_shared
        is_small = estimated_bytes < POLLED_BYTES and not is_shared
        last = self._subscribed_at.get(shard_id, -inf)
        if self.consumer_arn is None or is_small or now - last < SUBSCRIPTION_SECONDS:
            return False
        self._subscribed_at[shard_id] = now
        return True

    def keep_only(self, shard_ids: Iterable[str]) -> None:
        """Drop the state of all shards except the given ones."""
        kept = set(shard_ids)
        for by_shard in (
            self._probes,
            self.lag_seconds,
            self.bytes_per_second,
            self.records_per_second,
            self._subscribed_at,
        ):
            for shard_id in by_shard.keys() - kept:
                del by_shard[shard_id]

    def sample(self, max_records: int = SAMPLE_RECORDS) -> int:
        """Return the maximum number of records that one probe reads."""
        if not self._record_bytes:
            return FIRST_SAMPLE
        return self._fit(SAMPLE_BYTES, max_records)

    @property
    def page_records(self) -> int:
        """The maximum number of records of a page that is read for its last record."""
        return self._fit(BYTES_PER_SECOND, PAGE_RECORDS)

    def _fit(self, max_bytes: int, max_records: int) -> int:
        share = FLEET_RECORDS // max(1, len(self.shards))
        by_size = int(max_bytes / max(1.0, self._record_bytes))
        return max(FIRST_SAMPLE // 2, min(max_records, share, by_size))

    def learn(self, shard_id: str, records: Sequence[ProbedRecord]) -> None:
        """Update the estimates of record size and rate from probed records."""
        if not records:
            return
        size = sum(record.size for record in records)
        self._record_bytes = max(1.0, size / len(records))
        span = records[-1].arrived_at - records[0].arrived_at
        if len(records) >= FIRST_SAMPLE and span > 0:
            self.bytes_per_second[shard_id] = size / span
            self.records_per_second[shard_id] = len(records) / span

    def refused(
        self, probe: ShardProbe, error: SourceUnavailableError | ExpiredIteratorError
    ) -> None:
        """Note a failed probe. Raise its error after MAX_OUTAGE_SECONDS of failures.

        Time without valid credentials doesn't count.
        """
        now = self._clock.now()
        if probe.failing_since is None or error.lacks_credentials:
            probe.failing_since = now
        if now - probe.failing_since > MAX_OUTAGE_SECONDS:
            raise error

    def progress(self) -> dict[str, Any]:
        """Return the stream's lag, which Spark shows in the query's progress."""
        lags = self.lag_seconds
        worst = max(sorted(lags), key=lags.__getitem__, default="")
        lag = lags.get(worst, 0.0)
        shown = {"behind_ms": round(lag * 1000), "shards": len(lags)}
        return {**shown, "worst_shard": worst} if lag else shown
