"""One demo, from the first process to the verdict."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from kinesumer.aws.dynamodb import create_table, open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.demo import report
from kinesumer.demo.counts import Ledger, Processed
from kinesumer.demo.processes import Processes
from kinesumer.demo.producer import Numbers, Producer
from kinesumer.demo.record_log import JournalReader, shard_number
from kinesumer.demo.scenario import Event, Story
from kinesumer.demo.settings import APP, TABLE
from kinesumer.demo.spark_process import SparkSide
from kinesumer.demo.store_checks import Watch
from kinesumer.demo.verdict import judge
from kinesumer.demo.view import ClientView, StreamView, View, shard_counts
from kinesumer.model.streams import Stream

if TYPE_CHECKING:
    from pathlib import Path

    from kinesumer.demo import settings
    from kinesumer.demo.pauses import Place
    from kinesumer.demo.processes import Child
    from kinesumer.demo.settings import DemoStream, Options
    from kinesumer.demo.verdict import Verdict
    from kinesumer.demo.view import Screen
    from kinesumer.model.streams import ShardKey

LOOK_SECONDS = 0.5
CATCH_UP_SECONDS = 60.0
SPARK_SECONDS = 180.0
"""The same with a Spark query, whose JVM starts and works at low priority."""
LEAVE_SECONDS = 20.0


class Demo:
    """Everything of one run."""

    def __init__(self, options: Options, directory: Path, screen: Screen) -> None:
        self.faults: list[str] = []
        self.processes = Processes(directory)
        self._options = options
        self._screen = screen
        self._started = time.monotonic()
        self._phase = "starting"
        self._journals: dict[str, JournalReader] = {}
        self._ended: set[str] = set()
        self._counts: list[tuple[float, dict[str, int]]] = []
        self._spark: SparkSide | None = None
        self._ledger: Ledger
        self._watch: Watch
        self._streams: list[DemoStream]

    async def run(self) -> list[str]:
        """Run the demo and return its last words; ``faults`` are empty if all is
        well."""
        try:
            place = await self.processes.start_server(self._options.shards)
            os.environ.clear()
            os.environ.update(self.processes.environment)
            async with ClientFactory() as clients:
                return await self._run(clients, place)
        finally:
            self._screen.close()
            await self.processes.end_all()

    async def _run(self, clients: ClientFactory, place: settings.Place) -> list[str]:
        streams = self._streams = place.streams
        self._ledger = Ledger(len(streams))
        store = await open_store(clients, TABLE)
        await create_table(store)
        self._watch = Watch(store, APP)
        opened = [await _open_kinesis(clients, stream) for stream in streams]
        sources = [await open_source(clients, _of_producer(s)) for s in streams]
        if self._options.spark:
            self._spark = SparkSide(self.processes, streams, self._ledger)
        story = Story(
            self._options,
            streams,
            self.processes,
            self._watch,
            opened[0],
            sources,
            self._tell,
            None if self._spark is None else self._spark.crash,
        )
        self._started = time.monotonic()
        await self._begin(story)
        async with AsyncExitStack() as stack:
            observer = asyncio.create_task(self._observe())
            stack.callback(observer.cancel)
            await self._produce(opened, story)
            self._phase = "catching up"
            await self._catch_up()
            self._phase = "stopping"
            await self._stop_clients()
            await self._watch.look()
            self._collect()
            rows = await self._spark_verdict()
        return self._conclude(story.events, rows)

    async def _begin(self, story: Story) -> None:
        if self._spark is not None:
            # First: the clients' pauses are measured, and a JVM starts at their cost.
            await self._spark.start()
            self._say("Spark's query runs")
            self._started = time.monotonic()
        count = self._options.clients
        at = time.monotonic()
        for _ in range(count):
            await self.processes.start_client(self._streams)
        names = ", ".join(child.name for child in self.processes.clients)
        story.note(Event(kind="start", at=at, text=f"start {names}"))
        self._phase = "producing"

    async def _produce(self, opened: list[Any], story: Story) -> None:
        """Produce for the time given, while the story is played."""
        stop, numbers = asyncio.Event(), Numbers()
        rate = self._options.rate / len(opened)
        async with asyncio.TaskGroup() as tasks:
            for index, kinesis in enumerate(opened):
                arn = self._streams[index].arn
                producer = Producer(index, arn, kinesis, self._ledger, self._say)
                tasks.create_task(producer.run(rate, numbers, stop))
            tasks.create_task(story.run(self._started))
            left = self._started + self._options.seconds - time.monotonic()
            await asyncio.sleep(max(0.0, left))
            stop.set()
        self._say(f"producing ends after {len(self._ledger.produced):,} records")

    async def _catch_up(self) -> None:
        seconds = CATCH_UP_SECONDS if self._spark is None else SPARK_SECONDS
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._collect()
            if self._ledger.is_level and await self._spark_is_level():
                self._say("everything is processed")
                return
            await asyncio.sleep(LOOK_SECONDS / 2)
        self.faults.append(f"not everything was processed {seconds:g} s after the end")

    async def _spark_is_level(self) -> bool:
        return self._spark is None or await self._spark.is_level()

    async def _stop_clients(self) -> None:
        running = [child for child in self.processes.clients if child.is_running]
        for child in self.processes.running:
            child.signal(signal.SIGTERM)
        stopped = await asyncio.gather(*(c.wait(LEAVE_SECONDS) for c in running))
        for child, in_time in zip(running, stopped, strict=True):
            if not in_time:
                self.faults.append(
                    f"{child.name} didn't end within {LEAVE_SECONDS:g} s"
                )
        self._say("all clients have left")

    async def _spark_verdict(self) -> list[str]:
        """Return what the verdict says of Spark's rows."""
        if self._spark is None:
            return []
        if problem := self._spark.ended_by_itself():
            self.faults.append(problem)
        await self._spark.end()
        verdict = await self._spark.judge(self._parents())
        self.faults += verdict.broken()
        return verdict.lines(self._spark.killed)

    def _parents(self) -> dict[Place, list[Place]]:
        return {
            self._place(key): [
                self._place(key._replace(shard_id=parent)) for parent in names
            ]
            for key, names in self._watch.parents.items()
        }

    def _conclude(self, events: list[Event], spark_rows: list[str]) -> list[str]:
        watch = self._watch
        self.faults += watch.went_back
        self._check_ends(events)
        self._check_stored()
        for event in events:
            orphans = watch.orphans.get(event.client, ())
            if event.kind == "kill":
                event.places = {self._place(key) for key in orphans}
        verdict: Verdict = judge(self._ledger, self._parents(), events, self.faults)
        self.faults = verdict.broken
        return report.lines(
            verdict,
            aggregates=self._ledger.aggregates,
            went_back=len(watch.went_back),
            started=self._started,
            streams=[stream.label for stream in self._streams],
            spark_rows=spark_rows,
        )

    def _place(self, key: ShardKey) -> Place:
        arns = [stream.arn for stream in self._streams]
        return arns.index(key.stream_arn), shard_number(key.shard_id)

    def _check_ends(self, events: list[Event]) -> None:
        """Every client ends as it was told to, and by itself with status 0."""
        killed = {event.client for event in events if event.kind == "kill"}
        for child in self.processes.clients:
            status = child.process.returncode
            if child.name not in killed and status not in (0, None):
                self.faults.append(
                    f"{child.name} ended with status {status}: {child.last_words()}"
                )

    def _check_stored(self) -> None:
        """What is done has to be stored once all clients have left in order."""
        numbers: dict[Place, list[str]] = defaultdict(list)
        for record in self._ledger.produced:
            numbers[record.stream, record.shard].append(record.sequence_number)
        for key in self._watch.parents:
            stored = self._watch.stored(key)
            missing = sum(
                (len(number), number) > (len(stored), stored)
                for number in numbers[self._place(key)]
            )
            if missing:
                stream, shard = self._place(key)
                self.faults.append(
                    f"{self._streams[stream].label} shard {shard}: {missing:,} records "
                    "aren't stored as done after all clients have left"
                )

    # --- watching -------------------------------------------------------------------

    async def _observe(self) -> None:
        while True:
            began = time.monotonic()
            self._collect()
            try:
                await self._watch.look()
            except Exception as error:
                self._say(f"the state store can't be read: {error}")
            self._screen.update(self._view())
            took = time.monotonic() - began
            await asyncio.sleep(max(LOOK_SECONDS - took, LOOK_SECONDS / 2))

    def _collect(self) -> None:
        """Take in what the clients have noted, and who has ended."""
        for child in self.processes.clients:
            name = child.name
            if name not in self._journals:
                path = self.processes.journal(name)
                self._journals[name] = JournalReader(path)
            for at, number, stream, shard, epoch in self._journals[name].news():
                entry = Processed(at, number, stream, shard, epoch, name)
                self._ledger.note(entry)
            if not child.is_running and name not in self._ended:
                self._ended.add(name)
                self._say_ended(child)

    def _say_ended(self, child: Child) -> None:
        status = child.process.returncode
        if child.told_to_end:
            self._say(f"{child.name} has ended (status {status})")
        else:
            self._say(f"{child.name} ended by itself: {child.last_words()}")
            self.faults.append(f"{child.name} ended without being told to")

    def _view(self) -> View:
        now, ledger, found = time.monotonic(), self._ledger, self._watch.latest
        self._counts = [*self._counts[-4:], (now, dict(ledger.by_client))]
        return View(
            seconds=now - self._started,
            of_seconds=self._options.seconds,
            phase=self._phase,
            produced=len(ledger.produced),
            processed=len(ledger.first_at),
            per_second=sum(self._rate(child.name) for child in self.processes.clients),
            streams=[
                StreamView(
                    stream.label,
                    found.shards.get(stream.arn, []),
                    ledger.behind(index),
                    now - (ledger.oldest_waiting(index) or now),
                )
                for index, stream in enumerate(self._streams)
            ],
            clients=[self._client_view(child) for child in self.processes.clients],
        )

    def _client_view(self, child: Child) -> ClientView:
        found = self._watch.latest
        members = {member.client_id: member for member in found.alive}
        state = "ended"
        if child.is_running:
            state = "leaving" if child.told_to_end else "running"
        member = members.get(child.name)
        return ClientView(
            child.name,
            state,
            member.index if member else None,
            found.leader_id == child.name,
            shard_counts(found.shards).get(child.name, 0),
            self._rate(child.name),
        )

    def _rate(self, client: str) -> float:
        (first, before), (last, now) = self._counts[0], self._counts[-1]
        if last == first:
            return 0.0
        return (now.get(client, 0) - before.get(client, 0)) / (last - first)

    def _tell(self, event: Event) -> None:
        self._screen.event(event.at - self._started, event.text)

    def _say(self, text: str) -> None:
        self._screen.event(time.monotonic() - self._started, text)


async def _open_kinesis(clients: ClientFactory, stream: DemoStream) -> Any:
    """Return a Kinesis client that may write to a stream."""
    role = clients.role(stream.writer_role) if stream.writer_role else None
    return (await clients.open("kinesis", role=role)).client


def _of_producer(stream: DemoStream) -> Stream:
    return Stream(stream.arn, role_arn=stream.writer_role)
