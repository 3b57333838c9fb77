"""Run a fleet for hours and check that no process grows and no record is lost.

    python -m benchmarks.long_run [--minutes 120] [--clients 3] [--shards 40]

The embedded AWS runs in this process, and each client in its own process. Every
--reshard-minutes, a shard is split, or the children of the last split are merged. Every
--restart-minutes, one client is restarted. A restart can hide a leak, so the first
client is never restarted. Every second one of the others leaves, and a new client
starts in the same process, so that a leak of each start adds up. The rest are ended by
SIGTERM and replaced by new processes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.flatness import MIB, RULE, Trend, trends
from benchmarks.fleet import Worker, repeating
from kinesumer.testing import EmbeddedAws, background
from kinesumer.wire.put_records import Entry, aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

WARM_UP_MINUTES = 10.0
SAMPLE_SECONDS = 10.0
AGGREGATED_SHARE = 0.05
AGGREGATE_RECORDS = 8
PATIENCE_SECONDS = 120.0


class Process(Worker):
    """One client process and its output."""

    def __init__(self, name: str, given: Given) -> None:
        self.name = name
        self.numbers = given.directory / f"{name}.numbers"
        self._samples = given.directory / f"{name}.jsonl"
        self.began, self.ended = time.time(), 0.0
        files = [str(self.numbers), str(self._samples)]
        arguments = ["long-run", ",".join(given.streams), *files, str(given.every)]
        super().__init__(
            ["benchmarks.long_run_client", *arguments],
            {**os.environ, **given.aws.environment()},
        )

    def renew(self) -> None:
        """Let the process replace its client by a new one."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Stop the process gracefully, or kill it after a timeout."""
        self.ended = self.ended or time.time()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()

    @property
    def status(self) -> int | None:
        """Return the exit status: negative for a signal, None for a running process."""
        return self._process.poll()

    def trends(self, warm_up: float) -> list[Trend]:
        """Return the trends of the process's measurements."""
        if not self._samples.exists():  # the process ended before its first sample
            return []
        lines = self._samples.read_text().splitlines()
        return trends([json.loads(x) for x in lines], self.began, self.ended, warm_up)


class Given:
    """Settings of every client process."""

    def __init__(
        self, aws: EmbeddedAws, directory: Path, shards: int, every: float
    ) -> None:
        self.aws, self.directory = aws, directory
        self.every = every
        half, third = shards // 2, shards * 3 // 10
        self.streams = {
            "orders": half,
            "payments": third,
            "clicks": shards - half - third,
        }
        for name, count in self.streams.items():
            aws.create_stream(name, count)


