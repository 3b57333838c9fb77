"""Run real KCL workers and clients in one fleet, and judge what they printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kinesumer.testing import EmbeddedAws
from kinesumer.wire.put_records import Entry, aggregate

ROOT = Path(__file__).parents[3]
STREAM, TABLE = "orders", "orders-consumer"
FAILOVER_SECONDS = 4
PATIENCE_SECONDS = 150.0


def jars(version: str) -> Path:
    """Return the directory into which ``scripts/kcl_jars`` fetches a KCL."""
    return ROOT / ".kcl" / version


class Event(NamedTuple):
    """A line that a worker or a client printed."""

    at: float
    kind: str
    shard_id: str
    data: str


class Fleet:
    """A stream under load, and the processes that consume it."""

    def __init__(
        self,
        aws: EmbeddedAws,
        folder: Path,
        version: str,
        *,
        shards: int = 4,
        failover_seconds: int = FAILOVER_SECONDS,
    ) -> None:
        self.aws, self._folder, self._version = aws, folder, version
        self._failover_seconds = failover_seconds
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.produced: dict[str, float] = {}
        self._is_over = threading.Event()
        aws.create_stream(STREAM, shards=shards)
        self._producer = threading.Thread(target=self._produce)
        self._producer.start()

    def _produce(self) -> None:
        number = 0
        while not self._is_over.wait(0.05):
            names = [f"r{number + index}" for index in range(6)]
            now = time.time()
            for name in names[:3]:
                self.aws.put(STREAM, name.encode(), name)
            # An aggregate that is larger than what one call of user code gets.
            entries = [Entry(name.encode(), names[3], None) for name in names[3:]]
            self.aws.put(STREAM, aggregate(entries), names[3])
            self.produced.update(dict.fromkeys(names, now))
            number += len(names)

    # --- processes ------------------------------------------------------------------

    def worker(self, name: str, mode: str = "default") -> None:
        """Start a KCL worker; FleetWorker.java has the modes of those of KCL 3."""
        directory = jars(self._version)
        classes = f"{directory / 'classes'}:{directory / 'jars'}/*"
        # These make a JVM start faster, and use less memory.
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classes]
        arguments = [STREAM, TABLE, name, str(1000 * self._failover_seconds), mode]
        self._start(name, ["java", *options, "FleetWorker", self.aws.url, *arguments])

    def client(self, name: str, table: str = TABLE) -> None:
        """Start a client of ours."""
        arguments = [STREAM, table, name, str(self._failover_seconds)]
        self._start(name, [sys.executable, "-m", "tests.system.kcl.client", *arguments])

    def _start(self, name: str, command: list[str]) -> None:
        environment = {**os.environ, **self.aws.environment(), "PYTHONPATH": str(ROOT)}
        with (
            (self._folder / f"{name}.out").open("wb") as out,
            (self._folder / f"{name}.err").open("wb") as err,
        ):
            self._processes[name] = subprocess.Popen(
                command, env=environment, stdout=out, stderr=err, cwd=ROOT
            )

    def stop(self, name: str) -> None:
        """Stop a process as a deploy does."""
        self._end(name, signal.SIGTERM)

    def kill(self, name: str) -> None:
        """Kill a process."""
        self._end(name, signal.SIGKILL)

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(60)

    def pause(self, name: str, seconds: float) -> None:
        """Stop a process for some time, as a machine that is suspended."""
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop all that still runs."""
        self._is_over.set()
        self._producer.join()
        for name in list(self._processes):
            self.kill(name)

    # --- what can be seen -----------------------------------------------------------

    def leases(self) -> Counter[str]:
        """Return the number of open leases of each owner."""
        request = json.dumps({"TableName": TABLE}).encode()
        items = self.aws.dynamodb("Scan", request).get("Items", [])
        return Counter(
            item.get("leaseOwner", {}).get("S", "")
            for item in items
            if item.get("checkpoint", {}).get("S", "SHARD_END") != "SHARD_END"
        )

    def until_owned(self, **least: int) -> None:
        """Wait until these have at least so many leases, and no others have any."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            counts = self._leases_if_any()
            if counts.keys() == least.keys() and all(
                counts[name] >= count for name, count in least.items()
            ):
                return
            assert time.monotonic() < end, f"{dict(counts)} instead of {least}"
            time.sleep(0.2)

    def _leases_if_any(self) -> Counter[str]:
        request = json.dumps({}).encode()
        names = self.aws.dynamodb("ListTables", request)["TableNames"]
        return self.leases() if TABLE in names else Counter()

    def finish(self) -> None:
        """Stop producing, and wait until all records were seen."""
        self._is_over.set()
        self._producer.join()
        end = time.monotonic() + PATIENCE_SECONDS
        while missing := self.produced.keys() - self.seen().keys():
            assert time.monotonic() < end, f"lost: {sorted(missing)[:10]}"
            time.sleep(0.5)

    def events(self) -> dict[str, list[Event]]:
        """Return the events of each process."""
        found = {}
        for path in self._folder.glob("*.out"):
            # The last line may be incomplete. Lines of other libraries aren't events.
            lines = [line.split(" ") for line in path.read_text().splitlines()]
            found[path.stem] = [
                Event(int(line[0]) / 1000, *line[1:])
                for line in lines
                if len(line) == 4 and line[0].isdigit()
            ]
        return found

    def pauses(self) -> list[tuple[float, float]]:
        """Return when each pause of a shard began, and its length."""
        times: defaultdict[str, list[float]] = defaultdict(list)
        for events in self.events().values():
            for event in events:
                if event.kind == "record":
                    times[event.shard_id].append(event.at)
        return [
            (before, after - before)
            for seen in times.values()
            for before, after in pairwise(sorted(seen))
        ]

    def seen(self) -> dict[str, list[tuple[float, str]]]:
        """Return when, and by which process, each record was processed."""
        found: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        for name, events in self.events().items():
            for event in events:
                if event.kind == "record":
                    found[event.data].append((event.at, name))
        return {data: sorted(times) for data, times in found.items()}
