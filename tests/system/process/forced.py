"""How often records may be handled again: I10 of the protocol, from what was seen."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey
    from tests.system.process.oracle import Run

LEAVING_SECONDS = 0.5
"""Who leaves marks itself dead this long at most before it says that it has left."""


class Allowance(NamedTuple):
    """What permits repeats, by shard."""

    forced: Counter[ShardKey]
    """Takeovers from an owner that released nothing: crashed, fenced, or stuck."""
    overdue: Counter[ShardKey]
    """Records that were in user code for longer than a hand-over waits."""

    def records(self, shard: ShardKey, max_uncommitted_records: int) -> int:
        """Return how many records of a shard may be handled again."""
        return max_uncommitted_records * self.forced[shard] + self.overdue[shard]


def allowance(run: Run, drain_timeout_seconds: float) -> Allowance:
    """Count what permits repeats in a run."""
    overdue = Counter(
        h.shard for h in run.handled if h.ended - h.began > drain_timeout_seconds
    )
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
    """Yield the sessions that ended by giving everything up, and weren't dead before.

    Their clients say so: when a session's request to leave comes, the others may have
    fenced it already.
    """
    died: dict[str, float] = {}
    for seen in run.snapshots:
        for member in seen.members.values():
            if member.dead:
                died.setdefault(member.session, seen.at)
    for event in run.events:
        if event.name == "gave up":
            if died.get(event.text, event.at) >= event.at - LEAVING_SECONDS:
                yield event.text
