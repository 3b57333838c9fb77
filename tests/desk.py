"""A delivery whose batches the test puts on the desk, and the user's side of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.buffer import Buffer
from kinesumer.delivery import Delivery, Records
from kinesumer.telemetry import Telemetry
from tests.engine import World, batch_of

if TYPE_CHECKING:
    from kinesumer.buffer import Batch
    from kinesumer.holding import Holding
    from kinesumer.model import Position


class Desk:
    """Delivery and records of one client."""

    def __init__(self, world: World, *, auto: bool = True) -> None:
        self.world = world
        self.buffer = Buffer(1 << 20)
        self.delivery = Delivery(world.clock, marks_by_asking=auto)
        self.hurried = 0
        self.delivery.connect(self.buffer, self._hurry, Telemetry())
        self.records = Records(self.delivery, self._start)
        self.starts = 0

    async def _start(self) -> None:
        self.starts += 1

    def _hurry(self) -> None:
        self.hurried += 1

    def put(self, holding: Holding, *numbers: int) -> Batch:
        batch = batch_of(holding, *numbers)
        self.buffer.used += batch.size
        self.buffer.put(batch)
        return batch

    async def next(self) -> str:
        """Ask for a record; return its sequence number."""
        return (await anext(self.records)).sequence_number

    async def nothing_for(self, seconds: float) -> bool:
        """Ask for a record; tell whether none came for a time."""
        try:
            async with asyncio.timeout(seconds):
                await anext(self.records)
        except TimeoutError:
            return True
        return False

    def busy_since(self) -> float | None:
        return self.delivery.busy_since

    def done(self, holding: Holding) -> Position | None:
        """Return what a commit would store now."""
        self.delivery.take_stock()
        return holding.position
