"""Drive the state machine of delivery without tasks and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch
from kinesumer.core.delivery import (
    Action,
    Delivery,
    Free,
    HandOver,
    Processed,
    Signal,
    Unfinished,
    Wait,
)
from kinesumer.core.handout import Handout, Loop
from kinesumer.core.turns import Turns
from kinesumer.model.records import Record
from tests.support.world import batch_of, hold, shard_row

EACH_BYTES = 426  # the memory of a record of batch_of()


@dataclass
class Driver:
    """Carries out what a delivery decides, and counts what it was told."""

    delivery: Delivery[OwnedShard]
    turns: Turns[OwnedShard, FetchedBatch] = field(default_factory=Turns)
    now: float = 0.0
    put_bytes: int = 0
    freed: int = 0
    processed: int = 0
    signals: list[Signal] = field(default_factory=list)
    unfinished: list[Unfinished[OwnedShard]] = field(default_factory=list)

    def put(self, owned: OwnedShard, *numbers: int) -> FetchedBatch:
        """Queue a batch of records with these numbers."""
        batch = batch_of(owned, *numbers)
        self.turns.put(owned, batch)
        self.put_bytes += batch.size
        return batch

    def ask(self, loop: Loop, holder: object | None = None) -> Action[OwnedShard]:
        """Ask for a loop. Return the decision once no batch need be taken in."""
        self.delivery.asked(loop, holder, self.now)
        return self.go_on(loop)

    def go_on(self, loop: Loop) -> Action[OwnedShard]:
        while True:
            action = self.delivery.next(loop, self.turns, self.now)
            if action is not Wait.BATCH or not self.turns:
                self.carry_out()
                return action
            self.delivery.arrived(self.turns.take()[1])

    def handout(self, loop: Loop, holder: object | None = None) -> Handout[OwnedShard]:
        """Ask for a loop, which gets records. Return them."""
        action = self.ask(loop, holder)
        assert isinstance(action, HandOver)
        return action.handout

    def whole(self, loop: Loop, holder: object | None = None) -> list[int]:
        """Ask for a loop, which gets a whole batch. Return the records' numbers."""
        return numbers(self.handout(loop, holder).whole(self.now).records)

    def carry_out(self) -> None:
        for effect in self.delivery.take_effects():
            if isinstance(effect, Free):
                self.freed += effect.size
            elif isinstance(effect, Processed):
                self.processed += effect.records
            elif isinstance(effect, Unfinished):
                self.unfinished.append(effect)
            else:
                self.signals.append(effect)

    def done(self, owned: OwnedShard) -> int:
        """Return how many records of a shard are done."""
        self.delivery.sync_progress()
        self.carry_out()
        return owned.progress.done


def numbers(records: Sequence[Record]) -> list[int]:
    return [int(record.sequence_number) for record in records]


def shards(count: int) -> list[OwnedShard]:
    return [hold(shard_row(f"shardId-{number:012}")) for number in range(count)]


def driver(*, auto: bool = True, limit: int | None = None) -> Driver:
    return Driver(Delivery(acks_by_asking=auto, limit=limit))


def one(*records: int, auto: bool = True, **options: Any) -> tuple[Driver, OwnedShard]:
    """Return a delivery with a batch of one shard."""
    given, owned = driver(auto=auto, **options), hold()
    given.put(owned, *records)
    return given, owned
