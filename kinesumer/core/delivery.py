"""Decide which records user code gets next, and which records it has finished.

This is a state machine without clock, tasks or I/O, like ``h11`` for HTTP. A driver
reports events by calling methods: a batch arrived, a loop asked for records, a holder
of records ended, and the like. ``next()`` says what the driver does for a loop: hand
out records, wait, or finish. ``take_effects()`` says what else is due: free bytes,
count records, commit, wake the waiting loops, and log.

For example, shard A has two batches of two records. A loop asks, and gets records 1 and
2. It asks again: now records 1 and 2 are done, their bytes are free, and it gets 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Generic, NamedTuple

from kinesumer.core.handout import FetchedBatch, Handout, Loop, Phase, S
from kinesumer.core.turns import Turns


class HandOver(NamedTuple, Generic[S]):
    """Give the loop the batch's rest, one by one or whole."""

    handout: Handout[S]


class Wait(Enum):
    """Wait, and call ``next()`` again."""

    BATCH = auto()  # until a batch arrives, or until ``Signal.WAKE``
    LEASE = auto()  # until the lease is valid


class NoteDue(NamedTuple, Generic[S]):
    """Let the shard's row name the record that user code gets next."""

    shard: S


class AwaitStored(NamedTuple, Generic[S]):
    """Wait until the position of the shard's isolated record is stored."""

    shard: S


class Finish(NamedTuple):
    """End the loop, with an error if there is one."""

    error: BaseException | None


class Free(NamedTuple, Generic[S]):
    """User code has finished records that took these bytes."""

    shard: S
    size: int


class Processed(NamedTuple, Generic[S]):
    """Count records that were handed out."""

    shard: S
    records: int
    data_bytes: int


class Unfinished(NamedTuple, Generic[S]):
    """Log that a holder ended with records that aren't done, and their fate."""

    shard: S
    records: int
    fate: str
    error: BaseException


class Signal(Enum):
    """Effects without details."""

    COMMIT = auto()  # commit soon
    WAKE = auto()  # let waiting loops call ``next()``


Action = HandOver[S] | Wait | NoteDue[S] | AwaitStored[S] | Finish
Effect = Free[S] | Processed[S] | Unfinished[S] | Signal


