"""The rules that deliveries must keep. Each yields the faults that it finds.

The known records of a shard are those that a producer or any delivery names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from kinesumer.ops.history.index import (
    Commit,
    Index,
    ShardHistory,
    flat,
    of_each_shard,
)
from kinesumer.ops.history.lines import BEGINNING, LAST, Delivery, Position, text_of


@of_each_shard
def not_owned(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield deliveries in an epoch that the process had not claimed."""
    began = defaultdict[tuple[int, str], list[float]](list)
    for claim in shard.claims:
        began[claim.epoch, claim.call.process].append(claim.call.began)
    for epoch, deliveries in shard.delivered.items():
        for each in deliveries:
            if each.at < min(began[epoch, each.process], default=each.at + 1):
                yield (
                    f"{each.process} delivered {text_of(each.positions[0])} in epoch "
                    f"{epoch}, which it had not claimed"
                )
                break


@of_each_shard
def too_late(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield deliveries after another process had claimed the shard."""
    applied = [claim for claim in shard.claims if claim.call.is_applied]
    for epoch, deliveries in shard.delivered.items():
        later = {
            process: min(
                (
                    claim.call.ended
                    for claim in applied
                    if claim.epoch > epoch and claim.call.process != process
                ),
                default=inf,
            )
            for process in {each.process for each in deliveries}
        }
        for each in deliveries:
            late = each.at - later[each.process] - margin
            if late > 0:
                yield (
                    f"{each.process} delivered {text_of(each.positions[0])} of epoch "
                    f"{epoch} {late:.3f} s after another process had claimed the shard"
                )


@of_each_shard
def after_death(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield deliveries by a session that was known to be dead."""
    sessions = {
        (claim.epoch, claim.call.process): claim.session for claim in shard.claims
    }
    for epoch, deliveries in shard.delivered.items():
        for each in deliveries:
            session = sessions.get((epoch, each.process), "")
            late = each.at - index.died_at.get(session, each.at) - margin
            if late > 0:
                yield (
                    f"{each.process} delivered {text_of(each.positions[0])} "
                    f"{late:.3f} s after its session {session} was marked dead"
                )


@of_each_shard
def out_of_order(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield records that user code first got after a later one, unless after a seek."""
    jumps = sorted(shard.jumps)
    last: dict[tuple[int, str], Position] = {}
    seen: set[tuple[int, Position]] = set()
    for epoch, position, key in _in_order(shard):
        era = bisect_right(jumps, epoch)
        if (era, position) in seen:
            continue
        seen.add((era, position))
        before = last.setdefault((era, key), position)
        if position < before:
            found = f"{text_of(position)} was delivered after {text_of(before)}"
            yield f"in epoch {epoch}, {found}"
        last[era, key] = max(position, before)


def _in_order(shard: ShardHistory) -> Iterator[tuple[int, Position, str]]:
    """Yield epoch, position and key of all deliveries that have an order.

    With acknowledgements by asking, the order is that of the shard: the key is "".
    Otherwise it is that of each partition key: handlers may run in parallel.
    """
    for epoch, deliveries in sorted(shard.delivered.items()):
        for each in deliveries:
            keys = each.keys or ("",) * len(each.positions)
            for position, key in zip(each.positions, keys, strict=True):
                if each.acks_by_asking or key:
                    yield epoch, position, "" if each.acks_by_asking else key


@of_each_shard
def repeats(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield records that an epoch delivered again although they were done."""
    for epoch, deliveries in shard.delivered.items():
        done = _first_times(shard, epoch, shard.done, shard.given_up)
        seen: set[Position] = set()
        for position, each in flat(deliveries):
            is_done = each.at > done.get(position, each.at)
            if each.acks_by_asking:
                is_done = position in seen
            seen.add(position)
            if is_done:
                found = f"{text_of(position)} again, which was done"
                yield f"epoch {epoch} delivered {found}"


@of_each_shard
def passed_over(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield records that a checkpoint passed before user code had got them."""
    known = sorted(shard.produced | shard.handled)
    for epoch in sorted({commit.epoch for commit in shard.commits}):
        at = _first_times(shard, epoch, shard.delivered, shard.given_up)
        for commit, position in _passed(shard, epoch, known):
            if at.get(position, inf) > commit.call.began:
                yield f"{_passing(commit, position)}, which had not been delivered"


def _passed(
    shard: ShardHistory, epoch: int, records: list[Position]
) -> Iterator[tuple[Commit, Position]]:
    """Yield each record with the first checkpoint of an epoch that passed it."""
    first = _lower_bound(shard, epoch)
    commits = [each for each in shard.commits if each.epoch == epoch]
    place = bisect_right(records, first)
    for commit in sorted(commits, key=lambda commit: commit.position):
        stop = bisect_right(records, commit.position)
        for position in records[place:stop]:
            yield commit, position
        place = max(place, stop)


def _passing(commit: Commit, position: Position) -> str:
    places = f"{text_of(commit.position)} passed {text_of(position)}"
    return f"in epoch {commit.epoch} the checkpoint {places}"


def _first_times(
    shard: ShardHistory, epoch: int, *lists: dict[int, list[Delivery]]
) -> dict[Position, float]:
    """Return when something first happened to each record of an epoch."""
    found: dict[Position, float] = {}
    for epochs in lists:
        for position, each in flat(epochs.get(epoch, ())):
            found[position] = min(each.at, found.get(position, each.at))
    return found


def _lower_bound(shard: ShardHistory, epoch: int) -> Position:
    """Return the position after which an epoch has to read every known record."""
    states = [state for state in shard.states if state.epoch == epoch]
    first = min((state.position for state in states), default=BEGINNING)
    starts = {state.start for state in states}
    has_moved = any(jump <= epoch for jump in shard.jumps)
    if first != BEGINNING or (starts == {"TRIM_HORIZON"} and not has_moved):
        return first
    # The epoch began at some time. After a seek, it may also have found its first
    # records removed. So only the records after the first delivered one are known.
    got = _first_times(shard, epoch, shard.delivered, shard.given_up)
    number, text, sub = min(got, default=LAST)
    return number, text, sub - 1


@of_each_shard
def not_done(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield records that a checkpoint passed before they were acknowledged."""
    for epoch, deliveries in shard.delivered.items():
        at = _first_times(shard, epoch, shard.done, shard.given_up)
        acked = {
            position for position, each in flat(deliveries) if not each.acks_by_asking
        }
        for commit, position in _passed(shard, epoch, sorted(acked)):
            if at.get(position, inf) > commit.call.began:
                yield f"{_passing(commit, position)}, which was not done"


@of_each_shard
def gaps(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield known records that a loop skipped between two records of an epoch."""
    known = sorted(shard.produced | shard.handled)
    for epoch, deliveries in shard.delivered.items():
        if not all(d.acks_by_asking for d in deliveries):
            continue
        got = sorted(_first_times(shard, epoch, shard.delivered, shard.given_up))
        before = _lower_bound(shard, epoch)
        for last, position in pairwise([before, *got]):
            low, high = bisect_right(known, last), bisect_right(known, position)
            if high - low > 1:
                yield (
                    f"epoch {epoch} delivered {text_of(position)} "
                    f"without {text_of(known[low])} before it"
                )


@of_each_shard
def lost(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield produced records that no client has got, though the checkpoint is later."""
    handled = shard.handled
    reached = max((state.position for state in shard.states), default=BEGINNING)
    has_ended = any(state.is_ended for state in shard.states)
    if not (shard.begins_at_horizon or handled) or shard.jumps:
        return
    first = BEGINNING if shard.begins_at_horizon else min(handled)
    for position in sorted(shard.produced - handled):
        if first < position and (has_ended or position <= reached):
            yield f"{text_of(position)} was never delivered"


def children_first(index: Index, margin: float) -> Iterator[str]:
    """Yield shards that were read before a parent had ended."""
    for shard in index.shards.values():
        app, arn, _ = shard.shard
        begun = [each for one in shard.delivered.values() for each in one]
        first = min(begun, default=None, key=lambda each: each.at)
        parents = {name for state in shard.states for name in state.parents}
        for name in sorted(parents):
            parent = index.shards.get((app, arn, name))
            if first is None or parent is None or parent.jumps or shard.jumps:
                continue
            if parent.ended_at is None or parent.ended_at > first.at + margin:
                yield f"{shard.name} was read before its parent {name} had ended"
