"""Provide a fleet that counts its reads, and fake actions and records."""

from __future__ import annotations

import asyncio
from typing import Any

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.ops.dashboard.actions import Action, Preview
from kinesumer.ops.dashboard.records import RecordsRequest, answer
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.records import FoundRecords
from kinesumer.ops.group.snapshot import Snapshot
from tests.support.toy_fleet import ToyFleet


class FakeActions:
    """Records actions, and rejects only those on the client "last"."""

    def __init__(self) -> None:
        self.done: list[Action] = []

    async def preview(self, change: Action) -> Preview:
        return Preview([f"it will {type(change).__name__}"], "skips 3 records", True)

    async def apply(self, change: Action) -> str:
        if getattr(change, "client", "") == "last":
            raise ConfigurationError("it is the last\x07 client")
        self.done.append(change)
        return "done"


class FakeRecords:
    """Answers every request with the same records, which it also notes."""

    def __init__(self, *records: Record) -> None:
        self.records = records
        self.requests: list[RecordsRequest] = []

    async def find(self, request: RecordsRequest) -> dict[str, Any]:
        self.requests.append(request)
        if request.start == "yesterday":
            raise ConfigurationError("from yesterday: give a time")
        found = FoundRecords(list(self.records), 7, 2, Position("99"), "tip")
        return answer(found, with_data=request.with_data)


class CountedFleet(ToyFleet):
    """A fleet that counts how often it is read."""

    reads = 0
    slow = False

    async def read(self) -> Snapshot:
        self.reads += 1
        return await super().read()

    async def read_lags(self, snapshot: Snapshot) -> Lags:
        if self.slow:
            await asyncio.sleep(3600)
        return await super().read_lags(snapshot)