class Delivery(Generic[S]):
    """The batches that were taken from the buffer, and the loops that have them.

    With ``acks_by_asking``, a request for the next record acknowledges all records
    before it, so only one loop may run at a time. Otherwise each loop has its own
    batch. After ``limit`` records, all loops end; None sets no limit.
    """

    def __init__(self, *, acks_by_asking: bool, limit: int | None = None) -> None:
        self.acks_by_asking = acks_by_asking
        self.handouts: list[Handout[S]] = []  # the unfinished batches
        self.records = 0  # records handed out in batches that are finished
        self.last: Loop | None = None  # the loop that asked last
        # When the last loop was cancelled or left; None while a loop runs.
        self.left_since: float | None = None
        self.is_closed = False
        self._error: BaseException | None = None
        self._most = math.inf if limit is None else limit
        # The isolated shard whose record user code received last.
        self._isolated: S | None = None
        self._effects: list[Effect[S]] = []

    def take_effects(self) -> list[Effect[S]]:
        """Return what the driver has to do, in order, and forget it."""
        effects, self._effects = self._effects, []
        return effects

    # --- what a loop asks -------------------------------------------------------------

    def asked(self, loop: Loop, holder: object | None, now: float) -> None:
        """Finish the records that the holder of a loop has received."""
        loop.runs_in = holder
        self.last, self.left_since = loop, None
        for handout in list(self.handouts):
            if self.acks_by_asking or loop.is_of_holder_of(handout.loop):
                handout.passed(now)
                if self.is_closed or not handout.rest:
                    self._end(handout)
                else:
                    self._count_orphaned(handout.shard)

    def next(self, loop: Loop, turns: Turns[S, Any], now: float) -> Action[S]:
        """Return what the driver does for a loop that has asked.

        ``turns`` has the batches that haven't been taken from the buffer.
        """
        if self._isolated is not None:
            if self._is_unstored(self._isolated):
                return AwaitStored(self._isolated)
            self._isolated = None
        if self.is_closed:
            return Finish(self._error)
        if self._remaining <= 0:
            self.left_since = now
            self._effects.append(Signal.WAKE)
            return Finish(None)
        handout = self._next_free(turns)
        if handout is None:
            return Wait.BATCH
        shard = handout.shard
        if not shard.lease.permits(now):
            return Wait.LEASE
        if shard.suspects is not None and shard.suspects.due is not None:
            return NoteDue(shard)
        return self._hand_over(handout, loop, turns, now)

    def _is_unstored(self, shard: S) -> bool:
        """Return whether an isolated record's position must be stored first.

        If another record killed the process before that, the row would name both.
        """
        if shard.suspects is None or not shard.suspects.is_in_turn:
            return False
        # A record that was kept back isn't done, and is handed out again.
        return not (shard.revoked or self.is_closed) and shard.is_finished

    def _next_free(self, turns: Turns[S, Any]) -> Handout[S] | None:
        """Return the free batch that is next in turn, or None if none is.

        A batch in ``turns`` may be next. Batches of revoked shards are dropped.
        """
        if not self.handouts:  # usual, and checked without a call
            return None
        first, turn = None, turns.next_turn
        for handout in list(self.handouts):
            if not handout.is_free:
                continue
            if handout.shard.revoked:
                handout.shard.dropped += handout.orphaned()
                self._end(handout)
            elif (own := turns.last_turn(handout.shard)) <= turn:
                if first is None or own < turn:
                    first, turn = handout, own
        return first

    def _hand_over(
        self,
        handout: Handout[S],
        loop: Loop,
        turns: Turns[S, Any],
        now: float,
    ) -> HandOver[S]:
        shard, remaining = handout.shard, self._remaining
        if handout.rest > remaining:
            self._split(handout, int(remaining))
        handout.claim(loop, now)
        turns.begin(shard)
        if shard.suspects is not None and self.acks_by_asking:
            self._isolated = shard
        return HandOver(handout)

    def arrived(self, batch: FetchedBatch[S]) -> None:
        """Add a batch that was taken from the buffer."""
        shard = batch.owned
        if not shard.revoked:
            first = shard.progress.deliver(batch.records, batch.end)
            if batch.records:
                offsets = range(first, first + len(batch.records))
                self.handouts.append(Handout(batch, offsets))
                return
        self._effects.append(Free(shard, batch.size))

    def skipped(self) -> None:
        """Don't count a record that was handed out, since user code doesn't get it."""
        self._most += 1

    @property
    def _remaining(self) -> float:
        """The number of records that may still be handed out."""
        if self._most == math.inf:
            return math.inf
        return self._most - self.records - sum(h.claimed for h in self.handouts)

    # --- the ends of loops, holders and the delivery ----------------------------------

    def acked(self, now: float) -> None:
        """Finish what the loop that asked last has, without a request."""
        if self.last is not None:
            self.asked(self.last, self.last.runs_in, now)
        self.left_since = now

    def cancelled(self, now: float) -> None:
        """Record that a loop's request was cancelled."""
        self.left_since = now

    def left(self, loop: Loop, now: float) -> None:
        """Release the bytes of a closed loop's records.

        With ``acks_by_asking``, the loop's last record stays unfinished until the next
        request acknowledges it.
        """
        if self.acks_by_asking:
            return
        for handout in list(self.handouts):
            if handout.loop is loop:
                handout.busy_since = None
                self.left_since = now
                if handout.rest:
                    self._split(handout)
                self._free(handout)
        self._effects.append(Signal.WAKE)

    def ended(
        self, holder: object, now: float, failure: Callable[[], BaseException | None]
    ) -> None:
        """Take back the records of a holder that has ended.

        ``failure`` returns the error that ended it. It is called only if the holder had
        records.
        """
        loops = {h.loop for h in self.handouts if h.loop is not None}
        gone = {loop for loop in loops if loop.ended(holder)}
        for handout in list(self.handouts):
            if handout.loop in gone and handout.phase is Phase.IN_HAND:
                if (error := failure()) is not None:
                    self._note_unfinished(handout, error)
                elif self.acks_by_asking and not self.is_closed:
                    continue  # the record may have gone to a holder that still runs
                self._take_back(handout, now)
        self._effects.append(Signal.WAKE)

    def _take_back(self, handout: Handout[S], now: float) -> None:
        self.left_since = now
        # With ``acks_by_asking``, the next request still acknowledges the record.
        if self.acks_by_asking:
            handout.abandon()
        else:
            handout.passed(now)
            handout.loop = None
            if not handout.rest:
                self._end(handout)
        self._count_orphaned(handout.shard)

    def _note_unfinished(self, handout: Handout[S], error: BaseException) -> None:
        """Keep the records that a failed holder didn't acknowledge."""
        left, shard = handout.unmarked(), handout.shard
        if not left:
            return
        if not self.acks_by_asking:
            self.handouts.insert(self.handouts.index(handout), handout.part(left))
        if self.is_closed or shard.revoked:
            fate = "the shard's next owner delivers them again"
        elif self.acks_by_asking:
            fate = "the next task that asks for records marks them as done"
        else:
            fate = "they are delivered again"
        self._effects.append(Unfinished(shard, len(left), fate, error))

    def close(self, error: BaseException | None = None) -> None:
        """End all loops. The first error is the one that they raise."""
        self.is_closed, self._error = True, self._error or error
        self._effects.append(Signal.WAKE)

    def reopen(self) -> None:
        """Allow loops again, after a failed start closed the delivery."""
        self.is_closed, self._error = False, None

    # --- progress ---------------------------------------------------------------------

    def sync_progress(self) -> None:
        """Update the shards' progress with the records that user code has finished."""
        for handout in self.handouts:
            self._sync(handout)
        # Each batch is asked once: a client of many shards may have one of each.
        orphaned: dict[S, int] = {}
        for handout in self.handouts:
            shard = handout.shard
            orphaned[shard] = orphaned.get(shard, shard.dropped) + handout.orphaned()
        for shard, count in orphaned.items():
            shard.set_orphaned(count)

    def has_records(self, shard: S, *, waiting: bool) -> bool:
        """Return whether user code has records of a shard, or gets more of them."""
        handouts = [handout for handout in self.handouts if handout.shard is shard]
        return bool(handouts) if waiting else any(h.in_hand for h in handouts)

    @property
    def busy_since(self) -> float | None:
        """The time at which user code received its oldest present record, or None."""
        since = [h.busy_since for h in self.handouts if h.busy_since is not None]
        return min(since, default=None)

    def _sync(self, handout: Handout[S]) -> None:
        count, size = handout.sync_progress(marks=self.acks_by_asking)
        if count:
            self._effects.append(Processed(handout.shard, count, size))

    def _count_orphaned(self, shard: S) -> None:
        own = [each.orphaned() for each in self.handouts if each.shard is shard]
        shard.set_orphaned(shard.dropped + sum(own))

    def _split(self, handout: Handout[S], more: int = 0) -> None:
        """Free the records that weren't handed out, except for ``more``."""
        self.handouts.insert(self.handouts.index(handout) + 1, handout.split(more))

    def _end(self, handout: Handout[S]) -> None:
        """Remove a finished batch, and free its bytes."""
        self._sync(handout)
        self.handouts.remove(handout)
        self._count_orphaned(handout.shard)
        self.records += handout.handed
        handout.end()
        self._free(handout)
        if handout.shard.wants_commit:
            self._effects.append(Signal.COMMIT)

    def _free(self, handout: Handout[S]) -> None:
        size, handout.size = handout.size, 0
        self._effects.append(Free(handout.shard, size))
