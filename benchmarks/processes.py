"""Measure ``kinesumer run --processes 2`` beside one process, and moves between two.

    python -m benchmarks.processes [--seconds 10] [--rounds 3]

First one process and two processes consume in turn, as fast as they can. Each takes
prepared pages of JSON out of its own memory, decodes them, and calls a handler with
each record. So no server shares the cores. The processes share the shards through a
state store on an embedded AWS, which needs some percent of a core. "CPU" is the part of
a core that a process got. If it is below 100 %, other programs were using the cores,
and the ratio of records per second says less. The ratio per CPU second is what each
process did with the CPU time that it got.

Then the shards of two processes are drained from one to the other several times, while
records are put into a real stream of the embedded AWS. The gap of a move is the time
from a shard's last record at one process to its first record at the other.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.canned_source import CannedSource
from benchmarks.fleet import PATIENCE_SECONDS, Fleet, fleet, producing
from benchmarks.handover import Seen, gaps_of_moves, repeated
from benchmarks.pages import JSON, Order, iterator, numbered
from benchmarks.report import Report, percentile
from kinesumer import App, Kinesumer, Position, Record, Start
from kinesumer.coordination.connections import Connections, aws_ports
from kinesumer.model.records import Page
from kinesumer.model.streams import HASH_KEYS, Shard, Stream
from kinesumer.wire.records import decode_page

if TYPE_CHECKING:
    from typing import Any

    from kinesumer.ports import Reservation

# Enough that the limit of five reads per second and shard doesn't hold the CPU up.
SHARDS = 256
# One page number has three digits: see numbered().
PAGES = 1000
TICK_SECONDS = 0.25
# Until all shards are claimed, and the pages are read at a steady rate.
SETTLED_SECONDS = 8.0
MOVES = 3
PER_SECOND = 160.0


# --- what the processes run ---


class EndlessSource(CannedSource):
    """A stream of shards whose pages never end."""

    def __init__(self, name: str) -> None:
        self._body = JSON.body()
        super().__init__(name, [])

    async def list_shards(self) -> list[Shard]:
        """Return shards of the same size."""
        edges = [number * HASH_KEYS // SHARDS for number in range(SHARDS + 1)]
        return [
            Shard(f"shard-{number:03}", edges[number], edges[number + 1] - 1)
            for number in range(SHARDS)
        ]

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator at the page of a position."""
        is_start = isinstance(after, Start)
        return iterator(0 if is_start else int(str(after.sequence_number)[1:4]))  # type: ignore[union-attr]

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page, decoded from its body."""
        return decode_page(numbered(self._body, int(iterator) % PAGES))


async def endless(client: Kinesumer) -> None:
    """Consume the endless stream as this client, and print what it costs."""
    ports = aws_ports(None)

    async def open_source(stream: Stream) -> EndlessSource:
        return EndlessSource(stream.name)

    @asynccontextmanager
    async def connect(*arguments: Any) -> AsyncIterator[Connections]:
        async with ports.connect(*arguments) as opened:
            yield replace(opened, open_source=open_source)

    count = 0

    async def handle(record: Record[Order]) -> None:
        nonlocal count
        count += 1

    async def tell() -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            say(os.getpid(), time.time(), time.process_time(), count)

    own = Kinesumer(
        client.app,
        client_id=client.client_id,
        table="state",
        stop_signals=True,
        _ports=replace(ports, connect=connect),
    )
    async with own:
        telling = asyncio.create_task(tell())
        await own.run("endless", handle, decode=Order, start=Start.TRIM_HORIZON)
        telling.cancel()


moves = App("moves", streams=["orders"], table="state", start=Start.TRIM_HORIZON)


@moves.handler("orders")
async def on_order(record: Record) -> None:
    """Print the place and the time of a record."""
    text = record.data.decode()
    say(time.time(), record.stream, record.shard_id, text, os.getpid())


def say(*words: object) -> None:
    """Print a line by one write, since several processes share the output."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


# --- records per second ---


class Tick(NamedTuple):
    """What a process had done at a time."""

    at: float
    cpu_seconds: float
    records: int


