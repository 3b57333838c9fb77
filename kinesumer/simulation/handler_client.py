"""UserCode code that a simulated client calls by ``run()``, and its dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import DeadLettersUnavailableError
from kinesumer.handlers import RetryPolicy
from kinesumer.handlers.options import read_run_options
from kinesumer.handlers.runner import HandlerRunner

if TYPE_CHECKING:
    from random import Random

    from kinesumer.dead_letters import DeadLetter
    from kinesumer.model.batch import Batch
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Fence, Record
    from kinesumer.simulation.machine import Machine
    from kinesumer.simulation.user_code import FaultyUserCode
    from kinesumer.simulation.world import World

RETRIES = RetryPolicy(max_attempts=2)
"""Few, so that records become dead letters, too."""
REJECTED_SHARE = 0.3
"""Share of the letters that aren't stored at once."""


class HandlerClient:
    """The handlers and the letters of one ``run()``: tells the checker what is done."""

    def __init__(
        self, world: World, user_code: FaultyUserCode, machine: Machine, random: Random
    ) -> None:
        self._user_code = user_code
        self._machine = machine
        self._random = random
        self._checker = world.checker
        self._seen: set[tuple[Fence, Position]] = set()
        self._failed: dict[str, Record] = {}
        """Records that failed, by the ids that their letters have."""
        scenario = world.scenario
        options = read_run_options(
            self.batch if scenario.batches else self.record,
            batch=scenario.batches,
            concurrency=scenario.concurrency,
            dead_letters=self.put,
            retries=RETRIES,
        )
        self.handling = HandlerRunner(
            options,
            app=scenario.app,
            clock=machine,
            random=random,
            drain=world.config.drain_timeout_seconds,
        )
        self.handling.letters = self

    async def record(self, record: Record) -> None:
        """Handle a record."""
        await self._handle([record])

    async def batch(self, batch: Batch) -> None:
        """Handle a batch."""
        await self._handle(batch.records, batch)

    async def put(self, letter: DeadLetter) -> None:
        """Store a letter, or don't."""
        if self._random.random() < REJECTED_SHARE:
            raise DeadLettersUnavailableError("not now")
        self._checker.note("dead letter", self._machine.name, letter.sequence_number)
        self._checker.done(self._failed.pop(_place(letter)))

    async def aclose(self) -> None:
        """Nothing is held open."""

    async def _handle(self, records: list[Record], batch: Batch | None = None) -> None:
        for record in records:
            place = record.fence, record.position
            if place not in self._seen:  # else it is tried again
                self._seen.add(place)
                self._checker.delivered(self._machine, record)
        try:
            await self._user_code.run(records, batch)
        except Exception:
            self._failed.update((_place(record), record) for record in records)
            raise
        for record in records:
            self._checker.done(record)


def _place(at: Record | DeadLetter) -> str:
    return (
        f"{at.stream_arn} {at.shard_id} {at.sequence_number} {at.sub_sequence_number}"
    )
