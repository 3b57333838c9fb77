"""Measure the cost of a client of 100 idle shards, and its size with a backlog.

    python -m benchmarks.idle

The client is a process of its own over HTTP. Idle: without a record for so long that
shards are read once a second, which is made to come at once here. Backlog: every
shard has full pages without end, and user code never asks for a second record.
"""

from __future__ import annotations

from benchmarks.fleet import Fleet, fleet
from benchmarks.pages import LAYOUTS
from benchmarks.report import Report
from benchmarks.serving import served
from benchmarks.worker import IDLE_SECONDS
from kinesumer import Config

SHARDS = 100
MIB = 1 << 20
IDLE_CPU, IDLE_BYTES = 8.0, 150 * MIB
SLACK = 1.3


def main() -> None:
    """Print both tables."""
    with fleet() as made:
        made.aws.create_stream("quiet", shards=SHARDS)
        resident = idle(made)
        backlog(made, resident)


def idle(made: Fleet) -> int:
    """Measure waiting; return the bytes of memory."""
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
        with served("benchmarks.server", name) as url:
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
