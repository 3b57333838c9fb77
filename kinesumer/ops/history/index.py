"""Sort what histories say by shard: the states of its row, its epochs, its records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kinesumer.ops.history.lines import (
    SHARD_ROW,
    Call,
    Delivery,
    Histories,
    Position,
    Shard,
    key_shard,
    position_of,
    row_position,
    row_shard,
    text_of,
)

# The fields of ``ShardHistory`` with the records in lines of a kind.
FIELDS = {"deliver": "delivered", "done": "done", "give up": "given_up"}


class State(NamedTuple):
    """A state of a shard's row that a call has seen, somewhere within its time."""

    call: Call
    epoch: int
    position: Position
    is_ended: bool
    owner: str
    parents: tuple[str, ...]
    start: str
    # A read that is not consistent may return an old state.
    is_current: bool

    @property
    def place(self) -> str:
        """The checkpoint, and whether the shard has ended."""
        return text_of(self.position) + ", the end" * self.is_ended


class Claim(NamedTuple):
    """A write that made a session the owner of a shard in an epoch."""

    call: Call
    epoch: int
    session: str


class Commit(NamedTuple):
    """A write of a checkpoint, in an epoch, that the table applied."""

    call: Call
    epoch: int
    position: Position


@dataclass
class ShardHistory:
    """All that the processes did with one shard."""

    shard: Shard
    states: list[State] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    # Epochs that began with a seek, so that positions may go anywhere.
    seeks: set[int] = field(default_factory=set)
    # The positions that some write has set, if the table may have applied it.
    written: set[Position] = field(default_factory=set)
    # When some process first asked to mark the shard as ended.
    ended_at: float | None = None
    # True if a process opened the shard again, since Kinesis lists it as open.
    is_reopened: bool = False
    delivered: dict[int, list[Delivery]] = field(default_factory=dict)  # by epoch
    done: dict[int, list[Delivery]] = field(default_factory=dict)
    given_up: dict[int, list[Delivery]] = field(default_factory=dict)
    produced: set[Position] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The stream's name and the shard's id."""
        _, arn, shard_id = self.shard
        return f"{arn.rpartition('/')[2]} {shard_id}"

    @property
    def epochs(self) -> set[int]:
        """All epochs that a call or a delivery names."""
        return {state.epoch for state in self.states} | set(self.delivered)

    @property
    def unexplained(self) -> set[int]:
        """The epochs that no recorded process began.

        Such an epoch was begun by an operator, or by a process without a history.
        """
        if not self.states:
            return set()
        first = min(self.states, key=lambda state: state.call.began)
        known = {claim.epoch for claim in self.claims} | self.seeks
        return {epoch for epoch in self.epochs if epoch > first.epoch} - known

    @property
    def jumps(self) -> set[int]:
        """The epochs at whose beginning the checkpoint may have moved anywhere."""
        return self.seeks | self.unexplained

    @property
    def begins_at_horizon(self) -> bool:
        """True if the shard is read from its oldest record."""
        return {state.start for state in self.states} == {"TRIM_HORIZON"}

    @property
    def handled(self) -> set[Position]:
        """All records that user code got, or that were given up, in any epoch."""
        lists = (*self.delivered.values(), *self.given_up.values())
        return {
            position for one in lists for each in one for position in each.positions
        }

    def owners(self, epoch: int) -> set[str]:
        """Return the processes that claimed the shard in an epoch."""
        return {claim.call.process for claim in self.claims if claim.epoch == epoch}


@dataclass
class Index:
    """The histories, by shard."""

    histories: Histories
    shards: dict[Shard, ShardHistory] = field(default_factory=dict)
    # The time of the answer that first showed a session as dead.
    died_at: dict[str, float] = field(default_factory=dict)

    def shard(self, shard: Shard) -> ShardHistory:
        """Return the history of a shard."""
        return self.shards.setdefault(shard, ShardHistory(shard))


# A rule gets the histories, and the margin for differences between clocks, in seconds.
Rule = Callable[[Index, float], Iterator[str]]


def of_each_shard(find: Callable[[Index, ShardHistory, float], Iterator[str]]) -> Rule:
    """Return a rule that finds faults of each shard, and names the shard in them."""

    def rule(index: Index, margin: float) -> Iterator[str]:
        for shard in index.shards.values():
            for fault in find(index, shard, margin):
                yield f"{shard.name}: {fault}"

    return rule


def build_index(histories: Histories) -> Index:
    """Return what the histories say about each shard."""
    index = Index(histories)
    for call in sorted(histories.calls, key=lambda call: call.began):
        _note_rows(index, call)
        if call.name == "write" and call.arguments["key"][0].startswith(SHARD_ROW):
            _note_write(index.shard(key_shard(call.arguments["key"])), call)
    for shard in index.shards.values():
        shard.states.sort(key=lambda state: state.call.began)
    produced = defaultdict[tuple[str, str], set[Position]](set)
    for each in sorted(histories.records, key=lambda each: each.at):
        if each.kind == "produced":
            produced[each.shard[1:]].update(each.positions)
        else:
            epochs = getattr(index.shard(each.shard), FIELDS[each.kind])
            epochs.setdefault(each.epoch, []).append(each)
    for shard in index.shards.values():
        shard.produced = produced[shard.shard[1:]]
    return index


def _note_rows(index: Index, call: Call) -> None:
    for row in call.rows:
        kind, _, _ = row["pk"].partition("#")
        if kind == "member" and row.get("dead") is True:
            known = index.died_at.get(row["session"], call.ended)
            index.died_at[row["session"]] = min(known, call.ended)
        elif kind == "shard":
            index.shard(row_shard(row)).states.append(_state(row, call))


def _state(row: dict[str, Any], call: Call) -> State:
    is_current = call.name == "write" or bool(call.arguments.get("consistent"))
    return State(
        call,
        int(row.get("epoch", 0)),
        row_position(row),
        row.get("ended") is True,
        row.get("owner", ""),
        tuple(row.get("parents", ())),
        row.get("start", ""),
        is_current,
    )


def _note_write(shard: ShardHistory, call: Call) -> None:
    if not call.may_be_applied:
        return
    new: dict[str, Any] = call.arguments["set"]
    required = dict(required_values(call.arguments["condition"]))
    if "sequence_number" in new:
        sub = new.get("sub_sequence_number")
        position = position_of((new["sequence_number"], sub))
        shard.written.add(position)
        if call.is_applied and "epoch" in required and "epoch" not in new:
            shard.commits.append(Commit(call, int(required["epoch"]), position))
    if new.get("ended") is True and shard.ended_at is None:
        shard.ended_at = call.began
    shard.is_reopened |= new == {"ended": False}
    if "owner" in new:
        shard.claims.append(Claim(call, int(new["epoch"]), new["owner"]))
    elif "epoch" in new and "last_hash" not in new:
        shard.seeks.add(int(new["epoch"]))


def required_values(condition: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes whose values a condition requires."""
    if condition[0] == "and":
        for part in condition[1:]:
            yield from required_values(part)
    elif condition[0] != "or" and condition[1] == "=":
        yield condition[0], condition[2]


def flat(deliveries: Iterable[Delivery]) -> Iterator[tuple[Position, Delivery]]:
    """Yield each record of deliveries, with its delivery."""
    for each in deliveries:
        for position in each.positions:
            yield position, each
