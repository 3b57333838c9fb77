"""The rules that the rows of the state store must keep.

A shard's row is a fenced register: its epoch and its checkpoint only grow, and each
value was written by the one owner of its epoch. Times are compared only if one event
certainly ended before another began. Each rule yields the faults that it finds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from kinesumer.ops.history.index import Index, ShardHistory, State, of_each_shard
from kinesumer.ops.history.lines import BEGINNING, LEADER_ROW, MEMBER_ROW, text_of


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
    for before, state in _in_real_time(shard, margin):
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


def _in_real_time(shard: ShardHistory, margin: float) -> Iterator[tuple[State, State]]:
    """Yield each state with the newest one that was certainly seen before it."""
    current = [state for state in shard.states if state.is_current]
    ended = sorted(current, key=lambda state: state.call.ended)
    newest: State | None = None
    index = 0
    for state in current:  # by the beginning of the calls
        while (
            index < len(ended) and ended[index].call.ended + margin < state.call.began
        ):
            seen = ended[index]
            if newest is None or seen[1:4] > newest[1:4]:
                newest = seen
            index += 1
        if newest is not None:
            yield newest, state


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
    last: dict[str, tuple[int, int]] = {}
    writes = [c for c in index.histories.calls if c.is_applied]
    for call in sorted(writes, key=lambda call: call.ended):
        key, new = call.arguments["key"], call.arguments["set"]
        if not key[0].startswith(MEMBER_ROW) or "plan_version" not in new:
            continue
        for row in call.rows:
            plan = row.get("leader_epoch", 0), row.get("plan_version", 0)
            session = row.get("session", "")
            if plan < last.get(session, plan):
                yield f"session {session} has plan {plan} after {last[session]}"
            last[session] = plan
