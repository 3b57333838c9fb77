"""One stream as the planner knows it: its description, its shards, its probes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.runtime.service_time import reached_time
from kinesumer.spark.offsets.model import After
from kinesumer.spark.planning.data_loss import (
    holds_all_after,
    may_be_trimmed,
    unproven,
)
from kinesumer.spark.planning.probe import ShardProbe
from kinesumer.spark.runtime.event_loop import MAX_OUTAGE_SECONDS, with_retries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesumer.errors import SourceUnavailableError
    from kinesumer.model.streams import Shard, Stream, StreamInfo
    from kinesumer.ports import Clock, StreamSource
    from kinesumer.spark.offsets.model import ShardPosition
    from kinesumer.spark.planning.data_loss import (
        DataLoss,
    )
from kinesumer.spark.planning.probe import ProbeResult, ServiceClock

REFRESH_SECONDS = 30.0
"""A shard's end shows a reshard at once. This period finds all other changes."""
SAMPLE_BYTES, SAMPLE_RECORDS = 128_000, 100
FIRST_SAMPLE, SMALLEST_SAMPLE = 10, 5
UNKNOWN_BYTES_PER_SECOND, UNKNOWN_SECONDS = 100_000.0, 10.0
"""Estimates for a range of which nothing is known."""
AHEAD_BYTES, MAX_AHEAD, AHEAD_RECORDS = 256_000, 1_000, 100_000
FLEET_RECORDS = 20_000
"""The maximum number of records that one trigger probes, over all shards."""


