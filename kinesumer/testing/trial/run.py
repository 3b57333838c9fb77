"""Run a group of processes under faults, and judge the result."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.aws.dynamodb import ensure_table, open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.model.streams import Stream
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.status import report
from kinesumer.testing.trial.events import Event, RecordCounts
from kinesumer.testing.trial.journal import Journal, now
from kinesumer.testing.trial.producer import Producer
from kinesumer.testing.trial.scenario import Scenario, StoreChecker
from kinesumer.testing.trial.spark_process import SparkProcess
from kinesumer.testing.trial.verdict import judge, place, report_lines
from kinesumer.testing.trial.view import View

if TYPE_CHECKING:
    from kinesumer.aws.session import ClientFactory
    from kinesumer.testing.trial.processes import Child, Processes, TrialStream
    from kinesumer.testing.trial.verdict import Verdict
    from kinesumer.testing.trial.view import Screen

CHECK_SECONDS = 0.5
CATCH_UP_SECONDS = 60.0
# A Spark query needs more time to catch up, since its JVM runs at low priority.
SPARK_CATCH_UP_SECONDS = 180.0
LEAVE_SECONDS = 20.0


class TrialOptions(NamedTuple):
    """The options of a trial."""

    seconds: float
    clients: int
    shards: int
    rate: int
    plain: bool
    spark: bool


class Trial:
    """One run of a group through the scenario."""

    def __init__(
        self, options: TrialOptions, processes: Processes, screen: Screen
    ) -> None:
        # What was violated, without what concerns the Spark query.
        self.faults: list[str] = []
        self.spark_faults: list[str] = []
        self.verdict: Verdict
        self.processes = processes
        self._options = options
        self._screen = screen
        self._started = now()
        self._phase = "starting"
        self._journals: dict[str, Journal] = {}
        self._ended: set[str] = set()
        # Recent samples: a time, and the number of records processed by then.
        self._rates: list[tuple[float, int]] = []
        self._spark: SparkProcess | None = None
        self._counts: RecordCounts
        self._checker: StoreChecker
        self._streams: list[TrialStream]

    async def run(
        self, clients: ClientFactory, streams: list[TrialStream]
    ) -> list[str]:
        """Run the scenario, and return its report.

        Keep the verdict, and list all violations in ``faults`` and ``spark_faults``.
        """
        try:
            return await self._run(clients, streams)
        finally:
            self._screen.close()
            await self.processes.end_all()

    async def _run(
        self, clients: ClientFactory, streams: list[TrialStream]
    ) -> list[str]:
        self._streams = streams
        self._counts = RecordCounts(stream.arn for stream in streams)
        names = self.processes.names
        store = await open_store(clients, names.table)
        await ensure_table(store)
        self._checker = StoreChecker(store, names.app)
        opened = []
        for stream in streams:
            role = clients.role(stream.writer_role) if stream.writer_role else None
            opened.append((await clients.open("kinesis", role=role)).client)
        sources = [
            await open_source(clients, Stream(s.arn, role_arn=s.writer_role))
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
            checker=self._checker,
            report=self._show_event,
            spark=self._spark,
        )
        self._started = now()
        await self._begin(scenario)
        async with AsyncExitStack() as stack:
            observer = asyncio.create_task(self._observe())
            stack.callback(observer.cancel)
            await self._produce(opened, scenario)
            self._phase = "catching up"
            await self._catch_up()
            self._phase = "stopping"
            await self._stop_clients()
            await self._checker.check()
            self._collect()
            spark_lines = await self._judge_spark()
        return self._conclude(scenario.events, spark_lines)

    async def _start_spark(self) -> None:
        """Start Spark before the clients, since a starting JVM would slow them."""
        spark = SparkProcess(self.processes, self._streams, self._counts)
        # The clients are judged also without Spark.
        if problem := await spark.try_start():
            self.spark_faults.append(problem)
            self._say(problem)
        else:
            self._spark = spark
            self._say("Spark's query runs")

    async def _begin(self, scenario: Scenario) -> None:
        at = now()
        for _ in range(self._options.clients):
            await self.processes.start_client(self._streams)
        names = ", ".join(child.name for child in self.processes.clients)
        scenario.add(Event(kind="start", at=at, text=f"start {names}"))
        self._phase = "producing"

    async def _produce(self, opened: list[Any], scenario: Scenario) -> None:
        """Produce records for the run's duration, while the scenario causes events."""
        stop, numbers = asyncio.Event(), count(1)
        rate = self._options.rate / len(opened)
        async with asyncio.TaskGroup() as tasks:
            for index, kinesis in enumerate(opened):
                arn = self._streams[index].arn
                producer = Producer(arn, kinesis, self._counts, self._say)
                tasks.create_task(producer.run(rate, numbers, stop))
            tasks.create_task(scenario.run(self._started))
            left = self._started + self._options.seconds - now()
            await asyncio.sleep(max(0.0, left))
            stop.set()
        self._say(f"producing ends after {len(self._counts.produced):,} records")

    async def _catch_up(self) -> None:
        seconds = CATCH_UP_SECONDS if self._spark is None else SPARK_CATCH_UP_SECONDS
        deadline = now() + seconds
        while now() < deadline:
            self._collect()
            if self._counts.all_processed and await self._spark_has_all_rows():
                self._say("everything is processed")
                return
            await asyncio.sleep(CHECK_SECONDS / 2)
        self.faults.append(f"not everything was processed {seconds:g} s after the end")

    async def _spark_has_all_rows(self) -> bool:
        return self._spark is None or await self._spark.has_all_rows()

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

    async def _judge_spark(self) -> list[str]:
        """Judge the output of the Spark query, and return the lines for the report."""
        if self._spark is None:
            return []
        if problem := self._spark.unexpected_end():
            self.spark_faults.append(problem)
        if problem := await self._spark.end():
            self.spark_faults.append(problem)
        verdict = await self._spark.judge(self._checker.parents)
        self.spark_faults += verdict.faults()
        return verdict.lines(self._spark.crash_text)

    def _conclude(self, events: list[Event], spark_lines: list[str]) -> list[str]:
        """Judge the run, and return its report."""
        checker = self._checker
        self.faults += checker.regressions
        self._check_exit_statuses(events)
        self._check_committed()
        for event in events:
            if event.kind == "kill":
                event.shards = checker.shards_of_killed.get(event.client, set())
        verdict = judge(self._counts, checker.parents, events, self.faults)
        self.verdict, self.faults = verdict, verdict.faults
        return report_lines(
            verdict,
            aggregates=self._counts.aggregates,
            regressions=len(checker.regressions),
            started=self._started,
            labels=self._labels,
            spark_lines=spark_lines,
            spark_faults=self.spark_faults,
        )

    @property
    def _labels(self) -> dict[str, str]:
        return {stream.arn: stream.label for stream in self._streams}

    def _check_exit_statuses(self, events: list[Event]) -> None:
        """Check that every client that wasn't killed ended with status 0."""
        killed = {event.client for event in events if event.kind == "kill"}
        for child in self.processes.clients:
            status = child.process.returncode
            if child.name not in killed and status not in (0, None):
                self.faults.append(
                    f"{child.name} ended with status {status}: {child.last_log_line()}"
                )

    def _check_committed(self) -> None:
        """Check that every record is committed after all clients have left."""
        missing = Counter(
            record.shard
            for record in self._counts.produced
            if not self._checker.is_committed(record)
        )
        for shard, records in missing.items():
            self.faults.append(
                f"{place(shard, self._labels)}: {records:,} records aren't committed "
                "after all clients have left"
            )

    # --- while it runs ----------------------------------------------------------------

    async def _observe(self) -> None:
        while True:
            began = now()
            self._collect()
            try:
                await self._checker.check()
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
                self._journals[name] = Journal(self.processes.journal(name), name)
            for entry in self._journals[name].follow():
                self._counts.add_processed(entry)
            if not child.is_running and name not in self._ended:
                self._ended.add(name)
                self._report_end(child)

    def _report_end(self, child: Child) -> None:
        status = child.process.returncode
        if child.was_signalled:
            self._say(f"{child.name} has ended (status {status})")
        else:
            self._say(f"{child.name} ended by itself: {child.last_log_line()}")
            self.faults.append(f"{child.name} ended without a signal")

    def _view(self) -> View:
        at, counts, names = now(), self._counts, self.processes.names
        self._rates = [*self._rates[-4:], (at, len(counts.first_processed_at))]
        (first, before), (_, processed) = self._rates[0], self._rates[-1]
        return View(
            seconds=at - self._started,
            of_seconds=self._options.seconds,
            phase=self._phase,
            produced=len(counts.produced),
            processed=processed,
            per_second=(processed - before) / max(CHECK_SECONDS, at - first),
            behind=[counts.behind(stream.arn) for stream in self._streams],
            group=report(names.app, names.table, FleetView(self._checker.latest)),
        )

    def _show_event(self, event: Event) -> None:
        self._screen.event(event.at - self._started, event.text)

    def _say(self, text: str) -> None:
        self._screen.event(now() - self._started, text)
