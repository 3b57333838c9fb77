"""The scenario of a run: a split, a join, a kill, a merge and a stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kinesumer import Config
from kinesumer.core import lineage
from kinesumer.core.claims import contains
from kinesumer.model.streams import Shard, ShardKey
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.ports import StateStore, StreamSource
from kinesumer.testing.bounds import crash_bound
from kinesumer.testing.trial.journal import Produced, now
from kinesumer.testing.trial.processes import Child, Processes, TrialStream
from kinesumer.testing.trial.spark_process import SparkProcess
from kinesumer.testing.trial.verdict import Event, shard_number


@dataclass(kw_only=True)
class Scenario:
    """Causes the events of a run one by one, at equal intervals."""

    seconds: float
    clients: int
    # The first one or two are of Kinesis.
    streams: list[TrialStream]
    sources: Sequence[StreamSource]
    # A Kinesis client with permission to split and merge shards of these.
    kinesis: Any
    processes: Processes
    watcher: Watcher
    report: Callable[[Event], None]
    spark: SparkProcess | None
    events: list[Event] = field(default_factory=list)

    async def run(self, started: float) -> None:
        """Cause all faults and changes of the scenario before the producers stop."""
        steps = [self._split, self._join, self._kill, self._merge, self._stop]
        if self.spark is not None:
            # Kill Spark's driver after the split, so that the restarted query has to
            # finish the parent shard before it begins the children.
            steps.insert(1, self.spark.crash)
        if self.clients == 1:
            # The scenario kills a client and stops another. Start one more client
            # first, so that one is left at the end.
            steps.insert(0, self._join)
        for index, step in enumerate(steps, start=1):
            due = started + index * self.seconds / (len(steps) + 1)
            await asyncio.sleep(max(0.0, due - now()))
            self.add(await step())

    def add(self, event: Event) -> None:
        """Add an event, and report it."""
        self.events.append(event)
        self.report(event)

    async def _split(self) -> Event:
        shard = (await self._open(0))[0]
        middle = (shard.first_hash + shard.last_hash + 1) // 2
        at = now()
        await self.kinesis.split_shard(
            StreamARN=self.streams[0].arn,
            ShardToSplit=shard.shard_id,
            NewStartingHashKey=str(middle),
        )
        text = f"split shard {shard_number(shard.shard_id)} of {self.streams[0].label}"
        return Event(kind="split", at=at, text=text)

    async def _merge(self) -> Event:
        # Use the second stream if it has two shards to merge. Otherwise use the first
        # stream, which has two shards since its split.
        stream = 1 if await self._can_merge(1) else 0
        left, right = (await self._open(stream))[:2]
        at = now()
        await self.kinesis.merge_shards(
            StreamARN=self.streams[stream].arn,
            ShardToMerge=left.shard_id,
            AdjacentShardToMerge=right.shard_id,
        )
        name = self.streams[stream].label
        numbers = [shard_number(shard.shard_id) for shard in (left, right)]
        text = f"merge shards {numbers[0]} and {numbers[1]} of {name}"
        return Event(kind="merge", at=at, text=text)

    async def _can_merge(self, stream: int) -> bool:
        is_of_kinesis = not self.streams[stream].is_of_table
        return is_of_kinesis and len(await self._open(stream)) > 1

    async def _open(self, stream: int) -> list[Shard]:
        return lineage.leaves(await self.sources[stream].list_shards())

    async def _join(self) -> Event:
        at = now()
        child = self.processes.start_client(self.streams)
        return Event(kind="join", at=at, client=child.name, text=f"start {child.name}")

    async def _kill(self) -> Event:
        victim, leader = await self._victim()
        at = now()
        victim.signal(signal.SIGKILL)
        victim.process.wait()
        await self.watcher.look()
        held = self.watcher.held_when_killed(victim.name, at)
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
        leader = (await self.watcher.look()).leader_id
        running = self.processes.running
        leading = [c for c in running if c.name == leader]
        others = [c for c in running if c.name != leader]
        # The next steps of the scenario need a leader again.
        if leading and self.seconds >= 3 * crash_bound(Config(), led=True):
            return leading[0], leader
        return self._largest_owner(others or leading), leader

    async def _stop(self) -> Event:
        await self.watcher.look()
        child = self._largest_owner(self.processes.running)
        at = now()
        child.signal(signal.SIGTERM)
        return Event(
            kind="stop", at=at, client=child.name, text=f"stop {child.name} (SIGTERM)"
        )

    def _largest_owner(self, children: Sequence[Child]) -> Child:
        """Return the client with the most shards."""
        seen = self.watcher.latest
        return max(children, key=lambda child: len(shards_of(seen, child.name)))


# --- the state store's rows -----------------------------------------------------------


class Watcher:
    """Reads all rows of the group repeatedly, and keeps what each read found."""

    def __init__(self, store: StateStore, app: str) -> None:
        self.latest: Snapshot = Snapshot([], None, [], {})
        self._history: list[tuple[float, Snapshot]] = []  # with the end of each read
        self._store, self._app = store, app

    async def look(self) -> Snapshot:
        """Read all rows."""
        self.latest = await read_snapshot(self._store, self._app)
        self._history.append((now(), self.latest))
        return self.latest

    def uncommitted(self, records: Iterable[Produced]) -> Iterator[Produced]:
        """Yield the records that no checkpoint covered at the last read."""
        positions = {row.key: row.position for row in self.latest.rows}
        for record in records:
            position = positions.get(record.shard)
            if position is None or position < record.position:
                yield record

    def held_when_killed(self, client_id: str, at: float) -> set[ShardKey]:
        """Return the shards of a killed client before it was declared dead.

        Until then, a plan may give it more shards.
        """
        found: set[ShardKey] = set()
        for seen_at, seen in self._history:
            is_alive = any(member.client_id == client_id for member in seen.alive)
            if seen_at >= at and is_alive:
                found |= shards_of(seen, client_id)
        return found


def shards_of(seen: Snapshot, client_id: str) -> set[ShardKey]:
    """Return the open shards that a client owns or that the plan gives it."""
    ranges = (member.range for member in seen.members if member.client_id == client_id)
    planned = next(ranges, None) or ()
    return {
        row.key
        for row in seen.rows
        if not row.ended
        and (
            row.owner_id == client_id
            or contains(planned, row.key.stream_arn, row.first_hash)
        )
    }