class StreamState:
    """A stream, from the query's first trigger to its last."""

    info: StreamInfo
    shards: Sequence[Shard]

    def __init__(
        self,
        requested: Stream,
        source: StreamSource,
        clock: Clock,
        service: ServiceClock,
    ) -> None:
        self.requested, self.source = requested, source
        self.lag_seconds: dict[str, float] = {}
        """The lag of each shard after the last plan."""
        self.bytes_per_second: dict[str, float] = {}
        """Estimated rates: they distribute work, but don't select records."""
        self.first_arrivals: dict[str, float] = {}
        """The time just before the first record of shards that wait for parents."""
        self._clock, self._service = clock, service
        self._probes: dict[str, ShardProbe] = {}
        self._refreshed: float | None = None
        self._record_bytes = 0.0

    @property
    def retention_seconds(self) -> float:
        """The retention of the stream."""
        return self.info.retention_hours * 3600.0

    async def refresh(self, *, now: bool = False) -> None:
        """Describe the stream and list its shards, if that is due."""
        due = self._refreshed is None or (
            self._clock.now() - self._refreshed > REFRESH_SECONDS
        )
        if due or now:
            # In this order: a shard that is open in the listing has all later records.
            self.shards = await with_retries(self.source.list_shards, self._clock)
            self.info = await with_retries(self._describe, self._clock)
            self._refreshed = self._clock.now()

    async def _describe(self) -> StreamInfo:
        asked_at = self._clock.now()
        info = await self.source.describe()
        self._service.observe_date(info.now, asked_at)
        return info

    async def resolve_now(self) -> None:
        """Correct the time at which a query with LATEST begins.

        The Date of an answer may come from a proxy whose clock is ahead of Kinesis.
        """
        source, told = self.source, self.info.now
        open_ids = [shard.shard_id for shard in self.shards if not shard.closed]
        now = await with_retries(
            lambda: reached_time(source, open_ids, told), self._clock
        )
        self.info = self.info._replace(now=now)

    async def check_retention(
        self, shard_id: str, place: ShardPosition, seen: float, loss: DataLoss
    ) -> None:
        """Report a loss if records after a position may have expired."""
        if may_be_trimmed(seen, self.retention_seconds, self._service.latest()):
            if not await holds_all_after(self.source, shard_id, place):
                loss.report(self.info.arn, shard_id, place, unproven(seen))

    def reshards(self) -> None:
        """List the shards again at the next trigger."""
        self._refreshed = None

    def probe(self, shard_id: str) -> ShardProbe:
        """Return the probe of a shard."""
        if shard_id not in self._probes:
            self._probes[shard_id] = ShardProbe(
                self.source, shard_id, self._clock, self._service
            )
        return self._probes[shard_id]

    def estimate_bytes(
        self, shard_id: str, last: ShardPosition, span_seconds: float
    ) -> int:
        """Estimate the bytes of a range that ends at a position.

        The result is exact if the whole range was probed. Else the shard's rate counts;
        the probed bytes are the minimum.
        """
        rate = self.bytes_per_second.get(shard_id, UNKNOWN_BYTES_PER_SECOND)
        probe = self._probes.get(shard_id)
        measured = None if probe is None else probe.measured
        if measured is None or last != After(measured.last, getattr(last, "seen", 0.0)):
            return int(rate * (span_seconds or UNKNOWN_SECONDS))
        if measured.exact:
            return measured.size
        return max(measured.size, int(rate * span_seconds))

    def keep_only(self, shard_ids: Iterable[str]) -> None:
        """Drop the state of all other shards."""
        kept = set(shard_ids)
        for known in (self._probes, self.lag_seconds, self.bytes_per_second):
            for shard_id in known.keys() - kept:
                del known[shard_id]

    def sample(self, most: int = SAMPLE_RECORDS) -> int:
        """Return the number of records for one probe."""
        if not self._record_bytes:
            return FIRST_SAMPLE
        fits = int(SAMPLE_BYTES / self._record_bytes)
        share = FLEET_RECORDS // max(1, len(self.shards))
        return max(SMALLEST_SAMPLE, min(most, share, fits))

    @property
    def record_bytes(self) -> float:
        """The estimated size of a record; 1 while unknown."""
        return max(1.0, self._record_bytes)

    @property
    def ahead(self) -> int:
        """The maximum number of records that are read only to find the tip."""
        fits = int(AHEAD_BYTES / max(1.0, self._record_bytes))
        share = AHEAD_RECORDS // max(1, len(self.shards))
        return max(SMALLEST_SAMPLE, min(MAX_AHEAD, share, fits))

    def learn(self, shard_id: str, result: ProbeResult) -> None:
        """Update the estimates of record size and rate from a probe."""
        records, probe = result.records, self.probe(shard_id)
        size = sum(found.size for found in records)
        self._record_bytes = max(1.0, size / len(records))
        span = records[-1].arrived_at - records[0].arrived_at
        if len(records) >= FIRST_SAMPLE and span > 0:
            self.bytes_per_second[shard_id] = size / span
            probe.records_per_second = len(records) / span
        elif probe.records_per_second is None:
            probe.records_per_second = 0.0

    def refused(self, probe: ShardProbe, error: SourceUnavailableError) -> None:
        """Note a failed probe. Raise its error after MAX_OUTAGE_SECONDS."""
        now = self._clock.now()
        if probe.failing_since is None:
            probe.failing_since = now
        if now - probe.failing_since > MAX_OUTAGE_SECONDS:
            raise error


class PlanContext(NamedTuple):
    """Clocks and settings that apply to all shards of a plan."""

    clock: Clock
    service: ServiceClock
    loss: DataLoss
    must_succeed: bool = False
    """Retry a refused probe instead of leaving the shard out of the batch."""
    skew_seconds: float = inf
    """The maximum difference of arrival times between shards; inf: unlimited."""


def report(streams: Iterable[StreamState], data_losses: int) -> dict[str, Any]:
    """Return the lag of each stream after the planned batch, for Spark's progress."""
    return {
        "data_losses": data_losses,
        "streams": {stream.info.arn: _of_stream(stream) for stream in streams},
    }


def _of_stream(stream: StreamState) -> dict[str, Any]:
    behind = stream.lag_seconds
    worst = max(sorted(behind), key=behind.__getitem__, default=None)
    if worst is None:
        return {"behind_ms": 0, "shards": 0}
    shown: dict[str, Any] = {
        "behind_ms": round(behind[worst] * 1000),
        "shards": len(behind),
    }
    return {**shown, "worst_shard": worst} if behind[worst] else shown
