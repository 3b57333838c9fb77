"""Run a group of processes under faults, show its progress, and judge the result."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from kinesumer.aws.dynamodb import ensure_table, open_store
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.sources import open_polled_source
from kinesumer.aws.table_streams import TableStreamSource
from kinesumer.model.streams import Stream
from kinesumer.ops.cli.tables import status_picture
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.status import GroupReport, report
from kinesumer.runtime.text import MAX_NAMED
from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.journal import (
    Handled,
    Journal,
    Producer,
    RecordCounts,
    now,
)
from kinesumer.testing.trial.oracle import Parents, Run, read_run
from kinesumer.testing.trial.processes import (
    CONFIG,
    WAIT_SECONDS,
    Child,
    Processes,
    TrialStream,
)
from kinesumer.testing.trial.scenario import Scenario, Watcher
from kinesumer.testing.trial.spark_process import SPARK_SECONDS, SparkProcess
from kinesumer.testing.trial.table_items import TableProducer, find_changes
from kinesumer.testing.trial.verdict import (
    Event,
    Line,
    Verdict,
    conclusion,
    judge_pauses,
    judge_promises,
    judge_repeats,
    nothing,
)

CHECK_SECONDS = 0.5
CATCH_UP_SECONDS = 60.0


class TrialOptions(NamedTuple):
    """The options of a trial."""

    seconds: float
    clients: int
    rate: int
    spark: bool


class View(NamedTuple):
    """The state of a run."""

    seconds: float
    of_seconds: float
    phase: str
    produced: int
    processed: int
    per_second: float
    behind: Sequence[int]  # how many records of each stream are not processed yet
    group: GroupReport


def progress_text(view: View) -> str:
    """Return how many records were produced and processed, and how many are left."""
    return (
        f"produced {view.produced:,}, processed {view.processed:,} "
        f"({view.per_second:.0f}/s), behind {' + '.join(map(str, view.behind))}"
    )


class Plain:
    """Prints lines, for logs and for terminals without cursor control."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._next = 0.0

    def event(self, seconds: float, text: str) -> None:
        """Print an event as one line."""
        self._write(f"{seconds:6.1f} s  * {text}")

    def update(self, view: View) -> None:
        """Print the current state in one line, but only every five seconds."""
        if view.seconds < self._next:
            return
        self._next = view.seconds + 5
        clients = ", ".join(
            f"{c.client_id}{' (leader)' if c.leader else ''} {c.shards} shards"
            for c in view.group.members
        )
        self._write(f"{view.seconds:6.1f} s    {progress_text(view)}; {clients}")

    def close(self) -> None:
        """Do nothing, since printed lines need no cleanup."""


