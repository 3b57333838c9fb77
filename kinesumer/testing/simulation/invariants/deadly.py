"""Records that kill each process that gets them, and what rows say about them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model.rows import ISOLATING_DEATHS
from kinesumer.testing.simulation.trace import record_position, row_position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.handlers.dead_letters.letter import DeadLetter
    from kinesumer.model.records import Record
    from kinesumer.model.rows import Row
    from kinesumer.ports import Write
    from kinesumer.testing.simulation.invariants.base import Checker
    from kinesumer.testing.simulation.trace import ShardTrace


class RecordKey(NamedTuple):
    """A record's shard, sequence number and sub-sequence number."""

    arn: str
    shard_id: str
    number: str
    part: int | None


def record_key(at: Record | DeadLetter) -> RecordKey:
    """Return the key of a record, or of a dead letter's record."""
    number, part = at.sequence_number, at.sub_sequence_number
    return RecordKey(at.stream_arn, at.shard_id, number, part)


class DeadlyRecords:
    """The records that kill processes, and checks of what the rows say about them."""

    def __init__(self, checker: Checker) -> None:
        self.deaths: Counter[RecordKey] = Counter()  # of each record ever deadly
        # Deaths at each record since the last seek of its shard, which resets them.
        self._since_seek: Counter[RecordKey] = Counter()
        self.most_deaths: int = 0
        self.named: int = 0
        self.isolated: int = 0
        self._now: set[RecordKey] = set()
        self._checker = checker

    def add(self, key: RecordKey) -> None:
        """Let a record kill each process that gets it from now on."""
        self._now.add(key)
        self.deaths[key] = 0
        self._checker.note("deadly", key.shard_id, f"{key.number} {key.part}")

    def killed(self, key: RecordKey) -> None:
        """Record that a process died at a record."""
        self.deaths[key] += 1
        self._since_seek[key] += 1
        self.most_deaths = max(self.most_deaths, self._since_seek[key])

    def seeked(self, arn: str, shard_id: str) -> None:
        """Record that an operator has moved a shard's position."""
        for key in self._since_seek:
            if (key.arn, key.shard_id) == (arn, shard_id):
                self._since_seek[key] = 0

    def clear(self) -> None:
        """Let no record kill any more, as after a correction of the user's code."""
        self._now.clear()

    def first_of(self, records: Iterable[Record]) -> RecordKey | None:
        """Return the first of the records that kills, or None."""
        if not self._now:
            return None
        return next((k for k in map(record_key, records) if k in self._now), None)

    def check_claim(self, trace: ShardTrace, arn: str, write: Write, row: Row) -> None:
        """Check that a claim names only a record that kills (I16)."""
        self.isolated += write.set.get("deaths") == ISOLATING_DEATHS
        if "poison" not in write.set or row.get("poison") == write.set["poison"]:
            return
        number, _, part = str(write.set["poison"]).partition(":")
        named = RecordKey(arn, trace.shard_id, number, int(part) if part else None)
        position = row_position(row)
        if position is not None and position >= record_position(number, named.part):
            return  # read from a stale row, and void
        self.named += 1
        if named not in self.deaths:
            text = f"{trace.shard_id}: record {write.set['poison']} killed no process"
            self._checker.fail("I16", f"{text}, but is named: {row}")
