"""Run record processors of amazon_kclpy that note what they see."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinesumer.core.backoff import Backoff
from kinesumer.kclpy import (
    Checkpointer,
    ProcessorApp,
    RecordProcessorBase,
    RecordProcessorBaseV1,
)
from kinesumer.testing import EmbeddedAws
from tests.support.clock import until

PROPERTIES = """
applicationName = app
streamName = orders
initialPositionInStream = TRIM_HORIZON
executableName = app.py
failoverTimeMillis = 3000
kinesumer.leader_interval_seconds = 0.1
kinesumer.rebalance_delay_seconds = 0.1
# Nothing is stored but what processors checkpoint.
kinesumer.commit_interval_seconds = 0.1
"""
END_WAITS = "kinesumer.kclpy.shard_processor.END_BACKOFF"


@pytest.fixture(autouse=True)
def quick(nobody_else_joins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no other clients, and not long between calls at a shard's end."""
    monkeypatch.setattr(END_WAITS, Backoff(0.01, 0.01))


@pytest.fixture
def aws(kinesumer_aws: EmbeddedAws) -> EmbeddedAws:
    """Return an AWS with a stream of one shard."""
    kinesumer_aws.create_stream("orders", 1)
    return kinesumer_aws


@pytest.fixture
def fleet(aws: EmbeddedAws, tmp_path: Path) -> Fleet:
    """Return a fleet that has no clients yet."""
    return Fleet(tmp_path)


class Fleet:
    """What the processors of some clients see, in the order of the calls."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "app.properties"
        self.seen: list[str] = []
        self.threads: dict[str, set[int]] = {}
        self.on_records: Callable[[Any], object] = bool
        self.on_end: Callable[[Checkpointer], object] = Checkpointer.checkpoint
        self.on_request: Callable[[Checkpointer], object] = Checkpointer.checkpoint
        self.version = 3
        self.more = ""
        """Further lines of the properties."""

    def app(self, client: str = "", **properties: float) -> ProcessorApp:
        """Return an app whose processors write into ``seen`` after the client's name.

        ``properties`` are fields of Config.
        """
        own = [f"kinesumer.{name} = {value}\n" for name, value in properties.items()]
        self.path.write_text(PROPERTIES + self.more + "".join(own))
        if self.version == 1:
            return ProcessorApp(lambda: OldNoting(self, client), self.path)
        return ProcessorApp(lambda: Noting(self, client), self.path)

    def note(self, shard: str, client: str, text: str) -> None:
        self.seen.append(f"{client}{shard[-1]} {text}")
        self.threads.setdefault(shard, set()).add(threading.get_ident())

    async def saw(self, text: str) -> None:
        await until(lambda: text in self.seen)


class Noting(RecordProcessorBase):
    """Writes all calls into the fleet's list."""

    def __init__(self, fleet: Fleet, client: str) -> None:
        self.fleet, self.client, self.shard = fleet, client, ""

    def note(self, text: str) -> None:
        self.fleet.note(self.shard, self.client, text)

    def initialize(self, initialize_input: Any) -> None:
        self.shard = initialize_input.shard_id
        number = initialize_input.sequence_number[-2:]
        self.note(f"begins {number}/{initialize_input.sub_sequence_number}")

    def process_records(self, process_records_input: Any) -> None:
        assert process_records_input.millis_behind_latest >= 0
        for record in process_records_input.records:
            self.note(record.binary_data.decode())
        self.fleet.on_records(process_records_input)

    def lease_lost(self, lease_lost_input: Any) -> None:
        self.note("lost")

    def shard_ended(self, shard_ended_input: Any) -> None:
        self.note("ended")
        self.fleet.on_end(shard_ended_input.checkpointer)

    def shutdown_requested(self, shutdown_requested_input: Any) -> None:
        self.note("requested")
        self.fleet.on_request(shutdown_requested_input.checkpointer)


class OldNoting(RecordProcessorBaseV1):
    """A processor of version 1 that writes all calls into the fleet's list."""

    def __init__(self, fleet: Fleet, client: str) -> None:
        self.fleet, self.client, self.shard = fleet, client, ""

    def note(self, text: str) -> None:
        self.fleet.note(self.shard, self.client, text)

    def initialize(self, shard_id: str) -> None:
        self.shard = shard_id
        self.note("begins")

    def process_records(self, records: Any, checkpointer: Checkpointer) -> None:
        for record in records:
            self.note(f"{record.get('partitionKey')} {record['data']}")
        checkpointer.checkpoint()

    def shutdown(self, checkpointer: Checkpointer, reason: str) -> None:
        self.note(reason)
        if reason == "TERMINATE":
            checkpointer.checkpoint()


class Running:
    """A client that runs an app."""

    def __init__(self, app: ProcessorApp, name: str = "c1") -> None:
        self.client = app.client(client_id=name)
        self.task = asyncio.create_task(self._run(app))

    async def _run(self, app: ProcessorApp) -> None:
        async with self.client:
            await app.run(self.client)

    async def leave(self) -> None:
        """Leave the group, and wait for the end."""
        await self.client.leave()
        await self.task


async def run_until(fleet: Fleet, text: str, **properties: float) -> None:
    """Run a client until one of its processors sees a text."""
    before = len(fleet.seen)
    running = Running(fleet.app("", **properties))
    await until(lambda: text in fleet.seen[before:])
    await running.leave()
