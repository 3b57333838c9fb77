"""What the judge says of seeks: operators alone move positions; what is owed then."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from kinesumer.simulation.invariants.permits import number

if TYPE_CHECKING:
    from kinesumer.model.rows import Row
    from kinesumer.ports import Write
    from kinesumer.simulation.invariants.checker import Judge
    from kinesumer.simulation.machine import Machine
    from kinesumer.simulation.trace import ShardTrace


class Seeks:
    """Checks I1 and I4 for seeks, and remembers in which order shards were sought."""

    def __init__(self, judge: Judge) -> None:
        self.operators: set[Machine] = set()
        self._judge = judge
        self._numbers = count(1)

    def created(self, trace: ShardTrace, row: Row) -> None:
        """A row was created: an operator's begins where its seek says."""
        writer = self._judge.writer
        if writer is not None and writer in self.operators:
            first, epoch = trace.first_of(row), number(row["epoch"])
            trace.seek(first, epoch, writer.name, next(self._numbers))

    def is_seek(self, write: Write) -> bool:
        """Tell whether a write to a shard's row moves its position by an order."""
        return "epoch" in write.set and "claim" in write.remove

    def sought(self, trace: ShardTrace, before: Row, after: Row) -> None:
        """A shard was told to read on from elsewhere."""
        judge, epoch = self._judge, number(after["epoch"])
        operator = judge.writer.name if judge.writer else "nobody"
        if judge.writer not in self.operators:
            judge.fail("I1", f"{operator}, no operator, seeks {trace.shard_id}")
        if epoch != number(before["epoch"]) + 1:
            judge.fail("I4", f"{trace.shard_id}: epoch {epoch} is sought out of turn")
        if after.get("owner") != before.get("owner"):
            judge.fail("I4", f"{trace.shard_id}: a seek changes its owner")
        if after["ended"]:
            judge.fail("I1", f"{trace.shard_id} is sought and still has ended")
        place = next(self._numbers)
        if before["ended"]:
            trace.reopened, trace.ended_at = (operator, place), None
        trace.seek(trace.first_of(after), epoch, operator, place)
