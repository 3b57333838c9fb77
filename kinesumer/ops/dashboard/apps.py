"""Answer the page's requests for the apps of the table."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from kinesumer.ops.group.apps import read_apps, report

if TYPE_CHECKING:
    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.ports import Clock

# Each reading scans the table, so all pages together cause at most one in this time.
FRESH_SECONDS = 10.0


class AppList:
    """Reads the apps of a table for all open pages."""

    def __init__(self, table: str, store: DynamoStateStore, clock: Clock) -> None:
        self._table, self._store, self._clock = table, store, clock
        self._reading = asyncio.Lock()
        self._answer, self._read_at = b"", -FRESH_SECONDS

    async def read(self) -> bytes:
        """Return the report of ``kinesumer apps`` as JSON. Raises KinesumerError."""
        async with self._reading:
            if self._clock.now() - self._read_at >= FRESH_SECONDS:
                found = await read_apps(self._store, self._clock.wall())
                self._answer = msgspec.json.encode(report(self._table, found))
                self._read_at = self._clock.now()
        return self._answer
