"""Clients in virtual time whose processes die at some records and start again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kinesumer.model.records import Record
from kinesumer.model.rows import Row, ShardRow
from kinesumer.ports import Write
from tests.support.handler_client import Runner
from tests.support.world import Client, World

P = "shardId-000000000000"
RESTART_SECONDS = 3.0


def numbered(count: int) -> list[str]:
    """Return the texts of harmless records."""
    return [f"r{number}" for number in range(count)]


class DyingFleet:
    """Three clients, which a supervisor starts again after each death."""

    def __init__(
        self, world: World, *, runs: Mapping[str, Any] | None = None, **config: Any
    ) -> None:
        """``runs`` are options of ``run()``. Without them, clients iterate."""
        self.world = world
        self.deadly: set[str] = set()  # the texts of records that kill
        self.delay_seconds = 0.0  # how long user code takes for each record
        self.deaths: list[str] = []  # the record at each death
        self.seen: list[str] = []
        self.clients: dict[str, Client | Runner] = {}
        self.letters: list[str] = []
        self.most_deaths = 0  # the highest number that a row has counted
        self.notes = 0  # writes that name a record
        self._runs, self._config = runs, config
        world.table.on_write.append(self._watch)
        for number in range(3):
            self.start(f"c{number}")

    def start(self, client_id: str) -> None:
        """Start a client."""

        async def handle(record: Record) -> None:
            await self.handle(client_id, record)

        if self._runs is None:
            self.clients[client_id] = self.world.client(
                client_id, handle=handle, **self._config
            )
            return
        options = {**self._runs, **self._config}
        if "dead_letters" in options:
            options["dead_letters"] = self._put
        self.clients[client_id] = Runner(self.world, handle, client_id, **options)

    async def _put(self, letter: Any) -> None:
        self.letters.append(letter.data.decode())

    async def handle(self, client_id: str, record: Record) -> None:
        """Handle a record, or die from it."""
        text = record.data.decode()
        await asyncio.sleep(self.delay_seconds)
        if text in self.deadly:
            self.deaths.append(text)
            self.kill(client_id)
            await asyncio.Event().wait()
        self.seen.append(text)

    def kill(self, client_id: str) -> None:
        """Kill a client, and start it again later."""
        machine = self.clients[client_id].machine
        if machine.alive:
            machine.kill()
            loop = self.world.loop
            loop.at_real(loop.real + RESTART_SECONDS, self.start, client_id)

    def _watch(self, write: Write, _before: Row | None, after: Row | None) -> None:
        if after is not None and "deaths" in after:
            self.most_deaths = max(self.most_deaths, int(str(after["deaths"])))
        self.notes += "tried" in write.set

    def row(self, shard_id: str = P) -> ShardRow:
        """Return a shard's row."""
        return self.world.shard_rows()[shard_id]

    async def until_stopped(self, shard_id: str = P) -> None:
        """Wait until a record is named, and then long enough for more deaths."""
        rows = self.world.shard_rows
        named = lambda: shard_id in rows() and rows()[shard_id].poison  # noqa: E731
        await self.world.until(named, 900)
        await asyncio.sleep(120)

    async def until_done(self, *texts: str, seconds: float = 900) -> None:
        """Wait until user code has done these records."""
        await self.world.until(lambda: {*texts} <= {*self.seen}, seconds)