class Members:
    """The running and the ended client processes."""

    def __init__(self, given: Given, clients: int, stack: ExitStack) -> None:
        self._given, self._stack = given, stack
        self.all: list[Process] = []
        self.running = [self._start(index, 1) for index in range(clients)]
        self._generations = [1] * clients
        self.restarts = 0

    def _start(self, index: int, generation: int) -> Process:
        process = Process(f"client-{index + 1}-{generation}", self._given)
        self._stack.callback(process.end)
        self.all.append(process)
        return process

    def restart(self) -> str:
        """Restart the next client, but never the first one. Return a description."""
        index = 1 + self.restarts % (len(self.running) - 1)
        self.restarts += 1
        old = self.running[index]
        if index % 2:
            old.renew()
            return f"a new client in the process of {old.name}"
        old.stop()
        self._generations[index] += 1
        self.running[index] = self._start(index, self._generations[index])
        return f"{old.name} ended, {self.running[index].name} started"

    def delivered(self) -> array[int]:
        """Return the numbers of all records that were delivered."""
        found = array("I")
        for process in self.all:
            if process.numbers.exists():
                data = process.numbers.read_bytes()
                found.frombytes(data[: len(data) // 4 * 4])
        return found


class Resharding:
    """Alternately splits a shard and merges the children of that split."""

    def __init__(self, given: Given) -> None:
        self._aws, self._streams = given.aws, list(given.streams)
        self._draw = random.Random(1)
        self._parted: tuple[str, str, str] | None = None
        self.count = 0

    def next(self) -> str:
        """Split or merge; return a description."""
        self.count += 1
        if self._parted is not None:
            stream, left, right = self._parted
            self._parted = None
            self._aws.merge(stream, left, right)
            return f"{stream}: {left} and {right} merged"
        stream = self._draw.choice(self._streams)
        before = self._aws.open_shards(stream)
        at = self._draw.randrange(len(before))
        self._aws.split(stream, before[at])
        left, right = self._aws.open_shards(stream)[at : at + 2]
        self._parted = stream, left, right
        return f"{stream}: {before[at]} split"


class Production:
    """Puts numbered records, some of them in KPL aggregates."""

    def __init__(self, given: Given) -> None:
        self._given, self._draw = given, random.Random(2)
        # The number of user records put so far, which is also the next record's number.
        self.count = 0

    def put(self) -> int:
        """Put a record, or an aggregate. Return the number of its user records."""
        packed = self._draw.random() < AGGREGATED_SHARE
        size = AGGREGATE_RECORDS if packed else 1
        key = str(self._draw.random())
        numbers = range(self.count, self.count + size)
        users = [Entry(b"%d" % number, key) for number in numbers]
        data = aggregate(users) if packed else users[0].data
        names, weights = zip(*self._given.streams.items(), strict=True)
        self._given.aws.put(self._draw.choices(names, weights)[0], data, key)
        self.count += size
        return size


def live(members: Members, reshards: Resharding, given: argparse.Namespace) -> bool:
    """Run the fleet. Return whether no client ended too early."""
    began = time.monotonic()
    reshard, restart = given.reshard_minutes, given.restart_minutes
    while (minutes := (time.monotonic() - began) / 60) < given.minutes:
        if any(process.status is not None for process in members.running):
            say(minutes, "over early: a client is gone that nobody ended")
            return False
        if minutes >= reshard:
            say(minutes, reshards.next())
            reshard += given.reshard_minutes
        if minutes >= restart:
            say(minutes, members.restart())
            restart += given.restart_minutes
        time.sleep(0.5)
    return True


def say(minutes: float, text: str) -> None:
    """Print an event with its time."""
    print(f"{minutes:7.2f} min  {text}", flush=True)


def settle(members: Members, wanted: int) -> None:
    """Wait until all records are delivered, or for a timeout. Stop the clients."""
    for process in members.running:
        process.ended = time.time()
    until = time.monotonic() + PATIENCE_SECONDS
    while len(set(members.delivered())) < wanted and time.monotonic() < until:
        time.sleep(2)
    for process in members.running:
        process.stop()


def report(members: Members, produced: int, warm_up: float) -> bool:
    """Print the results. Return whether nothing grew and no record was lost."""
    print(
        f"\n{'process':<12} {'measure':<12} {'at warm-up':>10} {'mean then':>10}",
        end="",
    )
    print(f" {'mean last':>10} {'max last':>10} {'per hour':>10}")
    verdicts = [report_on(process, warm_up) for process in members.all]
    print(RULE)
    delivered = members.delivered()
    lost = produced - len(set(delivered))
    print(f"{produced:,} records, {lost:,} lost, ", end="")
    print(f"{len(delivered) - len(set(delivered)):,} delivered again")
    return all(verdicts) and not lost


def report_on(process: Process, warm_up: float) -> bool:
    """Print a process's measurements. Return whether it ended well and stayed flat."""
    passed = process.status == 0
    for trend in process.trends(warm_up):
        unit = MIB if trend.measure == "memory" else 1
        verdict = {True: "flat", False: "GROWS", None: ""}[trend.flat]
        passed &= trend.flat is not False
        columns = " ".join(f"{figure / unit:>10,.1f}" for figure in trend[1:])
        print(f"{process.name:<12} {trend.measure:<12} {columns}  {verdict}")
    if process.status:
        print(f"{process.name:<12} FAILED with status {process.status}")
    return passed


def main() -> int:
    """Run the fleet. Return 0 if no process grew and no record was lost."""
    given = arguments(sys.argv[1:])
    warm_up = 60 * min(WARM_UP_MINUTES, given.minutes / 4)
    with ExitStack() as stack:
        directory = Path(given.directory or tempfile.mkdtemp(prefix="long-run-"))
        directory.mkdir(parents=True, exist_ok=True)
        print(f"samples and numbers in {directory}")
        aws = stack.enter_context(background(EmbeddedAws()))
        aws.create_table("state")
        every = min(SAMPLE_SECONDS, given.minutes)
        each = Given(aws, directory, given.shards, every)
        production, reshards = Production(each), Resharding(each)
        members = Members(each, given.clients, stack)
        with repeating(production.put, given.rate):
            lasted = live(members, reshards, given)
        settle(members, production.count)
    print(f"{reshards.count} reshards, {members.restarts} restarts")
    passed = report(members, production.count, warm_up)
    return 0 if passed and lasted else 1


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_run")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--reshard-minutes", type=float, default=5)
    parser.add_argument("--restart-minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=200, help="user records a second")
    parser.add_argument("--directory", help="keep samples and numbers here")
    found = parser.parse_args(given)
    if found.clients < 2 or found.shards < 4:
        parser.error("two clients and four shards at least: the first isn't restarted")
    return found


if __name__ == "__main__":
    sys.exit(main())
