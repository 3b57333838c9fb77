"""User code that a simulated client calls by ``run()``, and its dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import DeadLettersUnavailableError
from kinesumer.handlers import RetryPolicy
from kinesumer.handlers.options import read_run_options
from kinesumer.handlers.runner import HandlerRunner

if TYPE_CHECKING:
    from kinesumer.dead_letters import DeadLetter
    from kinesumer.model.batch import Batch
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Fence, Record
    from kinesumer.simulation.client import Process

RETRIES = RetryPolicy(max_attempts=2)
"""Few, so that records become dead letters, too."""
REFUSALS = 0.3
"""Share of the letters that aren't stored at once."""


class Called:
    """The handlers and the letters of one ``run()``: tells the judge what is done."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._judge = process.sim.judge
        self._seen: set[tuple[Fence, Position]] = set()
        self._failed: dict[str, Record] = {}
        """Records that failed, by the ids that their letters have."""
        shape = process.sim.shape
        options = read_run_options(
            self.batch if shape.batches else self.record,
            batch=shape.batches,
            concurrency=shape.concurrency,
            dead_letters=self.put,
            retries=RETRIES,
        )
        self.handling = HandlerRunner(
            options,
            app=shape.app,
            clock=process.machine,
            random=process.random,
            drain=process.sim.config.drain_timeout_seconds,
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
        if self._process.random.random() < REFUSALS:
            raise DeadLettersUnavailableError("not now")
        self._judge.note("dead letter", self._process.name, letter.sequence_number)
        self._judge.done(self._failed.pop(_place(letter)))

    async def aclose(self) -> None:
        """Nothing is held open."""

    async def _handle(self, records: list[Record], batch: Batch | None = None) -> None:
        for record in records:
            place = record.fence, record.position
            if place not in self._seen:  # else it is tried again
                self._seen.add(place)
                self._judge.delivered(self._process.machine, record)
        try:
            await self._process.work_at(records, batch)
        except Exception:
            self._failed.update((_place(record), record) for record in records)
            raise
        for record in records:
            self._judge.done(record)


def _place(at: Record | DeadLetter) -> str:
    return (
        f"{at.stream_arn} {at.shard_id} {at.sequence_number} {at.sub_sequence_number}"
    )
