"""The scenario of a run: a split, a join, a kill, a merge and a stop.

The module also checks in the state store that no checkpoint and no epoch goes back.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesumer.core import lineage
from kinesumer.model.streams import stream_name
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.testing.trial.events import Event
from kinesumer.testing.trial.journal import now
from kinesumer.testing.trial.oracle import is_older
from kinesumer.testing.trial.verdict import shard_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Shard, ShardKey
    from kinesumer.ports import StateStore, StreamSource
    from kinesumer.testing.trial.journal import Produced
    from kinesumer.testing.trial.processes import Child, Processes, TrialStream
    from kinesumer.testing.trial.spark_process import SparkProcess

# The scenario kills the leader only if the run is at least this long, since the group
# needs some time to replace a leader.
MIN_LEADER_CRASH_SECONDS = 40.0


@dataclass(kw_only=True)
class Scenario:
    """Causes the events of a run one by one, at equal intervals."""

    seconds: float
    clients: int
    streams: list[TrialStream]
    sources: Sequence[StreamSource]
    # A Kinesis client with permission to split and merge shards of the first two
    # streams.
    kinesis: Any
    processes: Processes
    checker: StoreChecker
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
        stream = 1 if len(await self._open(1)) > 1 else 0
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

    async def _open(self, stream: int) -> list[Shard]:
        return lineage.leaves(await self.sources[stream].list_shards())

    async def _join(self) -> Event:
        at = now()
        child = await self.processes.start_client(self.streams)
        return Event(kind="join", at=at, client=child.name, text=f"start {child.name}")

    async def _kill(self) -> Event:
        victim, leader = await self._victim()
        at = now()
        victim.signal(signal.SIGKILL)
        await victim.process.wait()
        held = self.checker.shards_of_killed[victim.name] = set()
        await self.checker.check()
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
        rows = await self.checker.check()
        running, leader = self.processes.running, rows.leader_id
        leading = [c for c in running if c.name == leader]
        others = [c for c in running if c.name != leader]
        if leading and self.seconds >= MIN_LEADER_CRASH_SECONDS:
            return leading[0], leader
        return _largest_owner(others or leading, rows), leader

    async def _stop(self) -> Event:
        rows = await self.checker.check()
        child = _largest_owner(self.processes.running, rows)
        at = now()
        child.signal(signal.SIGTERM)
        return Event(
            kind="stop", at=at, client=child.name, text=f"stop {child.name} (SIGTERM)"
        )


def _largest_owner(children: Sequence[Child], rows: Snapshot) -> Child:
    """Return the client with the most shards."""
    return max(children, key=lambda child: len(shards_of(rows, child.name)))


# --- the checks of the state store's rows ---------------------------------------------


class StoreChecker:
    """Reads all rows of the group repeatedly, and notes each value that goes back."""

    def __init__(self, store: StateStore, app: str) -> None:
        self.latest: Snapshot = Snapshot([], None, [], {})
        self.parents: dict[ShardKey, list[ShardKey]] = {}
        self.regressions: list[str] = []
        # For each killed client, the shards that were its own before it was declared
        # dead.
        self.shards_of_killed: dict[str, set[ShardKey]] = {}
        self._store, self._app = store, app
        self._rows: dict[ShardKey, ShardRow] = {}

    async def check(self) -> Snapshot:
        """Read all rows, and compare them with the previous ones."""
        latest = await read_snapshot(self._store, self._app)
        for shards in latest.shards.values():
            for row in shards:
                self._compare(row)
        for member in latest.alive:
            # A plan may give a killed client more shards until it is declared dead.
            if member.client_id in self.shards_of_killed:
                held = shards_of(latest, member.client_id)
                self.shards_of_killed[member.client_id] |= held
        self.latest = latest
        return latest

    def is_committed(self, record: Produced) -> bool:
        """Return whether the checkpoint of a record's shard covers the record."""
        row = self._rows.get(record.shard)
        if row is None or row.position is None:
            return False
        return record.position <= row.position

    def _compare(self, row: ShardRow) -> None:
        before = self._rows.get(row.key)
        self._rows[row.key] = row
        self.parents[row.key] = [
            row.key._replace(shard_id=parent) for parent in row.parents
        ]
        if before is not None and is_older(row, before):
            name = f"{stream_name(row.key.stream_arn)} {row.key.shard_id}"
            self.regressions.append(f"{name}: {row} went back from {before}")


def shards_of(rows: Snapshot, client_id: str) -> set[ShardKey]:
    """Return the open shards that a client owns or that the plan gives it."""
    ranges = [m.range or () for m in rows.members if m.client_id == client_id]
    return {
        row.key
        for shards in rows.shards.values()
        for row in shards
        if not row.ended
        and (
            row.owner_id == client_id
            or any(
                arn == row.key.stream_arn and first <= row.first_hash <= last
                for range_ in ranges
                for arn, first, last in range_
            )
        )
    }