class Picture:
    """Draws the state of a run over the previous drawing in the terminal."""

    def __init__(self) -> None:
        self._events: list[tuple[float, str]] = []
        self._view: View | None = None
        self._live = Live(
            console=Console(),
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def event(self, seconds: float, text: str) -> None:
        """Add an event to the list."""
        self._events.append((seconds, text))
        self._draw()

    def update(self, view: View) -> None:
        """Draw the current state."""
        self._view = view
        self._draw()

    def close(self) -> None:
        """Leave the last picture on the terminal."""
        self._live.stop()

    def _draw(self) -> None:
        view = self._view
        if view is None:
            return
        about = f"{view.seconds:5.1f} s of {view.of_seconds:g} s, {view.phase}"
        head = Text(f"{about}: {progress_text(view)}", "bold")
        latest = self._events[-MAX_NAMED:]
        events = [Text(f"{at:6.1f} s  {text}") for at, text in latest]
        picture = Group(head, status_picture(view.group), "", *events)
        self._live.update(picture, refresh=True)


# --- the trial ------------------------------------------------------------------------


class Trial:
    """One run of a group through the scenario."""

    def __init__(
        self,
        options: TrialOptions,
        processes: Processes,
        screen: Plain | Picture,
        clients: ClientFactory,
        streams: list[TrialStream],
    ) -> None:
        self.faults: list[str] = []  # found during the run
        self.verdict: Verdict
        self.spark_verdict: Verdict = Verdict([])
        self.observed: Run  # all that happened
        self.processes = processes
        self._options = options
        self._screen = screen
        self._clients, self._streams = clients, streams
        self._counts = RecordCounts(stream.arn for stream in streams)
        self._started = now()
        self._phase = "starting"
        self._journals: dict[str, Journal[Handled]] = {}
        self._ended: set[str] = set()
        # Recent samples: a time, and the number of records processed by then.
        self._rates: list[tuple[float, int]] = []
        self._spark: SparkProcess | None = None
        self._watcher: Watcher

    async def run(self) -> list[str]:
        """Run the scenario, and return its report. Keep the verdicts."""
        with closing(self._screen):
            return await self._run()

    async def _run(self) -> list[str]:
        clients, streams = self._clients, self._streams
        names = self.processes.names
        store = await open_store(clients, names.table)
        await ensure_table(store)
        self._watcher = Watcher(store, names.app)
        opened = []
        for stream in streams:
            role = clients.role(stream.writer_role) if stream.writer_role else None
            service = "dynamodb" if stream.is_of_table else "kinesis"
            opened.append((await clients.open(service, role=role)).client)
        sources = [
            await open_polled_source(clients, Stream(s.arn, role_arn=s.writer_role))
            for s in streams
        ]
        if self._options.spark:
            await self._start_spark()
        scenario = Scenario(
            seconds=self._options.seconds,
            clients=self._options.clients,
            streams=streams,
            sources=sources,
            kinesis=opened[0],
            processes=self.processes,
            watcher=self._watcher,
            report=self._show_event,
            spark=self._spark,
        )
        self._started = now()
        await self._begin(scenario)
        observer = asyncio.create_task(self._observe())
        try:
            await self._produce(opened, scenario)
            self._phase = "catching up"
            await self._catch_up()
            self._phase = "stopping"
            await self._stop_clients()
            await self._watcher.look()
            self._collect()
            for source in sources:
                if isinstance(source, TableStreamSource):
                    self.faults += await find_changes(source, self._counts)
            run = self.observed = self._read_run()
            await self._judge_spark(run.parents)
        finally:
            observer.cancel()
        self._judge(run, scenario.events)
        verdict = Verdict([*self.verdict.lines, *self.spark_verdict.lines])
        return ["", verdict.text(), "", *conclusion(verdict.faults())]

    async def _start_spark(self) -> None:
        """Start Spark before the clients, since a starting JVM would slow them."""
        spark = SparkProcess(self.processes, self._streams, self._counts)
        # The clients are judged also without Spark.
        if problem := await spark.try_start():
            self.spark_verdict = Verdict([nothing("faults of Spark", [problem])])
            self._say(problem)
        else:
            self._spark = spark
            self._say("Spark's query runs")

    async def _begin(self, scenario: Scenario) -> None:
        at = now()
        for _ in range(self._options.clients):
            self.processes.start_client(self._streams)
        names = ", ".join(child.name for child in self.processes.clients)
        scenario.add(Event(kind="start", at=at, text=f"start {names}"))
        self._phase = "producing"

    async def _produce(self, opened: list[Any], scenario: Scenario) -> None:
        """Produce records for the run's duration, while the scenario causes events."""
        stop, numbers = asyncio.Event(), count(1)
        rate = self._options.rate / len(opened)
        async with asyncio.TaskGroup() as tasks:
            for index, client in enumerate(opened):
                stream = self._streams[index]
                make = TableProducer if stream.is_of_table else Producer
                producer = make(stream.arn, client, self._counts, self._say)
                tasks.create_task(producer.run(rate, numbers, stop))
            tasks.create_task(scenario.run(self._started))
            left = self._started + self._options.seconds - now()
            await asyncio.sleep(max(0.0, left))
            stop.set()
        self._say(f"producing ends after {self._counts.total:,} records")

    async def _catch_up(self) -> None:
        spark = self._spark
        seconds = CATCH_UP_SECONDS if spark is None else SPARK_SECONDS
        deadline = now() + seconds
        while now() < deadline:
            self._collect()
            is_behind = any(self._counts.waiting.values())
            if not is_behind and (spark is None or await spark.has_all_rows()):
                self._say("everything is processed")
                return
            await asyncio.sleep(CHECK_SECONDS / 2)
        self.faults.append(f"not everything was processed {seconds:g} s after the end")

    async def _stop_clients(self) -> None:
        running = [child for child in self.processes.clients if child.is_running]
        for child in self.processes.running:
            child.signal(signal.SIGTERM)
        deadline = now() + WAIT_SECONDS
        while now() < deadline and any(child.is_running for child in running):
            await asyncio.sleep(CHECK_SECONDS / 10)
        for child in running:
            if child.is_running:
                self.faults.append(f"{child.name} didn't end within {WAIT_SECONDS:g} s")
        self._say("all clients have left")

    def _read_run(self) -> Run:
        """Return all that was observed, after all clients have ended."""
        counts, processes = self._counts, self.processes
        found = counts.produced, counts.handled, counts.uncertain
        return read_run(processes.histories, processes.names.app, *found)

    async def _judge_spark(self, parents: Parents) -> None:
        """Judge the output of the Spark query."""
        if self._spark is None:
            return
        problems = [self._spark.unexpected_end(), await self._spark.end()]
        verdict = await self._spark.judge(parents)
        faults = nothing("faults of Spark", [*filter(None, problems)])
        self.spark_verdict = Verdict([*verdict.lines, faults])

    def _judge(self, run: Run, events: list[Event]) -> None:
        """Judge the run."""
        for event in events:
            if event.kind == "kill":
                event.shards = self._watcher.held_when_killed(event.client, event.at)
        counts, watcher = self._counts, self._watcher
        missing = [f"{record}" for record in watcher.uncommitted(counts.produced)]
        limits = CONFIG.drain_timeout_seconds, CONFIG.max_uncommitted_records
        self.verdict = Verdict(
            [
                *judge_promises(run, self.processes.histories),
                nothing("records of a key out of order", [*oracle.out_of_order(run)]),
                *judge_repeats(run, *limits),
                Line("KPL aggregates", f"{counts.aggregates}"),
                nothing("records not committed after all clients have left", missing),
                nothing("other faults", self.faults),
                *judge_pauses(run, events),
            ]
        )

    async def _observe(self) -> None:
        while True:
            began = now()
            self._collect()
            try:
                await self._watcher.look()
            except Exception as error:
                self._say(f"can't read the state store: {error}")
            self._screen.update(self._view())
            took = now() - began
            # If the checks take long, sleep anyway, so that they don't slow the
            # clients.
            await asyncio.sleep(max(CHECK_SECONDS - took, CHECK_SECONDS / 2))

    def _collect(self) -> None:
        """Count the records that clients have logged, and report each client's end."""
        for child in self.processes.clients:
            name = child.name
            if name not in self._journals:
                self._journals[name] = Journal(self.processes.journal(name), Handled)
            for entry in self._journals[name].follow():
                self._counts.add_handled(entry)
            if not child.is_running and name not in self._ended:
                self._ended.add(name)
                self._report_end(child)

    def _report_end(self, child: Child) -> None:
        """Report a client's end, which is a fault unless it was ended from here."""
        status = child.process.returncode
        self._say(f"{child.name} has ended (status {status})")
        if child.sent is None or (child.sent == signal.SIGTERM and status):
            self.faults.append(
                f"{child.name} ended with status {status}: {child.last_log_line()}"
            )

    def _view(self) -> View:
        at, counts, names = now(), self._counts, self.processes.names
        self._rates = [*self._rates[-4:], (at, len(counts.seen))]
        (first, before), (_, processed) = self._rates[0], self._rates[-1]
        return View(
            seconds=at - self._started,
            of_seconds=self._options.seconds,
            phase=self._phase,
            produced=counts.total,
            processed=processed,
            per_second=(processed - before) / max(CHECK_SECONDS, at - first),
            behind=[len(counts.waiting[stream.arn]) for stream in self._streams],
            group=report(names.app, names.table, FleetView(self._watcher.latest)),
        )

    def _show_event(self, event: Event) -> None:
        self._screen.event(event.at - self._started, event.text)

    def _say(self, text: str) -> None:
        self._screen.event(now() - self._started, text)
