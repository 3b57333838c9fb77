"""Client processes of one app, and what a test does to them and to their AWS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from botocore.session import Session

from kinesumer.model import ShardKey
from tests.process import oracle
from tests.process.cable import Cable
from tests.process.producer import Producer
from tests.process.state import Snapshot, Watcher
from tests.process.worker import Orders, Settings, StreamSettings

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping

    from kinesumer.local import EmbeddedAws
    from tests.process.oracle import Event, Handled, Run, Verdict

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 90.0
"""How long a test waits for what has to happen: far longer than it ever takes."""

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

QUICK: dict[str, Any] = {
    "heartbeat_seconds": 0.5,
    "lease_seconds": 3.0,
    "leader_seconds": 0.3,
    "gather_seconds": 0.6,
    "listing_seconds": 1.0,
    "commit_seconds": 0.5,
    "degraded_seconds": 3.0,
    "max_uncommitted": 500,
}
"""The defaults' proportions at a fraction of their length."""


class Client:
    """One process of a fleet."""

    def __init__(
        self, fleet: Fleet, settings: Settings, log: Path, cables: dict[str, Cable]
    ) -> None:
        self.client_id = settings.client_id
        self.log = log
        self.cables = cables
        self._read = oracle.Journal(Path(settings.journal), settings.client_id)
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.process.worker",
                    msgspec.json.encode(settings).decode(),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=fleet.environment(self.cables),
            )

    # --- what is done to it ----------------------------------------------------------

    def order(self, **orders: Any) -> None:
        """Tell the handler what to do from now on; no orders: nothing unusual."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(Orders(**orders)) + b"\n")
        self.process.stdin.flush()

    def kill(self) -> float:
        """Kill it at once; return when."""
        self.process.kill()
        self.process.wait()
        return now()

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on as if nothing had happened."""
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        """Ask it to leave, as an orchestrator does."""
        self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End it however that may be."""
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        for cable in self.cables.values():
            cable.close()

    # --- what it did -----------------------------------------------------------------

    @property
    def handled(self) -> list[Handled]:
        """What it handled so far."""
        return self._read.follow().handled

    @property
    def events(self) -> list[Event]:
        """What else happened to it."""
        return self._read.follow().events

    @property
    def failure(self) -> str:
        """The error that ended it, or nothing."""
        return next((e.text for e in self.events if e.name == "failed"), "")

    def has(self, name: str) -> bool:
        """Tell whether it wrote down such an event."""
        return any(event.name == name for event in self.events)


class Fleet:
    """An app's streams, table and processes: ended with the block, whatever happens."""

    def __init__(
        self, aws: EmbeddedAws, app: str, folder: Path, aborted: threading.Event
    ) -> None:
        self.aws, self.app = aws, app
        self.table = f"table-{app}"
        self.clients: list[Client] = []
        self.figures: list[str] = []
        """What is worth printing."""
        self.producer = Producer(aws)
        self.config = dict(QUICK)
        self.watcher = Watcher(aws, self.table, app)
        self._folder = folder
        self._aborted = aborted
        self._streams: list[StreamSettings] = []

    def __enter__(self) -> Self:
        self.aws.create_table(self.table)
        return self

    def __exit__(self, *_: object) -> None:
        self.producer.stop()
        self.watcher.stop()
        for client in self.clients:
            client.close()

    # --- streams ---------------------------------------------------------------------

    def stream(self, name: str, shards: int = 3, **role: Any) -> str:
        """Create a stream to consume and return its ARN.

        With an ``account`` it is read through a role of that account, which may have
        any of the settings of a role.
        """
        account = role.pop("account", None)
        name = f"{self.app}-{name}"
        if account is None:
            arn = self.aws.create_stream(name, shards)
            self._streams.append(StreamSettings(arn))
            return arn
        arn = self.aws.create_stream(name, shards, account=account)
        reader = self.aws.create_role(f"{self.app}-reader", account=account, **role)
        self._streams.append(StreamSettings(arn, reader.arn, reader.external_id))
        return arn

    @property
    def arns(self) -> list[str]:
        """The streams' ARNs."""
        return [stream.arn for stream in self._streams]

    def kinesis(self, operation: str, arn: str, **arguments: Any) -> dict[str, Any]:
        """Ask Kinesis for something as the stream's owner."""
        credentials = self.aws.account(arn.split(":")[4])
        client = Session().create_client(
            "kinesis",
            region_name="us-east-1",
            endpoint_url=self.aws.url,
            aws_access_key_id=credentials.access_key_id,
            aws_secret_access_key=credentials.secret_access_key,
        )
        try:
            found: dict[str, Any] = getattr(client, operation)(
                StreamARN=arn, **arguments
            )
        finally:
            client.close()
        return found

    def produce(self, per_second: float = 100) -> None:
        """Produce to every stream until told to stop."""
        self.producer.start(self.arns, per_second)

    # --- clients ---------------------------------------------------------------------

    @property
    def running(self) -> list[Client]:
        """The processes that haven't ended."""
        return [c for c in self.clients if c.process.poll() is None]

    def cables(self) -> dict[str, Cable]:
        """Return cables to the services whose loss a test is about."""
        return {service: Cable(self.aws.port) for service in ("dynamodb", "kinesis")}

    def environment(self, cables: Mapping[str, Cable]) -> dict[str, str]:
        """Return a process's variables."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        return {
            **kept,
            **self.aws.environment(),
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            **{
                f"AWS_ENDPOINT_URL_{service.upper()}": cable.url
                for service, cable in cables.items()
            },
        }

    def start(
        self,
        *client_ids: str,
        start: str = "TRIM_HORIZON",
        rejoins: bool = False,
        cabled: bool = False,
    ) -> list[Client]:
        """Start processes at the same moment, each with cables of its own if asked."""
        if not self.watcher.is_watching:
            self.watcher.start(self.arns)
        started = []
        for client_id in client_ids:
            name = f"{self.app}-{len(self.clients)}-{client_id}"
            settings = Settings(
                app=self.app,
                table=self.table,
                client_id=client_id,
                streams=self._streams,
                config=self.config,
                journal=str(self._folder / f"{name}.jsonl"),
                start=start,
                rejoins=rejoins,
            )
            cables = self.cables() if cabled else {}
            client = Client(self, settings, self._folder / f"{name}.log", cables)
            self.clients.append(client)
            started.append(client)
        return started

    def started(self, *client_ids: str, cabled: bool = False) -> list[Client]:
        """Start processes, and wait until every shard is where the plan wants it."""
        live = {client.client_id for client in self.running}
        clients = self.start(*client_ids, cabled=cabled)
        self.settle(*live, *client_ids)
        return clients

    # --- waiting ---------------------------------------------------------------------

    def until(self, condition: Callable[[], Any], what: str) -> float:
        """Wait for a condition and return how long that took."""
        began = now()
        while not condition():
            if self._aborted.wait(0.05):
                raise RuntimeError("the tests are being ended")
            if now() - began > PATIENCE_SECONDS:
                raise AssertionError(f"never happened: {what}\n{self.report()}")
        return now() - began

    def pause(self, seconds: float) -> None:
        """Let time go by."""
        if self._aborted.wait(seconds):
            raise RuntimeError("the tests are being ended")

    def look(self) -> Snapshot:
        """Return what the table says now."""
        return self.watcher.look()

    def sessions(self) -> dict[str, str]:
        """Return the session of each client that lives."""
        return {name: row.session for name, row in self.look().live.items()}

    def owned(self, client_id: str) -> set[ShardKey]:
        """Return the shards that a client owns."""
        owners = self.look().owners
        return {key for key, owner in owners.items() if owner == client_id}

    def settle(self, *client_ids: str) -> float:
        """Wait until just these clients live, and own what the plan gives them."""

        def is_settled() -> bool:
            seen = self.look()
            live = seen.live
            planned = all(m.range is not None for m in live.values())
            return set(live) == set(client_ids) and planned and seen.is_settled()

        return self.until(is_settled, f"{client_ids} own everything")

    def handled(self) -> list[Handled]:
        """Return what was handled so far by anybody."""
        return [h for client in self.clients for h in client.handled]

    def drain(self) -> None:
        """Stop producing and wait until everything was handled."""
        self.producer.stop()
        waiting = {
            (p.shard.stream_arn, p.number)
            for records in self.producer.records.values()
            for p in records
        }

        def is_drained() -> bool:
            return not waiting - {
                (h.shard.stream_arn, h.number) for h in self.handled()
            }

        self.until(is_drained, "every record is handled")

    def leave(self, *clients: Client) -> None:
        """Ask clients (by default all that live) to leave, and wait for it."""
        leaving = clients or self.running
        for client in leaving:
            client.leave()
        for client in leaving:
            self.until(lambda c=client: c.process.poll() is not None, "it leaves")  # type: ignore[misc]
            assert client.process.returncode == 0, self.report()

    # --- judging ---------------------------------------------------------------------

    def run(self) -> Run:
        """Return everything that is known of the run so far."""
        produced = [p for records in self.producer.records.values() for p in records]
        return oracle.Run(
            produced, self.handled(), list(self.watcher.history), self._parents()
        )

    def verdict(self) -> Verdict:
        """Return how often records were repeated, if nothing at all is wrong."""
        found = oracle.judge(self.run())
        assert not found.faults, "\n".join([*found.faults[:20], self.report()])
        return found

    def note(self, text: str) -> None:
        """Keep a figure to be printed."""
        self.figures.append(text)

    def report(self) -> str:
        """Return what is needed to find out what went wrong."""
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

    def _parents(self) -> dict[ShardKey, list[ShardKey]]:
        return {
            ShardKey(arn, shard["ShardId"]): [
                ShardKey(arn, shard[name])
                for name in ("ParentShardId", "AdjacentParentShardId")
                if name in shard
            ]
            for arn in self.arns
            for shard in self.kinesis("list_shards", arn)["Shards"]
        }
