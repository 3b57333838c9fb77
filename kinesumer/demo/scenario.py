"""What happens to the group while it works: reshards, a kill, a stop, a join."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesumer.core import lineage
from kinesumer.demo.record_log import shard_number
from kinesumer.demo.store_checks import held_by

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kinesumer.demo.pauses import Place
    from kinesumer.demo.processes import Child, Processes
    from kinesumer.demo.settings import DemoStream, Options
    from kinesumer.demo.store_checks import Watch
    from kinesumer.model.streams import Shard
    from kinesumer.ports import StreamSource

LEADER_RUN_SECONDS = 40.0
"""The leader is killed only in runs that are long enough for what comes after."""


@dataclass(kw_only=True)
class Event:
    """Something that was done to the group, at a time of the monotonic clock."""

    kind: str
    at: float
    text: str
    client: str = ""
    was_leader: bool = False
    places: set[Place] = field(default_factory=set)
    """Shards of a client that was killed."""


class Story:
    """Does one thing after the other, evenly spread over the time given."""

    def __init__(
        self,
        options: Options,
        streams: list[DemoStream],
        processes: Processes,
        watch: Watch,
        kinesis: Any,
        sources: Sequence[StreamSource],
        tell: Callable[[Event], None],
        crash_spark: Callable[[], Awaitable[Event]] | None,
    ) -> None:
        self.events: list[Event] = []
        self._options = options
        self._streams = streams
        self._processes = processes
        self._watch = watch
        self._kinesis = kinesis
        self._sources = sources
        self._tell = tell
        self._crash_spark = crash_spark

    async def run(self, started: float) -> None:
        """Play the story; it is over before the time is."""
        steps: list[Callable[[], Awaitable[Event]]] = [
            self._split,
            self._join,
            self._kill,
            self._merge,
            self._stop,
        ]
        if self._crash_spark is not None:
            # Right after a split: the query has parents to end and children to begin.
            steps.insert(1, self._crash_spark)
        if self._options.clients == 1:
            # One is killed and one is stopped: somebody has to be left.
            steps.insert(0, self._join)
        for place, step in enumerate(steps, start=1):
            due = started + place * self._options.seconds / (len(steps) + 1)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.note(await step())

    def note(self, event: Event) -> None:
        """Add an event to the story."""
        self.events.append(event)
        self._tell(event)

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
        orphans = self._watch.orphans[victim.name] = set()
        await self._watch.look()
        was_leader = victim.name == leader
        role = ", the leader" if was_leader else ""
        return Event(
            kind="kill",
            at=at,
            client=victim.name,
            text=f"kill {victim.name}{role} (SIGKILL, {len(orphans)} shards)",
            was_leader=was_leader,
        )

    async def _victim(self) -> tuple[Child, str | None]:
        found = await self._watch.look()
        running, leader = self._processes.running, found.leader_id
        leading = [c for c in running if c.name == leader]
        others = [c for c in running if c.name != leader]
        if leading and self._options.seconds >= LEADER_RUN_SECONDS:
            return leading[0], leader
        return max(others or leading, key=lambda c: len(held_by(found, c.name))), leader

    async def _stop(self) -> Event:
        found = await self._watch.look()
        running = self._processes.running
        child = max(running, key=lambda c: len(held_by(found, c.name)))
        at = time.monotonic()
        child.signal(signal.SIGTERM)
        return Event(
            kind="stop", at=at, client=child.name, text=f"stop {child.name} (SIGTERM)"
        )
