"""Probes one shard, and chooses where the next batch ends in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.streams import ShardKey, Start
from kinesumer.spark.offsets.model import BEGINNING, After, At, End
from kinesumer.spark.planning.data_loss import may_be_trimmed
from kinesumer.spark.planning.limits import Sample
from kinesumer.spark.planning.tip_search import TipResult, find_tip, last_until

if TYPE_CHECKING:
    from kinesumer.model.streams import Shard
    from kinesumer.spark.offsets.model import ShardPosition
    from kinesumer.spark.planning.limits import Limits, Share
    from kinesumer.spark.planning.probe import ProbeResult
    from kinesumer.spark.planning.stream_state import StreamState

MAX_SAMPLED = 2_000
JUMP_RECORDS = 3
FRESH_SECONDS = 10.0  # if the rate is unknown, older positions may have a backlog
# If a shard has many records, those that are younger are left for the next batch.
CUT_SECONDS = 0.25
# The time of a position in a quiet shard is renewed after this share of the retention.
# So a query can be stopped for the rest of the retention without data loss.
STALE_SHARE = 1 / 24
# The maximum error of the estimate of Kinesis's clock, by which records get their
# arrival times.
SEEN_SLACK_SECONDS = 60.0
UNKNOWN_SHARD = "Kinesis no longer knows the shard"


class Readable(NamedTuple):
    """A shard that a batch may read, with its position."""

    shard: Shard
    position: ShardPosition
    seen: float  # no record after the position arrived before this time


class ShardPlan:
    """Plans what the batch of one trigger reads in one shard."""

    def __init__(
        self,
        stream: StreamState,
        readable: Readable,
        target: ShardPosition | None,
        *,
        begins: bool = False,
    ) -> None:
        self.key: ShardKey = ShardKey(stream.arn, readable.shard.shard_id)
        self.shard_id: str = readable.shard.shard_id
        # Where the batch ends in this shard. If the batch reads nothing here, this is
        # still the position where it begins.
        self.end: ShardPosition = readable.position
        self.lost: bool = False
        self.probed: ProbeResult | None = None
        self.behind_seconds: float = 0.0
        # True if the probe failed, since Kinesis was not available.
        self.refused: bool = False
        # If this shard is closed: its last record arrived before this time.
        self.ended_by: float = math.inf
        self._stream, self._readable, self._target = stream, readable, target
        self._probe = stream.probe(self.shard_id)
        # True in the query's first batch of the stream. Records that expired before
        # that batch are not lost.
        self._begins = begins
        self._begin: ShardPosition = readable.position
        self._sample = 0
        # True if the unread records may be so old that there is a backlog.
        self._lags = False
        self._quiet_since: float | None = None
        # True if Kinesis has no record after the position, not even after the target.
        self._is_quiet = False

    # --- probing ---------------------------------------------------------------------

    async def observe(
        self, limits: Limits, skew_seconds: float, *, together: bool = False
    ) -> None:
        """Probe the next records of the shard.

        ``together`` is true if the batch may have to end early because of other shards.
        """
        if limits.any:
            rows = MAX_SAMPLED if limits.rows is None else limits.rows
            self._sample = min(rows + 1, MAX_SAMPLED)
        if isinstance(self._target, Start) and not self.is_stale:
            return
        try:
            await self._check_retention()
            self._lags = self._now - self.since > skew_seconds
            limited = limits.any or together or self._lags
            if not limited and await self._end_without_probe():
                return
            self.probed = await self._probe_next()
        except SourceUnavailableError as error:
            if self._target is not None:  # the query can't end without this shard
                raise
            self._stream.refused(self._probe, error)
            self.refused = True
            return
        self._probe.failing_since = None
        if isinstance(self._target, Start) and not self._is_quiet:
            self.probed = None  # these records came after the target was chosen
        result = self.probed
        if result is None:
            return
        if result.records:
            self._stream.learn(self.shard_id, result)
            self._begin_at(result)
        elif result.at_tip and (result.closed or self.ends_whole):
            self.end = End(self._readable.seen)

    @property
    def _now(self) -> float:
        return self._stream.service.earliest()

    @property
    def since(self) -> float:
        """A time before which no unread record arrived."""
        result, stream = self.probed, self._stream
        if result is not None and result.records:
            return result.records[0].arrived_at
        oldest = self._now - stream.retention_seconds
        oldest = max(oldest, stream.info.created_at)
        position = self._readable.position
        if position == BEGINNING:
            return oldest
        return max(oldest, self._readable.seen, self._probe.empty_until(position))

    @property
    def ends_whole(self) -> bool:
        """True if the target is the shard's end; without a target, if it is closed."""
        if self._target is not None:
            return isinstance(self._target, End)
        return self._readable.shard.closed

    async def _end_without_probe(self) -> bool:
        """Choose the batch's end without probing the records before it, if possible."""
        if self.ends_whole:
            await self._find_first_record()
            if not self.lost:
                self.end = End(self._readable.seen)
            return True
        if await self._jump():
            await self._find_first_record()
            return True
        return False

    async def _jump(self) -> bool:
        """End the batch at a new record, without probing the records before it.

        Return False if there is no such record.
        """
        if self._target is not None or not self._expects_many():
            return False
        now = self._now
        fresh = self._probe.records_per_second is None
        count = self._stream.sample() if fresh else JUMP_RECORDS
        try:
            newest = await self._probe.at(now - CUT_SECONDS, count)
            if fresh and newest.near_tip and not newest.at_tip:
                newest = await self._probe.further(newest, MAX_SAMPLED)
        except (ShardMissingError, ExpiredIteratorError):
            return False
        if not newest.records or not newest.records[-1].lies_after(self._begin):
            if newest.at_tip:
                self._quiet_since = now - CUT_SECONDS
            return False
        last = newest.records[-1]
        self._end_at(TipResult(last, newest.at_tip, newest.closed))
        self._probe.keep_after(last, newest)
        if fresh:
            self._stream.learn(self.shard_id, newest)
        return True

    def _expects_many(self) -> bool:
        age = self._now - self._readable.seen
        rate = self._probe.records_per_second
        if rate is None:
            return age > FRESH_SECONDS
        return age * rate > 2 * self._stream.sample()

    async def _probe_next(self) -> ProbeResult | None:
        try:
            result = await self._probe_with_retries()
        except TrimmedPositionError as error:
            self._begin = self._restart(error)
            result = await self._probe_with_retries()
        except ShardMissingError:
            self._stream.report_loss(self.shard_id, self._begin, UNKNOWN_SHARD)
            self.lost = True
            return None
        self._is_quiet = result.at_tip and not result.records
        if self._is_quiet:
            self._probe.note_tip(self._readable.position, self._now)
        if isinstance(self._target, After):
            return result.up_to(self._target.position)
        return result

    def _restart(self, error: TrimmedPositionError) -> Start:
        """Return where to begin instead if the record at the position has expired."""
        seen, stream = self._readable.seen, self._stream
        if may_be_trimmed(seen, stream.retention_seconds, stream.service.latest()):
            reason = f"retention has passed them ({error})"
            stream.report_loss(self.shard_id, self._begin, reason)
            return BEGINNING
        # No record after the position arrived before this time, so none is skipped.
        return Start(type="AT_TIMESTAMP", timestamp=seen)

    async def _find_first_record(self) -> None:
        """If the batch begins at a Start, probe its first record."""
        if isinstance(self._begin, Start):
            result = await self._probe_next()
            if result is not None:
                self._begin_at(result)

    def _begin_at(self, result: ProbeResult) -> None:
        """Replace a Start by the first record, so that tasks notice if it expires."""
        if isinstance(self._begin, Start) and result.records:
            first = result.records[0]
            self._begin = At(first.position.sequence_number, first.arrived_at)

    async def _probe_with_retries(self) -> ProbeResult:
        if self._target is not None or self._begins:
            return await self._stream.retry(self._probe_sample)
        return await self._probe_sample()

    async def _probe_sample(self) -> ProbeResult:
        """Probe a sample, and further records if the batch's limit may allow more."""
        stream = self._stream
        find = self._probe.next_after if self._lags else self._probe.after
        result = await find(self._begin, stream.sample())
        if result.records and not result.at_tip and self._sample:
            stream.learn(self.shard_id, result)
            missing = stream.sample(self._sample) - len(result.records)
            if missing > 0:
                return await self._probe.further(result, missing)
        return result

    async def _check_retention(self) -> None:
        """Report data loss if records after the position may have expired."""
        readable = self._readable
        if isinstance(readable.position, After) or not self._begins:
            await self._stream.check_retention(
                self.shard_id, self._begin, readable.seen
            )

    # --- limits ----------------------------------------------------------------------

    @property
    def sample(self) -> Sample | None:
        """The probed records as a Sample for ``admit()``; None if there are none."""
        result = self.probed
        if result is None or not result.records:
            return None
        return Sample(result.records, result.at_tip)

    def sample_up_to(self, until: float) -> Sample | None:
        """Return the part of the sample that a batch with this end may read.

        This is the whole sample if a closed shard ended before that time. Records that
        seem to have arrived later are included, as arrival times may be out of order.
        """
        sample = self.sample
        if sample is None:
            return None
        if self.ends_whole and self.ended_by <= until:
            return sample.as_before(until)
        return sample.up_to(until)

    # --- choosing the end ------------------------------------------------------------

    def hold(self) -> None:
        """Undo an end that was chosen without a probe."""
        if self.probed is None:
            self.end = self._begin = self._readable.position

    async def cut(self, share: Share | None) -> None:
        """Choose where the batch ends. If there is a share, it limits the batch."""
        result = self.probed
        if result is None or not result.records:
            return
        count = len(result.records) if share is None else share.records
        until = math.inf if share is None else share.until
        if count == 0:
            self.behind_seconds = max(0.0, self._now - result.records[0].arrived_at)
            return
        last = result.records[count - 1]
        if count == len(result.records) and result.at_tip:
            closed = result.closed or self.ends_whole
            self._end_at(TipResult(last, at_tip=True, closed=closed))
            self._probe.keep_after(last, result)
        elif count < len(result.records) or until is None:
            self._end_at(TipResult(last))
            self._probe.measure(last, result)
        elif until > self._now:
            await self._go_to_tip(result)
        else:
            await self._go_up_to(result, until)

    async def _go_to_tip(self, result: ProbeResult) -> None:
        if self.ends_whole:
            self.end = End(result.records[-1].arrived_at)
            return
        if isinstance(self._target, After):
            self.end = self._target
            return
        quiet = self._quiet_since is not None
        now = self._quiet_since or self._now - CUT_SECONDS
        try:
            tip = await find_tip(
                self._stream, self._probe, result, now, known_quiet=quiet
            )
        except (SourceUnavailableError, ExpiredIteratorError):
            tip = TipResult(result.records[-1])
        self._end_at(tip)

    async def _go_up_to(self, result: ProbeResult, until: float) -> None:
        """End the batch near the last record that arrived up to a time.

        Errors are retried, since this shard must not stay behind the other shards.
        """
        if self.ends_whole and self.ended_by <= until:
            self.end = End(result.records[-1].arrived_at)
            return
        if isinstance(self._target, After) and self._target.seen <= until:
            self.end = self._target
            return
        result = await last_until(self._stream, self.shard_id, result, until)
        last = result.records[-1]
        if result.iterator is not None:
            self._probe.keep_after(last, result)
        at_tip = result.at_tip and result.iterator is not None
        tip = TipResult(last, at_tip, result.closed)
        if isinstance(self._target, After):
            tip = tip.within(self._target)
        self._end_at(tip)

    def _end_at(self, tip: TipResult) -> None:
        arrived = tip.last.arrived_at
        now = self._now
        if tip.closed:
            self.end = End(arrived)
            return
        if tip.at_tip and not isinstance(self._target, After):
            seen = max(arrived, now - SEEN_SLACK_SECONDS)
            self._probe.note_tip(After(tip.last.position, seen), now)
        else:
            seen = arrived
            self.behind_seconds = 0.0 if tip.at_tip else max(0.0, now - arrived)
        self.end = After(tip.last.position, seen)

    # --- positions -------------------------------------------------------------------

    @property
    def restarted_at(self) -> ShardPosition | None:
        """Return where the batch begins if the previous batch didn't end there."""
        if self._begin is self._readable.position or not self.moved:
            return None
        return self._begin

    @property
    def moved(self) -> bool:
        """True if the batch reads records of this shard or reaches its end."""
        return self.end is not self._readable.position

    @property
    def confirmed_position(self) -> ShardPosition | None:
        """Return the position with a later time if no record follows it, else None."""
        position = self._readable.position
        if self.moved or not self._is_quiet:
            return None
        seen = self._now - SEEN_SLACK_SECONDS
        seen = math.floor(seen * 1000) / 1000  # few digits keep the offset's JSON short
        if isinstance(position, After):
            return After(position.position, max(position.seen, seen))
        if not (self.is_stale or self._begins):
            return None
        start = getattr(position, "timestamp", None) or 0.0
        return Start(type="AT_TIMESTAMP", timestamp=max(start, seen))

    @property
    def is_stale(self) -> bool:
        """True if the position's time is so old that it must be renewed."""
        age = self._now - self._readable.seen
        return age > self._stream.retention_seconds * STALE_SHARE
