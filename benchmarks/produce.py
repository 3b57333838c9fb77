"""Measure records put per CPU second, compared with other libraries.

    python -m benchmarks.produce [BYTES…]

Each producer runs in its own process, and puts records over HTTP to a server in another
process that accepts everything. Only the producer's CPU time counts. kinesumer's user
code is ``await producer.put(…)`` in a loop. The plain loop of aioboto3 puts full
batches of 500, four at once, and checks the answers. ``benchmarks.consume`` says how to
make the environment of the other libraries.
"""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.consume import HOW_TO, PEERS_PYTHON
from benchmarks.http_server import printed_rate, served
from benchmarks.report import Report

AIM = 3.0  # the ratio to the others at 100 B with aggregation
ROUNDS = 3
# So many that each run takes a few seconds.
RECORDS = {
    "kinesumer-aggregated": {100: 1_000_000, 1000: 300_000},
    "kinesumer": {100: 400_000, 1000: 300_000},
    "aioboto3": {100: 200_000, 1000: 100_000},
    "async-kinesis": {100: 50_000, 1000: 30_000},
}
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def main() -> None:
    """Print one table per size of a record."""
    for size in map(int, sys.argv[1:] or ["100", "1000"]):
        report = Report(f"{size} B: records put per CPU second")
        if not PEERS_PYTHON.exists():
            report.note("peers: not installed; make them by", HOW_TO)
        figures = measured(size)
        for producer, figure in figures.items():
            report.note(producer, f"{figure:,.0f}")
        for peer in ("aioboto3", "async-kinesis"):
            for own in ("kinesumer-aggregated", "kinesumer"):
                if peer not in figures:
                    continue
                ratio = figures[own] / figures[peer]
                is_aim = own == "kinesumer-aggregated" and size == 100
                aim = AIM if is_aim else None
                report.at_least(f"  {own}, ratio to {peer}", ratio, aim, " ×")
        report.print()


def measured(size: int) -> dict[str, float]:
    """Return the median figure of each producer. Its rounds alternate with others'."""
    rounds: dict[str, list[float]] = {}
    with served("benchmarks.put_server") as url:
        environment = {**CREDENTIALS, "AWS_ENDPOINT_URL_KINESIS": url}
        for _ in range(ROUNDS):
            for producer, amounts in RECORDS.items():
                own = producer.startswith("kinesumer")
                python = sys.executable if own else str(PEERS_PYTHON)
                if not own and not PEERS_PYTHON.exists():
                    continue
                rate = printed_rate(
                    "benchmarks.produce_peers",
                    producer,
                    amounts.get(size, 50_000),
                    size,
                    environment=environment,
                    python=python,
                )
                rounds.setdefault(producer, []).append(rate)
    return {producer: median(figures) for producer, figures in rounds.items()}


if __name__ == "__main__":
    main()
