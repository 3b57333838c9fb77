"""The rules that the rows of the state store must keep.

A shard's row is a fenced register: its epoch and its checkpoint only grow, and each
value was written by the one owner of its epoch. Times are compared only if one event
certainly ended before another began. Each rule yields the faults that it finds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from kinesumer.ops.history.index import Index, ShardHistory, of_each_shard
from kinesumer.ops.history.lines import (
    BEGINNING,
    LEADER_ROW,
    MEMBER_ROW,
    Call,
    text_of,
)

V = TypeVar("V")


def contradictions(index: Index, margin: float) -> Iterator[str]:
    """Yield lines that contradict one another."""
    yield from index.histories.faults


@of_each_shard
def two_owners(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield epochs of a shard that two sessions owned."""
    owners = defaultdict[int, set[str]](set)
    for state in shard.states:
        if state.owner:
            owners[state.epoch].add(state.owner)
    for claim in shard.claims:
        if claim.call.is_applied:
            owners[claim.epoch].add(claim.session)
    for epoch, sessions in owners.items():
        if len(sessions) > 1:
            names = ", ".join(sorted(sessions))
            yield f"epoch {epoch} has several owners: {names}"


@of_each_shard
def rows_gone_back(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield states of a row that are older than a state that was seen before them."""
    jumps = sorted(shard.jumps)
    current = [(state.call, state) for state in shard.states if state.is_current]
    for before, state in _in_real_time(current, lambda state: state[1:4], margin):
        if state.epoch < before.epoch:
            seen = f"seen by {state.call.process} after epoch {before.epoch}"
            yield f"epoch {state.epoch} was {seen}"
        elif state.position < before.position or (
            before.is_ended and not (state.is_ended or shard.is_reopened)
        ):
            first = bisect_right(jumps, before.epoch)
            if first == len(jumps) or jumps[first] > state.epoch:
                seen = f"seen by {state.call.process} after {before.place}"
                yield f"the checkpoint {state.place} was {seen}"


def _in_real_time(
    seen: Sequence[tuple[Call, V]], rank: Callable[[V], Any], margin: float
) -> Iterator[tuple[V, V]]:
    """Yield each value with the newest one that was certainly seen before it."""
    ended = sorted(seen, key=lambda each: each[0].ended)
    newest: V | None = None
    index = 0
    for call, value in sorted(seen, key=lambda each: each[0].began):
        while index < len(ended) and ended[index][0].ended + margin < call.began:
            earlier = ended[index][1]
            if newest is None or rank(earlier) > rank(newest):
                newest = earlier
            index += 1
        if newest is not None:
            yield newest, value


@of_each_shard
def foreign_commits(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield checkpoints that a process stored in an epoch that it did not own."""
    for commit in shard.commits:
        owners = shard.owners(commit.epoch)
        if owners and commit.call.process not in owners:
            yield (
                f"{commit.call.process} stored {text_of(commit.position)} in epoch "
                f"{commit.epoch}, which belongs to {', '.join(sorted(owners))}"
            )


@of_each_shard
def unknown_values(index: Index, shard: ShardHistory, margin: float) -> Iterator[str]:
    """Yield checkpoints that no process has written."""
    if shard.unexplained or not shard.states:
        return
    first = min(shard.states, key=lambda state: state.call.ended)
    known = shard.written | {first.position, BEGINNING}
    for position in {state.position for state in shard.states} - known:
        yield f"no process wrote the checkpoint {text_of(position)}"


def two_leaders(index: Index, margin: float) -> Iterator[str]:
    """Yield leader epochs that two sessions had."""
    sessions = defaultdict[tuple[str, int], set[str]](set)
    for call in index.histories.calls:
        for row in call.rows:
            if row["pk"].startswith(LEADER_ROW):
                epoch = row["pk"], row.get("leader_epoch", 0)
                sessions[epoch].add(row.get("session", ""))
    for (_, number), names in sessions.items():
        if len(names) > 1:
            leaders = ", ".join(sorted(names))
            yield f"leader epoch {number} has several leaders: {leaders}"


def plans_gone_back(index: Index, margin: float) -> Iterator[str]:
    """Yield plans that a member's row had after a later plan."""
    plans = defaultdict[str, list[tuple[Call, tuple[int, int]]]](list)
    for call in index.histories.calls:
        if not call.is_applied or "plan_version" not in call.arguments["set"]:
            continue
        if call.arguments["key"][0].startswith(MEMBER_ROW):
            for row in call.rows:
                plan = row.get("leader_epoch", 0), row.get("plan_version", 0)
                plans[row.get("session", "")].append((call, plan))
    for session, seen in plans.items():
        for before, plan in _in_real_time(seen, lambda plan: plan, margin):
            if plan < before:
                yield f"session {session} has plan {plan} after {before}"
