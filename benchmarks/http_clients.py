"""Compare the library's own HTTP connections with aiohttp's, by CPU time per record.

    python -m benchmarks.http_clients [LAYOUT…]

Each consumer runs in its own process and reads prepared GetRecords responses over TLS
through the library's public interface. The consumers take turns for five rounds, whose
medians count. "aiohttp" has the library's signer, but one session of aiohttp. If
aiofastnet is installed, both run with its transports, too.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from statistics import median

from benchmarks.http_server import printed_rate, served_kinesis
from benchmarks.pages import LAYOUTS
from benchmarks.report import Report
from kinesumer.testing import EmbeddedAws, background

RECORDS = {"100B": 3_000_000, "1KB": 600_000, "10KB": 60_000, "1MB": 1_000}
ROUNDS = 5
# If aiohttp takes at most this much more CPU time at each size, it replaces the own
# connections.
MOST_MORE_PERCENT = 8.0
CONSUMERS = ["kinesumer", "aiohttp"]
if find_spec("aiofastnet"):
    CONSUMERS += ["kinesumer-fastnet", "aiohttp-fastnet"]


def main() -> None:
    """Print one table per layout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_clients")
    parser.add_argument("layouts", nargs="*", choices=[[], *RECORDS])
    for layout in parser.parse_args().layouts or RECORDS:
        report = Report(f"{LAYOUTS[layout].name} over TLS: CPU time per record")
        seconds = _measure(layout)
        for consumer in CONSUMERS:
            taken = median(seconds[consumer])
            more = 100 * (taken / median(seconds["kinesumer"]) - 1)
            report.note(f"{consumer}", f"{1e6 * taken:.3f} µs")
            if consumer != "kinesumer":
                aim = MOST_MORE_PERCENT if consumer == "aiohttp" else None
                report.at_most("  more than kinesumer", more, aim, " %")
        report.print()


def _measure(layout: str) -> dict[str, list[float]]:
    """Return the CPU seconds per record of each consumer in each round."""
    seconds: dict[str, list[float]] = {consumer: [] for consumer in CONSUMERS}
    with (
        background(EmbeddedAws()) as aws,
        served_kinesis("benchmarks.canned_server", layout, tls=True) as reach,
    ):
        aws.create_table("state")
        environment = aws.environment() | reach
        for consumer in CONSUMERS * ROUNDS:
            rate = printed_rate(
                "benchmarks.peers", consumer, RECORDS[layout], environment=environment
            )
            seconds[consumer].append(1 / rate)
    return seconds


if __name__ == "__main__":
    main()
