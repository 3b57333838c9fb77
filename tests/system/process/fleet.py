"""Client processes of one app, and operations on them and on their AWS."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from botocore.session import Session

from kinesumer import Config, Stream
from kinesumer.model.streams import ShardKey
from kinesumer.telemetry.recording import RECORD_VARIABLE
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.journal import Handled, now
from kinesumer.testing.trial.oracle import Run
from kinesumer.testing.trial.processes import Names, Processes, isolated_environment
from kinesumer.testing.trial.verdict import judge_promises
from tests.support.clock import PATIENCE_SECONDS
from tests.system.chaos.timing import Deliveries, in_order
from tests.system.process.cable import Cable
from tests.system.process.client import Client, Settings
from tests.system.process.producer import Producer
from tests.system.process.state import Snapshot, Table

WORKER = "tests.system.process.worker"
# Much shorter intervals than the defaults, in similar proportions.
QUICK: dict[str, Any] = {
    "heartbeat_interval_seconds": 0.5,
    "lease_duration_seconds": 3.0,
    "leader_interval_seconds": 0.3,
    "rebalance_delay_seconds": 0.6,
    "listing_interval_seconds": 1.0,
    "commit_interval_seconds": 0.5,
    "unreachable_after_seconds": 3.0,
    "max_uncommitted_records": 500,
}


class Fleet:
    """An app's streams, table and processes. The processes end with the block."""

    def __init__(
        self, aws: EmbeddedAws, app: str, folder: Path, aborted: threading.Event
    ) -> None:
        self.aws, self.app = aws, app
        self.table = f"table-{app}"
        self.state = Table(aws, self.table, app)
        self.clients: list[Client] = []
        self.figures: list[str] = []  # measurements to print
        self.producer = Producer(aws)
        self.config = dict(QUICK)
        self.patience: float = PATIENCE_SECONDS
        # The streams that clients consume if they are started from now on.
        self.streams: list[Stream] = []
        self.arns: list[str] = []  # of all streams ever created
        self.fan_out_arns: set[str] = set()  # of those that are read by fan-out
        directory = folder / app
        directory.mkdir()
        environment = isolated_environment(os.environ) | aws.environment()
        names = Names(app=app, table=self.table)
        self.processes = Processes(directory, environment, names)
        self._aborted = aborted
        self._commands = 0

    def __enter__(self) -> Self:
        self.aws.create_table(self.table)
        return self

    def __exit__(self, *_: object) -> None:
        with self.processes:
            for client in self.clients:
                client.close()
            self.producer.stop()

    # --- streams ---------------------------------------------------------------------

    def stream(
        self, name: str, shards: int = 3, fan_out: str | None = None, **role: Any
    ) -> str:
        """Create a stream to consume and return its ARN.

        With an ``account``, the stream is in that account and is read through a new
        role there. ``role`` has the role's other settings.
        """
        name, access = f"{self.app}-{name}", dict[str, Any]()
        if role:
            place = {"account": role["account"]}
            reader = self.aws.create_role(f"{self.app}-reader", **role)
            access = {"role_arn": reader.arn, "external_id": reader.external_id}
            arn = self.aws.create_stream(name, shards, **place)
        else:
            arn = self.aws.create_stream(name, shards)
        self.streams.append(Stream(arn, fan_out=fan_out, **access))
        self.arns.append(arn)
        self.state.arns.append(arn)
        if fan_out:
            self.fan_out_arns.add(arn)
        return arn

    def scale(self, arn: str, shards: int) -> None:
        """Let Kinesis split and merge shards until a stream has so many open shards."""
        variables = self.aws.environment()
        kinesis = Session().create_client(
            "kinesis",
            region_name=variables["AWS_REGION"],
            endpoint_url=self.aws.url,
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        )
        kinesis.update_shard_count(
            StreamARN=arn, TargetShardCount=shards, ScalingType="UNIFORM_SCALING"
        )

        def is_active() -> bool:
            summary = kinesis.describe_stream_summary(StreamARN=arn)
            status: str = summary["StreamDescriptionSummary"]["StreamStatus"]
            return status == "ACTIVE"

        self.until(is_active, f"{arn} is active")
        kinesis.close()

    def produce(self, per_second: float = 100) -> None:
        self.producer.start(self.arns, per_second)

    # --- clients ---------------------------------------------------------------------

    @property
    def running(self) -> list[Client]:
        return [c for c in self.clients if c.process.poll() is None]

    def cables(self) -> dict[str, Cable]:
        variables = self.aws.environment()
        return {
            name: Cable(variables.get(f"AWS_ENDPOINT_URL_{name.upper()}", self.aws.url))
            for name in ("dynamodb", "kinesis")
        }

    def start(
        self,
        *client_ids: str,
        cabled: bool = False,
        **settings: Any,
    ) -> list[Client]:
        """Start processes. ``settings`` are further fields of Settings."""
        started = []
        for client_id in client_ids:
            name = f"{len(self.clients)}-{client_id}"
            given = Settings(
                name=client_id,
                output=str(self.processes.journal(name)),
                streams=self.streams,
                names=self.processes.names,
                config=Config(**self.config),
                **settings,
            )
            cables = self.cables() if cabled else {}
            argument = msgspec.json.encode(given).decode()
            endpoints = {
                f"AWS_ENDPOINT_URL_{service.upper()}": cable.url
                for service, cable in cables.items()
            }
            recording = self.processes.directory / f"{name}.recording"
            variables = {**endpoints, RECORD_VARIABLE: str(recording)}
            child = self.processes.start(name, WORKER, argument, variables=variables)
            client = Client(child, given, cables)
            self.clients.append(client)
            started.append(client)
        return started

    def started(self, *client_ids: str, cabled: bool = False) -> list[Client]:
        """Start processes, and wait until every shard has its planned owner."""
        live = {client.client_id for client in self.running}
        clients = self.start(*client_ids, cabled=cabled)
        self.settle(*live, *client_ids)
        return clients

    def command(self, *arguments: str) -> tuple[int, str]:
        """Run the command ``kinesumer``. Return its exit status and output."""
        self._commands += 1
        name = f"command-{self._commands}"
        child = self.processes.start(name, "kinesumer.ops.cli", *arguments)
        self.until(lambda: not child.is_running, f"{arguments} ends")
        return child.process.wait(), child.log.read_text()

    # --- waiting ---------------------------------------------------------------------

    def until(self, condition: Callable[[], Any], what: str) -> float:
        began = now()
        while not condition():
            if self._aborted.wait(0.05):
                raise RuntimeError("the tests are being ended")
            if now() - began > self.patience:
                raise AssertionError(f"never happened: {what}\n{self.report()}")
        return now() - began

    def pause(self, seconds: float) -> None:
        if self._aborted.wait(seconds):
            raise RuntimeError("the tests are being ended")

    def look(self) -> Snapshot:
        return self.state.look()

    def sessions(self) -> dict[str, str]:
        return {name: row.session for name, row in self.look().live.items()}

    def owned(self, client_id: str) -> set[ShardKey]:
        owners = self.look().owners
        return {key for key, owner in owners.items() if owner == client_id}

    def settle(self, *client_ids: str) -> float:
        """Wait until exactly these clients live, and own their planned shards."""

        def is_settled() -> bool:
            seen = self.look()
            live = seen.live
            planned = all(m.range is not None for m in live.values())
            return set(live) == set(client_ids) and planned and seen.is_settled()

        return self.until(is_settled, f"{client_ids} own everything")

    def handled(self) -> list[Handled]:
        return [h for client in self.clients for h in client.handled]

    def drain(self) -> None:
        self.producer.stop()
        self.catch_up()

    def catch_up(self) -> float:
        """Wait until all records produced so far are handled. Return the seconds."""
        waiting = {
            (p.shard.stream_arn, p.number)
            for records in list(self.producer.records.values())
            for p in list(records)
        }
        seen: dict[Client, int] = {}

        def are_handled() -> bool:
            for client in self.clients:
                handled = client.handled
                for h in handled[seen.get(client, 0) :]:
                    waiting.discard((h.shard.stream_arn, h.number))
                seen[client] = len(handled)
            return not waiting

        return self.until(are_handled, "every record is handled")

    def leave(self, *clients: Client) -> None:
        leaving = clients or self.running
        for client in leaving:
            client.leave()
        for client in leaving:
            self.until(lambda c=client: c.process.poll() is not None, "it leaves")  # type: ignore[misc]
            assert client.process.returncode == 0, self.report()

    # --- judging ---------------------------------------------------------------------

    def run(self) -> Run:
        produced = [p for records in self.producer.records.values() for p in records]
        histories = self.processes.histories
        return oracle.read_run(histories, self.app, produced, self.handled())

    def finish(self, *, takeovers: int = 0) -> None:
        """Stop all clients, and assert that every promise was kept.

        ``takeovers`` is the number of forced takeovers, each of which may repeat a
        shard's uncommitted records.
        """
        self.drain()
        self.leave()
        run = self.run()
        lines = judge_promises(run, self.processes.histories)
        faults = [f"{line.what}: {fault}" for line in lines for fault in line.details]
        assert not faults, "\n".join([*faults[:20], self.report()])
        repeated = oracle.repeated(run)
        allowed = takeovers * self.config["max_uncommitted_records"]
        assert max(repeated.values(), default=0) <= allowed, repeated
        self.note(f"{repeated.total()} of {len(run.produced)} records repeated")
        self.note(f"pauses of moved shards: {in_order(Deliveries(run).all_moves())}")

    def note(self, text: str) -> None:
        self.figures.append(text)

    def report(self) -> str:
        return "\n".join(self._report_lines())

    def _report_lines(self) -> Iterator[str]:
        yield f"records: {len(self.handled())} handled"
        for client in self.running:
            client.process.send_signal(signal.SIGUSR1)
        with suppress(RuntimeError):  # the test may have deleted the table
            yield from map(str, self.look().rows())
        for client in self.clients:
            yield f"--- {client.client_id}: exit status {client.process.poll()}"
            yield from map(str, client.events[-5:])
            yield f"its whole log: {client.log}"
            yield from client.log.read_text().splitlines()[-30:]


AT_ONCE = 4  # scenarios that run at the same time; they mostly wait

Scenario = Callable[["Fleet"], None]
Ahead = Callable[[Scenario], Future[list[str]]]


def scenario(play: Scenario) -> Callable[[Ahead], None]:
    """Return a test that waits for the result of a scenario."""

    def test(ahead: Ahead) -> None:
        for figure in ahead(play).result():
            print(figure)

    test.__name__ = play.__name__
    test.__module__ = play.__module__
    test.__doc__ = play.__doc__
    test.scenario = play  # type: ignore[attr-defined]
    marked: Callable[[Ahead], None] = pytest.mark.process(test)
    return marked
