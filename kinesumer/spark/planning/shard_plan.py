"""Plans the end of a batch in one shard: probe, limit, choose."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.streams import Start
from kinesumer.spark.offsets.model import BEGINNING, After, At, End
from kinesumer.spark.planning.bounds import last_until
from kinesumer.spark.planning.data_loss import may_be_trimmed
from kinesumer.spark.planning.limits import Sample
from kinesumer.spark.planning.tip_search import TipBounds, TipResult, find_tip
from kinesumer.spark.runtime.event_loop import with_retries

if TYPE_CHECKING:
    from kinesumer.spark.offsets.model import ShardPosition
    from kinesumer.spark.planning.limits import Limits, Share
    from kinesumer.spark.planning.probe import ProbeResult, ShardProbe
    from kinesumer.spark.planning.shard_order import Readable
    from kinesumer.spark.planning.stream_state import PlanContext, StreamState

MAX_SAMPLED = 2_000
JUMP_RECORDS = 3
FRESH_SECONDS = 10.0
"""Many records may follow a position that is older than this."""
CUT_SECONDS = 0.25
"""Records younger than this wait for the next batch if a shard has many."""
STALE_SHARE = 1 / 24
"""A quiet shard's position is stored again after this share of the retention. A query
may be stopped for the rest of it."""
SEEN_SLACK_SECONDS = 60.0
"""The maximum difference of arrival times and the estimated service clock."""


class ShardPlan:
    """The plan of one shard for one trigger."""

    def __init__(
        self,
        stream: StreamState,
        readable: Readable,
        context: PlanContext,
        target: ShardPosition | None,
        *,
        begins: bool = False,
    ) -> None:
        self.shard_id = readable.shard.shard_id
        self.place: ShardPosition = readable.place
        """The end of the batch in this shard; its begin if nothing is to be read."""
        self.lost = False
        """True if Kinesis no longer knows the shard."""
        self.probed: ProbeResult | None = None
        self.behind_seconds = 0.0
        self.refused = False
        """True if Kinesis refused the probe."""
        self.lags = False
        """True if there may have been a backlog before the probe."""
        self.ended_by = math.inf
        """A time before which the last record of a closed shard arrived."""
        self._stream, self._readable, self._context = stream, readable, context
        self._target = target
        self._begins = begins
        """True if this is the query's first batch: nothing before it can be lost."""
        self._begin: ShardPosition = readable.place
        self._sample = 0
        self._quiet_since: float | None = None
        self._is_quiet = False
        """True if Kinesis has no record after the position, whatever the target is."""

    # --- looking ---------------------------------------------------------------------

    async def observe(self, limits: Limits, *, together: bool = False) -> None:
        """Probe the next records of the shard.

        With ``together``, other shards may limit the batch even if no option does.
        """
        if limits.any:
            most = MAX_SAMPLED if limits.rows is None else limits.rows
            self._sample = min(most + 1, MAX_SAMPLED)
        if isinstance(self._target, Start) and not self.is_stale:
            return
        try:
            await self._check_retention()
            self.lags = self._now - self.since > self._context.skew_seconds
            shortcut = not (limits.any or together or self.lags)
            if shortcut and self.ends_whole:
                await self._find_first_record()
                if not self.lost:
                    self.place = End(self._readable.seen)
                return
            if shortcut and await self._jump():
                await self._find_first_record()
                return
            self.probed = await self._probe_next()
        except SourceUnavailableError as error:
            if self._context.must_succeed:
                raise
            self._stream.refused(self._probe, error)
            self.refused = True
            return
        self._probe.failing_since = None
        result = self.probed
        if isinstance(self._target, Start) and not self._is_quiet:
            self.probed = None  # the records came after the target was chosen
            return
        if result is not None and result.records:
            self._stream.learn(self.shard_id, result)
            self._begin_at(result)
        elif (
            result is not None and result.at_tip and (result.closed or self.ends_whole)
        ):
            self.place = End(self._readable.seen)

    @property
    def _probe(self) -> ShardProbe:
        return self._stream.probe(self.shard_id)

    @property
    def _now(self) -> float:
        return self._context.service.earliest()

    @property
    def since(self) -> float:
        """A time before which no unread record arrived."""
        result, stream = self.probed, self._stream
        if result is not None and result.records:
            return result.records[0].arrived_at
        oldest = self._now - stream.retention_seconds
        oldest = max(oldest, stream.info.created_at)
        place = self._readable.place
        if place == BEGINNING:
            return oldest
        return max(oldest, self._readable.seen, self._probe.empty_until(place))

    @property
    def ends_whole(self) -> bool:
        """A closed shard is read to its end unless a limit or a target forbids it."""
        if self._target is not None:
            return isinstance(self._target, End)
        return self._readable.shard.closed

    async def _jump(self) -> bool:
        """End at a record that has just arrived, without a probe of those before."""
        if self._target is not None or not self._expects_much():
            return False
        now = self._now
        fresh = self._probe.records_per_second is None
        few = self._stream.sample() if fresh else JUMP_RECORDS
        try:
            there = await self._probe.at(now - CUT_SECONDS, few)
            if fresh and there.near_tip and not there.at_tip:
                there = await self._probe.further(there, MAX_SAMPLED)
        except (ShardMissingError, ExpiredIteratorError):
            return False
        if not there.records or not there.records[-1].lies_after(self._begin):
            if there.at_tip:
                self._quiet_since = now - CUT_SECONDS
            return False
        last = there.records[-1]
        self._end_at(TipResult(last, there.at_tip, there.closed))
        self._probe.keep_after(last, there)
        if fresh:
            self._stream.learn(self.shard_id, there)
        return True

    def _expects_much(self) -> bool:
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
            self._report_loss("Kinesis no longer knows the shard")
            self.lost = True
            return None
        self._is_quiet = result.at_tip and not result.records
        if self._is_quiet:
            self._probe.note_tip(self._readable.place, self._now)
        if isinstance(self._target, After):
            return result.up_to(self._target.position)
        return result

    def _restart(self, error: TrimmedPositionError) -> Start:
        """Return the position after a record that has itself expired."""
        readable, now = self._readable, self._context.service.latest()
        if may_be_trimmed(readable.seen, self._stream.retention_seconds, now):
            self._report_loss(f"retention has passed them ({error})")
            return BEGINNING
        # Whatever came after it arrived later than what is known to lie before it.
        return Start(type="AT_TIMESTAMP", timestamp=readable.seen)

    async def _find_first_record(self) -> None:
        """Probe the first record of a batch whose end is known already."""
        if isinstance(self._begin, Start):
            result = await self._probe_next()
            if result is not None:
                self._begin_at(result)

    def _begin_at(self, result: ProbeResult) -> None:
        """Begin at the first probed record, which must exist when the batch is read."""
        if isinstance(self._begin, Start) and result.records:
            first = result.records[0]
            self._begin = At(first.position.sequence_number, first.arrived_at)

    async def _probe_with_retries(self) -> ProbeResult:
        async def ask() -> ProbeResult:
            find = self._probe.next_after if self.lags else self._probe.after
            result = await find(self._begin, self._stream.sample())
            return await self._look_further(result)

        if self._context.must_succeed or self._begins:
            return await with_retries(ask, self._context.clock)
        return await ask()

    async def _look_further(self, result: ProbeResult) -> ProbeResult:
        """Probe more records if a limit may lie in them, to keep the limit exactly."""
        if result.records and not result.at_tip and self._sample:
            self._stream.learn(self.shard_id, result)
            wanted = self._stream.sample(self._sample) - len(result.records)
            if wanted > 0:
                return await self._probe.further(result, wanted)
        return result

    async def _check_retention(self) -> None:
        """Report a loss if retention may have passed the position."""
        readable, stream = self._readable, self._stream
        if self._begins and not isinstance(readable.place, After):
            return
        loss = self._context.loss
        await stream.check_retention(self.shard_id, self._begin, readable.seen, loss)

    def _report_loss(self, reason: str) -> None:
        arn = self._stream.info.arn
        self._context.loss.report(arn, self.shard_id, self._begin, reason)

    # --- limits ----------------------------------------------------------------------

    @property
    def sample(self) -> Sample | None:
        """The records that limits apply to; None if there is nothing to read."""
        result = self.probed
        if result is None or not result.records:
            return None
        return Sample(result.records, result.at_tip)

    def sample_up_to(self, until: float) -> Sample | None:
        """Return the records that limits apply to, in a batch that ends at a time.

        A closed shard that ended before is read whole, whatever the order of its
        arrival times is.
        """
        sample = self.sample
        if sample is None:
            return None
        if self.ends_whole and self.ended_by <= until:
            return sample.as_before(until)
        return sample.up_to(until)

    # --- cutting ---------------------------------------------------------------------

    def hold(self) -> None:
        """Undo an end that was chosen without regard to other shards."""
        if self.probed is None:
            self.place = self._begin = self._readable.place

    async def cut(self, share: Share | None) -> None:
        """Choose the batch's end, within the shard's share if there are limits."""
        result = self.probed
        if result is None:
            return
        if not result.records:
            return
        if share is not None and share.records == 0:
            self.behind_seconds = max(0.0, self._now - result.records[0].arrived_at)
            return
        if share is not None and share.records < len(result.records):
            last = result.records[share.records - 1]
            self._end_at(TipResult(last))
            self._probe.measure(last, result)
        elif result.at_tip:
            last = result.records[-1]
            closed = result.closed or self.ends_whole
            self._end_at(TipResult(last, at_tip=True, closed=closed))
            self._probe.keep_after(last, result)
        else:
            await self._go_beyond(result, share)

    async def _go_beyond(self, result: ProbeResult, share: Share | None) -> None:
        until = math.inf if share is None else share.until
        if until is None:
            self._end_at(TipResult(result.records[-1]))
            self._probe.measure(result.records[-1], result)
        elif until > self._now:
            await self._go_to_tip(result)
        else:
            await self._go_up_to(result, until)

    async def _go_to_tip(self, result: ProbeResult) -> None:
        if self.ends_whole:
            self.place = End(result.records[-1].arrived_at)
            return
        if isinstance(self._target, After):
            self.place = self._target
            return
        quiet = self._quiet_since is not None
        now = self._quiet_since or self._now - CUT_SECONDS
        stream = self._stream
        bound = TipBounds(now, stream.sample(), stream.ahead, known_quiet=quiet)
        try:
            reached = await find_tip(self._probe, result, bound)
        except (SourceUnavailableError, ExpiredIteratorError):
            reached = TipResult(result.records[-1])
        self._end_at(reached)

    async def _go_up_to(self, result: ProbeResult, until: float) -> None:
        """End at about the last record that arrived up to a time.

        Retry on errors, since other shards advance to the same time.
        """
        if self.ends_whole and self.ended_by <= until:
            self.place = End(result.records[-1].arrived_at)
            return
        if isinstance(self._target, After) and self._target.seen <= until:
            self.place = self._target
            return
        there = await last_until(
            self._stream, self.shard_id, self._context, result, until
        )
        last, more = there.records[-1], there.iterator
        if more is not None:
            self._probe.keep_after(last, there)
        at_tip = there.at_tip and more is not None
        reached = TipResult(last, at_tip, there.closed)
        if isinstance(self._target, After):
            reached = reached.within(self._target)
        self._end_at(reached)

    def _end_at(self, reached: TipResult) -> None:
        arrived = reached.last.arrived_at
        now = self._now
        if reached.closed:
            self.place = End(arrived)
            return
        if reached.at_tip and not isinstance(self._target, After):
            seen = max(arrived, now - SEEN_SLACK_SECONDS)
            self._probe.note_tip(After(reached.last.position, seen), now)
        else:
            seen = arrived
            self.behind_seconds = 0.0 if reached.at_tip else max(0.0, now - arrived)
        self.place = After(reached.last.position, seen)

    # --- what stays ------------------------------------------------------------------

    @property
    def restarted_at(self) -> ShardPosition | None:
        """Return the batch's begin if it differs from the end of the previous batch."""
        if self._begin is self._readable.place or not self.moved:
            return None
        return self._begin

    @property
    def moved(self) -> bool:
        """True if the batch reads records of this shard, or ends it."""
        return self.place is not self._readable.place

    @property
    def confirmed_position(self) -> ShardPosition | None:
        """Return the same position with a new time; None unless nothing is new."""
        readable = self._readable
        if self.moved or not self._is_quiet:
            return None
        seen = self._now - SEEN_SLACK_SECONDS
        seen = math.floor(seen * 1000) / 1000  # short in the offset's text
        if isinstance(readable.place, After):
            return After(readable.place.position, max(readable.place.seen, seen))
        if not (self.is_stale or self._begins):
            return None
        start = getattr(readable.place, "timestamp", None) or 0.0
        return Start(type="AT_TIMESTAMP", timestamp=max(start, seen))

    @property
    def is_stale(self) -> bool:
        """True if the position must be stored again before retention passes it."""
        age = self._now - self._readable.seen
        return age > self._stream.retention_seconds * STALE_SHARE
