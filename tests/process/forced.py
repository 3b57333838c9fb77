"""How often records may be handled again: I10 of the protocol, from what was seen."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.model import ShardKey
    from kinesumer.wire.rows import ShardRow
    from tests.process.oracle import Event, Run

LEAVING_SECONDS = 0.5
"""Who leaves marks itself dead this long at most before it says that it has left."""


class Allowance(NamedTuple):
    """What permits repeats, by shard."""

    forced: Counter[ShardKey]
    """Takeovers from an owner that released nothing: crashed, fenced, or stuck."""
    overdue: Counter[ShardKey]
    """Records that were in user code for longer than a hand-over waits."""

    def records(self, shard: ShardKey, max_uncommitted: int) -> int:
        """Return how many records of a shard may be handled again."""
        return max_uncommitted * self.forced[shard] + self.overdue[shard]


def allowance(run: Run, drain_timeout: float) -> Allowance:
    """Count what permits repeats in a run."""
    overdue = Counter(h.shard for h in run.handled if h.ended - h.began > drain_timeout)
    return Allowance(Counter(forced(run)), overdue)


def forced(run: Run) -> Iterator[ShardKey]:
    """Yield a shard each time that its owner died without giving it up."""
    peaceful = set(left(run))
    last: dict[ShardKey, ShardRow] = {}
    for seen, then in pairwise([*run.snapshots, *run.snapshots[-1:]]):
        # The members are read before the shards: a death may show one look later.
        live = {row.session for row in then.live.values()}
        for key, row in seen.shards.items():
            before = last.get(key)
            last[key] = row
            if before is None or before.epoch == row.epoch or not before.owner:
                continue
            if before.owner not in live | peaceful:
                yield key


def left(run: Run) -> Iterator[str]:
    """Yield the sessions that ended by giving everything up first."""
    begun: dict[str, dict[str, float]] = defaultdict(dict)
    died: dict[str, float] = {}
    for seen in run.snapshots:
        for member in seen.members.values():
            begun[member.client_id].setdefault(member.session, seen.at)
            if member.dead:
                died.setdefault(member.session, seen.at)
    for event in run.events:
        if not is_peaceful(event):
            continue
        known = [s for s, at in begun[event.client].items() if at <= event.at]
        if known and died.get(known[-1], event.at) >= event.at - LEAVING_SECONDS:
            yield known[-1]


def is_peaceful(event: Event) -> bool:
    """Tell whether a client wrote that it left, by request or for a handler's error."""
    return event.name == "left" or (event.name, event.text) == (
        "failed",
        "HandlerError",
    )
