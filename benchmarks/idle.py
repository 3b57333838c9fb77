"""Measure a client's CPU time with 100 idle shards, and its memory with a backlog.

    python -m benchmarks.idle [--tls]

The client runs in its own process, and reads over HTTP, or through TLS. The first part
has no records. After some time without records a shard is read only once a second; here
that begins at once. In the second part every shard has endless full pages, and user
code never asks for a second record.
"""

from __future__ import annotations

import argparse

from benchmarks.fleet import Fleet, fleet
from benchmarks.http_server import served
from benchmarks.pages import LAYOUTS
from benchmarks.report import Report
from benchmarks.worker import IDLE_SECONDS
from kinesumer import Config

SHARDS = 100
MIB = 1 << 20
IDLE_CPU, IDLE_BYTES = 8.0, 150 * MIB
SLACK = 1.3


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle")
    parser.add_argument("--tls", action="store_true")
    with fleet(tls=parser.parse_args().tls) as made:
        made.aws.create_stream("quiet", shards=SHARDS)
        resident = idle(made)
        backlog(made, resident)


def idle(made: Fleet) -> int:
    """Measure a client that waits for records, and return its bytes of memory."""
    report = Report(f"{SHARDS} idle shards in one client")
    for what, aim in (("idle", IDLE_CPU), ("caught-up", None)):
        said = made.start(what, "quiet", what).line()
        cpu, kernel, resident = said.split()
        share = 100 * float(cpu) / IDLE_SECONDS
        if aim is None:
            report.note("caught up, read 4 times a second", f"{share:.3g} % of a core")
        else:
            report.at_most("idle, read once a second", share, aim, " % of a core")
            report.note("  thereof in the kernel", f"{float(kernel) / float(cpu):.0%}")
            report.at_most("resident", int(resident) / MIB, IDLE_BYTES / MIB, " MiB")
    report.print()
    return int(resident)


def backlog(made: Fleet, idle_bytes: int) -> None:
    """Measure the extra memory of a client with a backlog."""
    report = Report(f"full backlog on {SHARDS} shards, nobody asks")
    budget = Config().buffer_bytes
    for name, layout in LAYOUTS.items():
        with served("benchmarks.canned_server", name, **made.tls_environment) as url:
            worker = made.start(
                f"never-{name}",
                f"canned-{SHARDS}",
                "never",
                AWS_ENDPOINT_URL_KINESIS=url,
            )
            grown = int(worker.line()) - idle_bytes
            worker.end()
        aim = SLACK * budget / MIB
        report.at_most(f"growth, pages of {layout.name}", grown / MIB, aim, " MiB")
    report.print()


if __name__ == "__main__":
    main()
