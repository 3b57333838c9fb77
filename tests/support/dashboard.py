"""Doubles for the dashboard: a fleet that counts reads, and recorded actions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.dashboard.actions import Preview
from kinesumer.errors import ConfigurationError
from tests.support.toy_fleet import ToyFleet

if TYPE_CHECKING:
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.dashboard.actions import Action
    from kinesumer.dashboard.poller import StreamMeasurements


class FakeActions:
    """Accepts every action except one."""

    def __init__(self) -> None:
        self.done: list[Action] = []

    async def preview(self, change: Action) -> Preview:
        return Preview([f"it will {type(change).__name__}"], "skips 3 records")

    async def apply(self, change: Action) -> str:
        if getattr(change, "client", "") == "last":
            raise ConfigurationError("it is the last\x07 client")
        self.done.append(change)
        return "done"


class CountedFleet(ToyFleet):
    """Counts its reads."""

    looks = 0
    slow = False

    async def read(self) -> Snapshot:
        self.looks += 1
        return await super().read()

    async def measure(self, found: Snapshot) -> StreamMeasurements:
        if self.slow:
            await asyncio.sleep(3600)
        return await super().measure(found)
