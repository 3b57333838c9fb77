"""The handlers that a simulated client passes to ``run()``, and its dead letters."""

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
"""Few attempts, so that some records become dead letters."""
REJECTED_SHARE = 0.3
"""Share of the dead letters that the target rejects."""


class HandlerClient:
    """The handlers and dead letters of one ``run()``, which report to the checker."""

    def __init__(
        self, world: World, user_code: FaultyUserCode, machine: Machine, random: Random
    ) -> None:
        self._user_code = user_code
        self._machine = machine
        self._random = random
        self._checker = world.checker
        self._seen: set[tuple[Fence, Position]] = set()
        self._failed: dict[str, Record] = {}
        """Records that failed, by stream, shard and sequence number."""
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
        """Store a dead letter, or raise DeadLettersUnavailableError."""
        if self._random.random() < REJECTED_SHARE:
            raise DeadLettersUnavailableError("not now")
        self._checker.note("dead letter", self._machine.name, letter.sequence_number)
        self._checker.done(self._failed.pop(_place(letter)))

    async def aclose(self) -> None:
        """Do nothing."""

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