class Speed(NamedTuple):
    """What the processes of one run did together."""

    records_per_second: float
    # The sum over the processes.
    records_per_cpu_second: float
    # The part of a core that each process got, on average.
    cpu_share: float


def measured(made: Fleet, app: str, processes: int, seconds: float) -> Speed:
    """Run an application for some seconds, and return its speed."""
    command = ["run", "benchmarks.processes:endless", f"--app={app}"]
    worker = made.run("kinesumer.ops.cli", *command, f"--processes={processes}")
    ticks: dict[str, list[Tick]] = defaultdict(list)
    began = 0.0
    while True:
        pid, *numbers = worker.line().split()
        at, cpu_seconds, records = map(float, numbers)
        began = began or at
        if at > began + SETTLED_SECONDS:
            ticks[pid].append(Tick(at, cpu_seconds, int(records)))
        if at > began + SETTLED_SECONDS + seconds:
            break
    worker.terminate()
    assert len(ticks) == processes, f"{len(ticks)} processes had records"
    spans = [(found[0], found[-1]) for found in ticks.values()]
    did = [
        (last.records - first.records, last.cpu_seconds - first.cpu_seconds)
        for first, last in spans
    ]
    walls = [last.at - first.at for first, last in spans]
    each = list(zip(did, walls, strict=True))
    return Speed(
        sum(records / wall for (records, _), wall in each),
        sum(records / cpu for records, cpu in did),
        sum(cpu / wall for (_, cpu), wall in each) / processes,
    )


def compare(made: Fleet, rounds: int, seconds: float) -> None:
    """Print the speed of one process, of two, and the ratios of each round."""
    found: list[tuple[Speed, Speed]] = []
    for number in range(rounds):
        one = measured(made, f"one-{number}", 1, seconds)
        two = measured(made, f"two-{number}", 2, seconds)
        found.append((one, two))
    report = Report(f"two processes beside one, {rounds} rounds, medians")
    for index, name in enumerate(("one process", "two processes")):
        speeds = [pair[index] for pair in found]
        rate = median(speed.records_per_second for speed in speeds)
        share = median(speed.cpu_share for speed in speeds)
        report.note(f"{name}, records per second", f"{rate:,.0f}")
        report.note(f"{name}, CPU of each", f"{share:.0%} of a core")
    report.at_least(
        "ratio of records per second",
        median(two.records_per_second / one.records_per_second for one, two in found),
        1.9,
    )
    report.at_least(
        "ratio of records per CPU second",
        median(
            two.records_per_cpu_second / one.records_per_cpu_second
            for one, two in found
        ),
        1.9,
    )
    report.print()


# --- moves ---


def move(made: Fleet) -> None:
    """Print the gaps of planned moves between two processes."""
    made.aws.create_stream("orders", shards=8)
    command = ["run", "benchmarks.processes:moves", "--processes=2", "--client-id=m"]
    worker = made.run("kinesumer.ops.cli", *command)
    with producing(made.aws, ["orders"], PER_SECOND):
        time.sleep(SETTLED_SECONDS)
        for _ in range(MOVES):
            for options in (["--wait=30"], ["--undo"]):
                drain(made, "m-1", *options)
                time.sleep(SETTLED_SECONDS)
    seen = []
    for line in worker.terminate():
        at, _, shard, put_at, pid = line.split()
        seen.append(Seen(float(at), shard, float(put_at), pid))
    gaps = gaps_of_moves(seen)
    report = Report(f"{len(gaps)} planned moves between two processes")
    report.at_most("gap, median", percentile(gaps, 0.5), 0.5, " s")
    report.at_most("gap, longest", max(gaps), 1.0, " s")
    report.at_most("records delivered twice", repeated(seen), 0)
    report.print()


def drain(made: Fleet, client_id: str, *options: str) -> None:
    """Drain a client, or undo it."""
    command = [sys.executable, "-m", "kinesumer.ops.cli", "drain", client_id]
    subprocess.run(
        [*command, "--app=moves", "--table=state", *options],
        env={**os.environ, **made.aws.environment()},
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE_SECONDS,
        check=True,
    )


def main() -> None:
    """Print both parts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with fleet() as made:
        compare(made, options.rounds, options.seconds)
        move(made)


if __name__ == "__main__":
    main()
