"""The scenario of a run: a split, a join, a kill, a merge and a stop."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any

from kinesumer.core import lineage
from kinesumer.demo.events import Event
from kinesumer.demo.record_log import shard_number
from kinesumer.demo.store_checks import shards_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kinesumer.demo.processes import Child, Processes
    from kinesumer.demo.settings import DemoOptions, DemoStream
    from kinesumer.demo.spark_process import SparkProcess
    from kinesumer.demo.store_checks import StoreChecker
    from kinesumer.model.streams import Shard
    from kinesumer.ports import StreamSource

MIN_LEADER_CRASH_SECONDS = 40.0
"""Only a run of this length leaves time to replace a killed leader."""


class Scenario:
    """Causes one event after the other, spread evenly over the run."""

    def __init__(
        self,
        options: DemoOptions,
        streams: list[DemoStream],
        processes: Processes,
        checker: StoreChecker,
        kinesis: Any,
        sources: Sequence[StreamSource],
        report: Callable[[Event], None],
        spark: SparkProcess | None,
    ) -> None:
        self.events: list[Event] = []
        self._options = options
        self._streams = streams
        self._processes = processes
        self._checker = checker
        self._kinesis = kinesis
        self._sources = sources
        self._report = report
        self._spark = spark

    async def run(self, started: float) -> None:
        """Cause all events. Returns before the time to produce is over."""
        steps: list[Callable[[], Awaitable[Event]]] = [
            self._split,
            self._join,
            self._kill,
            self._merge,
            self._stop,
        ]
        if self._spark is not None:
            # Right after a split: the query then has to end parents and begin children.
            steps.insert(1, self._spark.crash)
        if self._options.clients == 1:
            # One client is killed and one is stopped: a third has to be left.
            steps.insert(0, self._join)
        for index, step in enumerate(steps, start=1):
            due = started + index * self._options.seconds / (len(steps) + 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.add(await step())

    def add(self, event: Event) -> None:
        """Add an event, and report it."""
        self.events.append(event)
        self._report(event)

    async def _split(self) -> Event:
        shard = (await self._open(0))[0]
        middle = (shard.first_hash + shard.last_hash + 1) // 2
        at = time.monotonic()
        await self._kinesis.split_shard(
            StreamARN=self._streams[0].arn,
            ShardToSplit=shard.shard_id,
            NewStartingHashKey=str(middle),
        )
        text = f"split shard {shard_number(shard.shard_id)} of {self._streams[0].label}"
        return Event(kind="split", at=at, text=text)

    async def _merge(self) -> Event:
        stream = 1 if self._options.shards > 1 else 0
        left, right = (await self._open(stream))[:2]
        at = time.monotonic()
        await self._kinesis.merge_shards(
            StreamARN=self._streams[stream].arn,
            ShardToMerge=left.shard_id,
            AdjacentShardToMerge=right.shard_id,
        )
        name = self._streams[stream].label
        numbers = [shard_number(shard.shard_id) for shard in (left, right)]
        text = f"merge shards {numbers[0]} and {numbers[1]} of {name}"
        return Event(kind="merge", at=at, text=text)

    async def _open(self, stream: int) -> list[Shard]:
        return lineage.leaves(await self._sources[stream].list_shards())

    async def _join(self) -> Event:
        at = time.monotonic()
        child = await self._processes.start_client(self._streams)
        return Event(kind="join", at=at, client=child.name, text=f"start {child.name}")

    async def _kill(self) -> Event:
        victim, leader = await self._victim()
        at = time.monotonic()
        victim.signal(signal.SIGKILL)
        await victim.process.wait()
        held = self._checker.shards_of_killed[victim.name] = set()
        await self._checker.check()
        was_leader = victim.name == leader
        role = ", the leader" if was_leader else ""
        return Event(
            kind="kill",
            at=at,
            client=victim.name,
            text=f"kill {victim.name}{role} (SIGKILL, {len(held)} shards)",
            was_leader=was_leader,
        )

    async def _victim(self) -> tuple[Child, str | None]:
        rows = await self._checker.check()
        running, leader = self._processes.running, rows.leader_id
        leading = [c for c in running if c.name == leader]
        others = [c for c in running if c.name != leader]
        if leading and self._options.seconds >= MIN_LEADER_CRASH_SECONDS:
            return leading[0], leader
        return max(
            others or leading, key=lambda c: len(shards_of(rows, c.name))
        ), leader

    async def _stop(self) -> Event:
        rows = await self._checker.check()
        running = self._processes.running
        child = max(running, key=lambda c: len(shards_of(rows, c.name)))
        at = time.monotonic()
        child.signal(signal.SIGTERM)
        return Event(
            kind="stop", at=at, client=child.name, text=f"stop {child.name} (SIGTERM)"
        )
