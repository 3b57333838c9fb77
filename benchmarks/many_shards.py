"""Measure one client with a thousand shards, and the start of five thousand.

    python -m benchmarks.many_shards [idle|busy|start…] [--tls] [--dynamodb URL]

- ``idle``: shards without records, which are read once a second.
- ``busy``: each shard receives 10 records of 100 bytes a second.
- ``start``: the calls of a client that claims 5,000 shards, for each second.

The client runs in its own process. Kinesis answers after 10 ms, from a process that
computes each record from its number. The state store is the embedded AWS, or an empty
DynamoDB at the URL.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from aiobotocore.session import AioSession

from benchmarks.fleet import Fleet, Worker, fleet
from benchmarks.http_server import running
from benchmarks.report import Report
from benchmarks.shards_server import Calls
from benchmarks.worker import IDLE_SECONDS
from kinesumer.aws.dynamodb import ensure_table, open_store
from kinesumer.aws.session import ClientFactory

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

SHARDS, STARTED_SHARDS = 1_000, 5_000
RECORDS_PER_SECOND = 10.0
LATENCY_SECONDS = 0.01
MIB = 1 << 20
IDLE_CPU, RESIDENT = 40.0, 250.0
CLAIMING_SECONDS = 300.0
READ_ALL_SECONDS, CALLS_PER_SECOND = 60.0, 1_000


class Options(NamedTuple):
    """The options of the command line."""

    tls: bool
    dynamodb: str | None  # the URL


class Served(NamedTuple):
    """A fleet whose Kinesis is a server of its own."""

    made: Fleet
    environment: dict[str, str]
    server: subprocess.Popen[str]

    def start(self, shards: int, what: str) -> Worker:
        """Start a client of a stream with so many shards."""
        return self.made.start(what, f"many-{shards}", what, **self.environment)

    def calls(self) -> Calls:
        """Return the calls to Kinesis so far."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write("\n")
        self.server.stdin.flush()
        return msgspec.json.decode(self.server.stdout.readline(), type=Calls)


@contextmanager
def served(rate: float, options: Options) -> Iterator[Served]:
    """Run a fleet without workers, and its Kinesis."""
    module = "benchmarks.shards_server"
    with (
        fleet(tls=options.tls) as made,
        running(module, rate, LATENCY_SECONDS, **made.tls_environment) as (url, server),
    ):
        environment = {"AWS_ENDPOINT_URL_KINESIS": url}
        if options.dynamodb:
            asyncio.run(make_table(options.dynamodb))
            environment["AWS_ENDPOINT_URL_DYNAMODB"] = options.dynamodb
        yield Served(made, environment, server)


async def make_table(url: str) -> None:
    """Create the state store's table in the DynamoDB at a URL."""
    session = AioSession()
    session.set_credentials("key", "secret")
    endpoints = {"dynamodb": url}
    async with ClientFactory(session, region="us-east-1", endpoints=endpoints) as made:
        await ensure_table(await open_store(made, "state"))


def steady(name: str, rate: float, options: Options) -> None:
    """Measure a client whose shards all receive records at this rate."""
    report = Report(f"{SHARDS:,} shards in one client, {name}")
    with served(rate, options) as here:
        worker = here.start(SHARDS, f"steady:{SHARDS}")
        line = worker.line(CLAIMING_SECONDS)
        calls = here.calls()
        worker.end()
    cpu, resident, sockets, descriptors, records = map(float, line.split())
    share, memory = 100 * cpu / IDLE_SECONDS, resident / MIB
    report.at_most("CPU", share, None if rate else IDLE_CPU, " % of a core")
    report.at_most("resident", memory, None if rate else RESIDENT, " MiB")
    if rate:
        report.note("records", f"{records / IDLE_SECONDS:,.0f}/s")
    last = max(calls.by_second)
    reads = [
        calls.by_second.get(second, {}).get("GetRecords", 0)
        for second in range(last - round(IDLE_SECONDS), last)
    ]
    report.note("GetRecords", f"{sum(reads) / len(reads):,.0f}/s")
    report.note("connections to Kinesis", str(calls.connections))
    report.note("sockets", f"{sockets:.0f}")
    report.note("file descriptors", f"{descriptors:.0f}")
    report.print()


def idle(options: Options) -> None:
    """Measure shards without records."""
    steady("idle", 0.0, options)


def busy(options: Options) -> None:
    """Measure shards with a few records a second."""
    steady(f"{RECORDS_PER_SECOND:g} records/s each", RECORDS_PER_SECOND, options)


def start(options: Options) -> None:
    """Measure the calls of a client until it has read each of its shards."""
    with served(0.0, options) as here:
        worker = here.start(STARTED_SHARDS, "each")
        until = time.monotonic() + CLAIMING_SECONDS
        while time.monotonic() < until:
            time.sleep(1)
            calls = here.calls()
            if len(calls.first_reads_seconds) == STARTED_SHARDS:
                break
        worker.end()
    report = Report(f"start of {STARTED_SHARDS:,} shards in one client")
    reads = calls.first_reads_seconds
    report.note("shards read", f"{len(reads):,}")
    report.at_most("all read after", max(reads), READ_ALL_SECONDS, " s")
    seconds = list(map(Counter, calls.by_second.values()))
    for operation, total in sorted(sum(seconds, Counter()).items()):
        most = max(each[operation] for each in seconds)
        report.note(operation, f"{total:,}, at most {most:,} in a second")
    most = max(each.total() - each["GetRecords"] for each in seconds)
    report.at_most("all but GetRecords", most, CALLS_PER_SECOND, " in a second")
    report.print()


PARTS = {"idle": idle, "busy": busy, "start": start}


def main() -> None:
    """Print the tables of all parts, or of the given parts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_shards")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--dynamodb", metavar="URL")
    given = parser.parse_args()
    for part in given.parts or PARTS:
        PARTS[part](Options(given.tls, given.dynamodb))


if __name__ == "__main__":
    main()
