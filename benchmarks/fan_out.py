"""Compare enhanced fan-out with polling: latency, throughput, idle shards and moves.

    python -m benchmarks.fan_out [latency|throughput|idle|moves…]

Clients are processes of their own. Latency and moves use the embedded AWS, which sends
a record 70 ms after its put, without and with TLS.
Throughput uses a server of prepared events, and counts the client's CPU time only.
"""

from __future__ import annotations

import sys
import time

from benchmarks.fleet import Fleet, Worker, fleet, producing
from benchmarks.handover import Seen, gaps_of_moves, parsed, repeated
from benchmarks.http_server import printed_rate, served_kinesis
from benchmarks.report import Report, percentile
from benchmarks.worker import IDLE_SECONDS
from kinesumer.testing import EmbeddedAws, background

TLS = "TLS"
TRANSPORTS = "plain", TLS
WAYS = {"polling": "", "fan-out": "@bench"}
PER_SECOND = 100.0
MEASURED_SECONDS, CALM_SECONDS = 20.0, 8.0
# Bytes of a record: records of an event, records to read, and the aim over TLS.
LAYOUTS = {
    100: (5_000, 3_000_000, 500e3),
    1_000: (800, 600_000, 130e3),
}
IDLE_SHARDS = (10, 1_000)
CLAIMING_SECONDS = 600.0  # for so many shards, beside the embedded AWS
TAKEOVER_SECONDS = 13.5 + 5  # of a killed leader, and Kinesis's five-second rule


def main() -> None:
    """Print the tables of all parts, or of the given parts."""
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()


def latency() -> None:
    """Measure the time from a put to user code."""
    report = Report("from put to handler, caught up")
    for transport in TRANSPORTS:
        for way, consumer in WAYS.items():
            with fleet(tls=transport == TLS) as made:
                made.aws.create_stream("orders", shards=4)
                worker = made.start("app", f"orders{consumer}", "each")
                with producing(made.aws, ["orders"], PER_SECOND):
                    worker.line()
                    began = time.time() + 3
                    time.sleep(3 + MEASURED_SECONDS)
                seen = parsed(worker.leave(), way)
            waits = [1000 * (r.at - r.put_at) for r in seen if r.put_at > began]
            median, slow = percentile(waits, 0.5), percentile(waits, 0.99)
            aims = (90, 160) if consumer else (None, None)
            report.at_most(f"{way}, {transport}, median", median, aims[0], " ms")
            report.at_most("  99th percentile", slow, aims[1], " ms")
    report.print()


def throughput() -> None:
    """Measure records per CPU second of a client that iterates over all records."""
    with background(EmbeddedAws()) as aws:
        aws.create_table("state")
        for size, (records, count, aim) in LAYOUTS.items():
            report = Report(f"records of {size:,} B per CPU second")
            for transport in TRANSPORTS:
                with served_kinesis(
                    "benchmarks.push_server", records, size, tls=transport == TLS
                ) as reach:
                    polling, pushed, columns = (
                        printed_rate(
                            "benchmarks.peers",
                            consumer,
                            count,
                            environment=aws.environment() | reach,
                        )
                        for consumer in ("kinesumer", "fan-out", "fan-out-columns")
                    )
                report.note(f"polling, {transport}", f"{polling:,.0f}")
                wanted = aim if transport == TLS else None
                report.at_least(f"fan-out, {transport}", pushed, wanted)
                report.note("  as columns", f"{columns:,.0f}")
            report.print()


def idle() -> None:
    """Measure the CPU time and memory of a client with idle shards."""
    few, many = IDLE_SHARDS
    report = Report(f"{many:,} idle shards in one client")
    for transport in TRANSPORTS:
        for way, consumer in WAYS.items():
            found = {}
            for shards in IDLE_SHARDS:
                with fleet(tls=transport == TLS) as made:
                    made.aws.create_stream("quiet", shards=shards)
                    worker = made.start("app", f"quiet{consumer}", f"steady:{shards}")
                    cpu, resident, *_ = worker.line(CLAIMING_SECONDS).split()
                    found[shards] = float(cpu), int(resident)
            share = 100 * found[many][0] / IDLE_SECONDS
            grown = (found[many][1] - found[few][1]) / (many - few)
            report.note(f"{way}, {transport}", f"{share:.3g} % of a core")
            report.note("  memory per shard", f"{grown / 1024:.3g} KiB")
    report.print()


def moves() -> None:
    """Measure planned moves of shards and the takeover after a crash."""
    for transport in TRANSPORTS:
        report = Report(f"moves of shards, {transport}")
        for way, consumer in WAYS.items():
            with fleet(tls=transport == TLS) as made:
                seen, killed_at = moved(made, f"orders{consumer}")
            planned = [record for record in seen if record.at < killed_at]
            gaps = gaps_of_moves(planned)
            median, taken = percentile(gaps, 0.5), takeover(seen, killed_at)
            aims = (0.7, TAKEOVER_SECONDS, 0) if consumer else (None, None, None)
            report.at_most(f"{way}, planned, median", median, aims[0], " s")
            report.at_most("  takeover, longest", taken, aims[1], " s")
            report.at_most("  delivered twice, planned", repeated(planned), aims[2])
        report.print()


def moved(made: Fleet, stream: str) -> tuple[list[Seen], float]:
    """Let a second client join and leave twice, and kill the first one at the end.

    Return the delivered records, and when the client was killed.
    """
    made.aws.create_stream("orders", shards=8)
    first = made.start("app", stream, "each")
    with producing(made.aws, ["orders"], PER_SECOND):
        seen = parsed([first.line()], "first")
        for number in range(2):
            time.sleep(CALM_SECONDS)
            other = made.start("app", stream, "each")
            begin = other.line()  # the first moves are over
            time.sleep(CALM_SECONDS)
            seen += parsed([begin, *other.leave()], f"other-{number}")
        time.sleep(CALM_SECONDS)
        last = made.start("app", stream, "each")
        begin = last.line()
        time.sleep(CALM_SECONDS)
        killed_at = time.time()
        seen += parsed(killed(first), "first")
        time.sleep(TAKEOVER_SECONDS + 2)
    return seen + parsed([begin, *last.leave()], "last"), killed_at


def killed(worker: Worker) -> list[str]:
    """Kill a worker, and return the whole lines that it printed."""
    worker.end()
    return [line for line in worker.printed() if line.endswith("\n")]


def takeover(seen: list[Seen], killed_at: float) -> float:
    """Return the longest time from the kill to a shard's next record."""
    following: dict[str, float] = {}
    for record in sorted(seen):
        if record.at > killed_at:
            following.setdefault(record.shard, record.at - killed_at)
    assert following.keys() == {record.shard for record in seen}, "a shard is stuck"
    return max(following.values())


PARTS = {"latency": latency, "throughput": throughput, "idle": idle, "moves": moves}

if __name__ == "__main__":
    main()
