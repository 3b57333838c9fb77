"""Plans what the batch of one trigger reads in one stream: probes and searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, nextafter

from kinesumer.core.batch_plan import (
    Chosen,
    Ended,
    Observed,
    Search,
    confirmed,
    end,
    end_at,
    end_offset,
)
from kinesumer.core.batch_ranges import Limits, Probed, Readable, readable, vanished
from kinesumer.core.lineage import ancestors
from kinesumer.core.pacing import CAUGHT_UP_SECONDS
from kinesumer.core.progress import is_tip_due
from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import (
    BEGINNING,
    After,
    At,
    End,
    ShardPosition,
    StreamOffset,
    may_be_trimmed,
)
from kinesumer.model.streams import ShardKey, Start
from kinesumer.runtime.tasks import Retries
from kinesumer.spark.planning.probe import ShardProbe
from kinesumer.spark.planning.search import TipSearch
from kinesumer.spark.planning.stream_state import FIRST_SAMPLE, StreamState
from kinesumer.spark.process import PLAN_RETRIES, for_each

# Repeats no call. The next batch probes the shard again.
ONCE = Retries(())
MAX_SAMPLED = 2_000  # the maximum number of a shard's records that limits may need
# In one shard, a batch may end earlier than in the others: by up to NEAR_SECONDS, but
# not by more than NEAR_SHARE of the batch's time span. At the present time, records of
# the last CAUGHT_UP_SECONDS are left for the next batch if there are many.
NEAR_SECONDS, NEAR_SHARE = 10.0, 1 / 64
UNKNOWN_SHARD = "Kinesis no longer knows the shard"
# Where a run with Trigger.AvailableNow ends, by stream and shard. This run doesn't read
# a shard that has no target.
Targets = dict[str, dict[str, "ShardPosition"]]


class StreamPlan:
    """Plans what the batch of one trigger reads in one stream."""

    def __init__(
        self, stream: StreamState, before: StreamOffset, targets: Targets | None
    ) -> None:
        self.stream, self._before = stream, before
        # True in the query's first batch of the stream. Records that expired before
        # that batch are not lost.
        self._begins = bool(before.origin)
        own = None if targets is None else targets.get(stream.arn, {})
        self.readable: list[Readable] = readable(before, stream.shards, own)
        self.observed: dict[str, Observed] = {}
        self._ended: dict[str, Ended] = {}

    # --- observing -------------------------------------------------------------------

    async def observe(
        self, shard: Readable, limits: Limits, max_jump_seconds: float
    ) -> None:
        """Probe the next records of a shard.

        If many records are expected that arrived within ``max_jump_seconds``, probe
        only the newest ones.
        """
        stream, shard_id = self.stream, shard.shard.shard_id
        probe = stream.probe(shard_id)
        found = Observed(ShardKey(stream.arn, shard_id), shard, shard.position, 0.0)
        try:
            await self._check_retention(shard)
            probed = await self._jump(shard, probe, max_jump_seconds)
            if probed is not None:
                found = replace(found, probed=probed, is_jump=True)
            else:
                begin, probed = await self._probe(shard, probe, limits)
                found = self._found(replace(found, begin=begin), probed)
            probe.failing_since = None
        except ShardMissingError:
            stream.report_loss(shard_id, shard.position, UNKNOWN_SHARD)
            found = replace(found, is_lost=True)
        except (SourceUnavailableError, ExpiredIteratorError) as error:
            if shard.target is not None:  # the query can't end without this shard
                raise
            stream.refused(probe, error)
        if not found.since:
            found = replace(found, since=self._since(shard))
        self.observed[shard_id] = found

    def _since(self, shard: Readable) -> float:
        """Return a time before which no unread record of a shard arrived."""
        stream = self.stream
        oldest = stream.service.earliest() - stream.retention_seconds
        seen = 0.0 if shard.position == BEGINNING else shard.seen
        return max(oldest, stream.info.created_at, seen)

    async def _jump(
        self, shard: Readable, probe: ShardProbe, max_seconds: float
    ) -> Probed | None:
        """Probe the newest records if the sample would be a small part of the batch."""
        stream = self.stream
        now = stream.service.earliest()
        age = now - shard.seen
        rate = stream.records_per_second.get(probe.shard_id, 0.0)
        if not isinstance(shard.position, After) or shard.target is not None:
            return None
        if age > max_seconds or age * rate <= 2 * stream.sample():
            return None
        probed = await probe.at(now - CAUGHT_UP_SECONDS, FIRST_SAMPLE)
        if not probed.records or probed.records[-1].position <= shard.position.position:
            return None
        stream.learn(probe.shard_id, probed.records)
        return probed

    def _found(self, shard: Observed, probed: Probed) -> Observed:
        """Return a shard with the probed records, except those after its target."""
        if not probed.records:
            return replace(shard, probed=probed, is_quiet=probed.at_tip)
        target, begin = shard.shard.target, shard.begin
        if isinstance(target, After):
            probed = probed.up_to(target.position)
        elif isinstance(target, Start):
            # The records came after the target was chosen.
            probed = Probed((), None, at_tip=True)
        if not probed.records:
            return replace(shard, probed=probed)
        self.stream.learn(shard.key.shard_id, probed.records)
        first = probed.records[0]
        if isinstance(begin, Start):
            # Tasks notice if the batch's first record expires.
            begin = At(first.position.sequence_number, first.arrived_at)
        return replace(shard, begin=begin, since=first.arrived_at, probed=probed)

    async def _check_retention(self, shard: Readable) -> None:
        """Report data loss if records after the position may have expired."""
        if isinstance(shard.position, After) or not self._begins:
            shard_id = shard.shard.shard_id
            await self.stream.check_retention(shard_id, shard.position, shard.seen)

    async def _probe(
        self, shard: Readable, probe: ShardProbe, limits: Limits
    ) -> tuple[ShardPosition, Probed]:
        """Return where the batch begins, and the records that follow."""
        begin = shard.position
        may_wait = shard.target is not None or self._begins
        call = (PLAN_RETRIES if may_wait else ONCE).call
        try:
            return begin, await call(self._sample, probe, begin, limits)
        except TrimmedPositionError as error:
            begin = self._restart(shard, error)
        return begin, await call(self._sample, probe, begin, limits)

    def _restart(self, shard: Readable, error: TrimmedPositionError) -> Start:
        """Return where to begin instead if the record at the position has expired."""
        stream, now = self.stream, self.stream.service.latest()
        if may_be_trimmed(shard.seen, stream.retention_seconds, now):
            reason = f"retention has passed them ({error})"
            stream.report_loss(shard.shard.shard_id, shard.position, reason)
            return BEGINNING
        # No record after the position arrived before this time, so none is skipped.
        return Start(type="AT_TIMESTAMP", timestamp=shard.seen)

    async def _sample(
        self, probe: ShardProbe, begin: ShardPosition, limits: Limits
    ) -> Probed:
        """Probe a sample, and further records if the batch's limit may allow more."""
        stream = self.stream
        result = await probe.after(begin, stream.sample())
        if not (limits.any and result.records) or result.at_tip:
            return result
        stream.learn(probe.shard_id, result.records)
        most = MAX_SAMPLED if limits.rows is None else limits.rows + 1
        missing = stream.sample(min(most, MAX_SAMPLED)) - len(result.records)
        return await probe.further(result, missing) if missing > 0 else result

    async def first_arrivals(self, now: float) -> Mapping[ShardKey, float]:
        """Return when the descendants of the shards that may end in this batch begin.

        For each shard that may end, this is the time just before its descendants' first
        record, or ``now`` if they have no records.
        """
        stream, known = self.stream, self._before.shards
        parents = {shard.shard_id: shard.parents for shard in stream.shards}
        ending = {s.shard.shard_id for s in self.readable if s.ends}
        present = {s.shard.shard_id for s in self.readable}
        waiting = {
            shard.shard_id: ending & ancestors([shard.shard_id], parents)
            for shard in stream.shards
            if ending
            and shard.shard_id not in present
            and not isinstance(known.get(shard.shard_id), End)
        }
        found = dict.fromkeys(ending, now)

        async def find(shard_id: str) -> None:
            begin = await self._find_begin(shard_id, known.get(shard_id, BEGINNING))
            for root in waiting[shard_id]:
                found[root] = min(found[root], begin)

        await for_each([i for i, roots in waiting.items() if roots], find)
        begins = stream.first_arrivals
        stream.first_arrivals = {i: begins[i] for i in begins.keys() & waiting}
        return {ShardKey(stream.arn, i): begin for i, begin in found.items()}

    async def _find_begin(self, shard_id: str, position: ShardPosition) -> float:
        """Return the time just before a child's first record, or inf if it has none."""
        stream = self.stream
        if shard_id in stream.first_arrivals:
            return stream.first_arrivals[shard_id]
        probe = stream.probe(shard_id)
        try:
            result = await PLAN_RETRIES.call(probe.after, position, 1)
        except TrimmedPositionError:
            result = await PLAN_RETRIES.call(probe.after, BEGINNING, 1)
        except ShardMissingError:
            return inf
        if not result.records:
            return inf
        # A batch includes records that arrive exactly at its end. So that it excludes
        # this record, it must end a moment before.
        begin = nextafter(result.records[0].arrived_at, -inf)
        stream.first_arrivals[shard_id] = begin
        return begin

    # --- ending ----------------------------------------------------------------------

    async def finish(
        self, readable: Readable, chosen: Chosen, ended_by: float, now: float
    ) -> None:
        """Find where the batch ends in a shard."""
        shard_id = readable.shard.shard_id
        shard = self.observed[shard_id]
        ended = end(shard, chosen, ended_by, now)
        if isinstance(ended, Search):
            ended = await self._search(shard, ended.until, now)
        elif ended.last is not None and shard.probed is not None:
            self.stream.probe(shard_id).ends_at(ended.last, shard.probed)
        self._ended[shard_id] = ended

    async def _search(self, shard: Observed, until: float, now: float) -> Ended:
        """End the batch near the last record that arrived up to a time."""
        stream, probed = self.stream, shard.probed
        assert probed is not None
        if until > now:
            before, near = inf, CAUGHT_UP_SECONDS
        else:
            before = nextafter(until, inf)
            span = until - probed.records[0].arrived_at
            near = min(NEAR_SECONDS, span * NEAR_SHARE)
        search = TipSearch(stream, shard.key.shard_id, before, near)
        result = await search.find(probed) or probed
        last = result.records[-1]
        stream.probe(shard.key.shard_id).ends_at(last, result)
        at_tip = result.at_tip and result.iterator is not None
        return end_at(shard, last, now, at_tip=at_tip, closed=result.closed)

    def end(self, now: float) -> tuple[StreamOffset, bool]:
        """Return the positions after the batch, and whether Spark must log them."""
        stream, before = self.stream, self._before
        lost = {i for i, shard in self.observed.items() if shard.is_lost}
        for shard_id in vanished(before, stream.shards):
            stream.report_loss(shard_id, before.shards[shard_id], UNKNOWN_SHARD)
            lost.add(shard_id)
        self._note_ends()
        ends = {i: (self.observed[i], ended) for i, ended in self._ended.items()}
        renewed, is_due = {}, False
        for shard_id, (shard, ended) in ends.items():
            if ended.position is shard.shard.position:
                retention = stream.retention_seconds
                stale = is_tip_due(now, shard.shard.seen, retention)
                begins = self._begins
                position = confirmed(shard, is_stale=stale, begins=begins, now=now)
                if position is not None:
                    renewed[shard_id] = position
                    is_due = is_due or stale
        after = end_offset(before, stream.shards, ends, lost, renewed)
        moved = any(e.position is not s.shard.position for s, e in ends.values())
        return after, bool(lost or before.origin or moved or is_due)

    def _note_ends(self) -> None:
        """Keep the state of the open shards, and list the shards again if one ended."""
        stream = self.stream
        ended = {i for i, e in self._ended.items() if isinstance(e.position, End)}
        if ended:
            stream.reshards()
        stream.keep_only(self._ended.keys() - ended)
        for shard_id in self._ended.keys() - ended:
            if self.observed[shard_id].probed is not None:
                stream.lag_seconds[shard_id] = self._ended[shard_id].behind_seconds
