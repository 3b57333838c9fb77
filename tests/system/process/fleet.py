"""Client processes of one app, and what a test does to them and to their AWS."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from botocore.session import Session

from kinesumer.local import EmbeddedAws
from kinesumer.model.streams import ShardKey
from tests.system.process import oracle
from tests.system.process.aws import Aws
from tests.system.process.cable import Cable
from tests.system.process.client import Client
from tests.system.process.producer import Producer
from tests.system.process.state import Snapshot, Watcher
from tests.system.process.worker import Settings, StreamSettings

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.system.process.oracle import Handled, Run, Verdict

A = TypeVar("A", bound=Aws)

PATIENCE_SECONDS = 90.0
"""How long a test waits for what has to happen: far longer than it ever takes."""

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

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
"""The defaults' proportions at a fraction of their length."""


class AnyFleet(Generic[A]):
    """An app's streams, table and processes: ended with the block, whatever happens."""

    def __init__(
        self, aws: A, app: str, folder: Path, aborted: threading.Event
    ) -> None:
        self.aws, self.app = aws, app
        self.table = f"table-{app}"
        self.clients: list[Client] = []
        self.figures: list[str] = []
        """What is worth printing."""
        self.producer = Producer(aws)
        self.config = dict(QUICK)
        self.patience = PATIENCE_SECONDS
        self.watcher = Watcher(aws, self.table, app)
        self.streams: list[StreamSettings] = []
        """What clients consume that are started from now on."""
        self.arns: list[str] = []
        """Of all streams that there ever were."""
        self._folder = folder
        self._aborted = aborted
        self._kinesis: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.aws.create_table(self.table)
        return self

    def __exit__(self, *_: object) -> None:
        self.producer.stop()
        self.watcher.stop()
        for client in self.clients:
            client.close()
        for kinesis in self._kinesis.values():
            kinesis.close()

    # --- streams ---------------------------------------------------------------------

    def stream(self, name: str, shards: int = 3) -> str:
        """Create a stream to consume and return its ARN."""
        arn = self.aws.create_stream(f"{self.app}-{name}", shards)
        return self._consumed(StreamSettings(arn))

    def _consumed(self, stream: StreamSettings) -> str:
        self.streams.append(stream)
        self.arns.append(stream.arn)
        return stream.arn

    def kinesis(self, operation: str, arn: str, **arguments: Any) -> dict[str, Any]:
        """Ask Kinesis for something as the stream's owner."""
        account = arn.split(":")[4]
        if account not in self._kinesis:
            access_key_id, secret_access_key = self._credentials(account)
            self._kinesis[account] = Session().create_client(
                "kinesis",
                region_name="us-east-1",
                endpoint_url=self.aws.url,
                aws_access_key_id=access_key_id,
                aws_secret_access_key=secret_access_key,
            )
        call = getattr(self._kinesis[account], operation)
        found: dict[str, Any] = call(StreamARN=arn, **arguments)
        return found

    def scale(self, arn: str, shards: int) -> None:
        """Let Kinesis split and merge until a stream has so many open shards."""
        how = {"TargetShardCount": shards, "ScalingType": "UNIFORM_SCALING"}
        self.kinesis("update_shard_count", arn, **how)

        def is_active() -> bool:
            summary = self.kinesis("describe_stream_summary", arn)
            status: str = summary["StreamDescriptionSummary"]["StreamStatus"]
            return status == "ACTIVE"

        self.until(is_active, f"{arn} is active")

    def _credentials(self, account: str) -> tuple[str, str]:
        variables = self.aws.environment()
        return variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]

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
        delay: float = 0.0,
        runs: str = "",
        concurrency: int = 1,
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
                streams=self.streams,
                config=self.config,
                journal=str(self._folder / f"{name}.jsonl"),
                start=start,
                rejoins=rejoins,
                delay=delay,
                runs=runs,
                concurrency=concurrency,
            )
            cables = self.cables() if cabled else {}
            log, environment = self._folder / f"{name}.log", self.environment(cables)
            client = Client(settings, log, cables, environment)
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
            if now() - began > self.patience:
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

        began = now()

        def is_settled() -> bool:
            latest = self.watcher.latest
            if latest is None or self.watcher.has_failed:
                seen = self.look()
            elif latest[0] < began:
                return False
            else:
                seen = latest[1]
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
        self.catch_up()

    def catch_up(self) -> float:
        """Wait until what was produced by now was handled; return how long it took."""
        return self._await_handled(
            {
                (p.shard.stream_arn, p.number)
                for records in list(self.producer.records.values())
                for p in list(records)
            }
        )

    def _await_handled(self, waiting: set[tuple[str, int]]) -> float:
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
            produced,
            self.handled(),
            list(self.watcher.history),
            self._parents(),
            [event for client in self.clients for event in client.events],
        )

    def verdict(self, *, by_key: bool = False) -> Verdict:
        """Return how often records were repeated, if nothing at all is wrong.

        ``by_key``: shards are read by several at a time, so that only keys have order.
        """
        found = oracle.judge(self.run())
        if by_key:
            found.broken.pop("gaps and repeats within an epoch")
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


class Fleet(AnyFleet[EmbeddedAws]):
    """A fleet of the embedded AWS, which has accounts and roles."""

    def stream(self, name: str, shards: int = 3, **role: Any) -> str:
        """Create a stream to consume and return its ARN.

        With an ``account`` it is read through a role of that account, which may have
        any of the settings of a role.
        """
        account = role.pop("account", None)
        if account is None:
            return super().stream(name, shards)
        arn = self.aws.create_stream(f"{self.app}-{name}", shards, account=account)
        reader = self.aws.create_role(f"{self.app}-reader", account=account, **role)
        return self._consumed(StreamSettings(arn, reader.arn, reader.external_id))

    def _credentials(self, account: str) -> tuple[str, str]:
        found = self.aws.account(account)
        return found.access_key_id, found.secret_access_key
