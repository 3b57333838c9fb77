"""How many records a CPU second brings to user code, beside what peers bring.

    python -m benchmarks.consume [LAYOUT…]

In process: canned GetRecords answers through the whole path (decoding, buffer,
delivery, marks, commits to a store in memory, telemetry). Over HTTP: each consumer in a
process of its own against a server of canned answers; only the consumer's CPU time
counts. The peers need an environment of their own, made once by:

    bash -c '. scripts/environment.sh; environment .venv-bench bench editable'
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.canned import consume, set_up_telemetry
from benchmarks.decode import SOURCE, cheapest
from benchmarks.pages import LAYOUTS
from benchmarks.report import Report
from benchmarks.serving import served
from kinesumer.local import EmbeddedAws, background
from kinesumer.wire.aggregation import open_records
from kinesumer.wire.records import decode_page

PEERS_PYTHON = Path(".venv-bench/bin/python")
HOW_TO = "bash -c '. scripts/environment.sh; environment .venv-bench bench editable'"
AIMS = {"100B": 1.5e6, "1KB": 300e3, "10KB": 40e3, "KPL": 1.2e6}
RECORDS = {"100B": 3_000_000, "1KB": 600_000, "10KB": 60_000, "KPL": 2_000_000}
RATIOS = {"aioboto3": 20.0, "async-kinesis": 40.0}
"""Aims at 100 B."""
PEER_RECORDS = {
    "kinesumer": {"100B": 3_000_000, "1KB": 600_000, "10KB": 60_000},
    "aioboto3": {"100B": 200_000, "1KB": 100_000, "10KB": 25_000},
    "async-kinesis": {"100B": 100_000, "1KB": 80_000, "10KB": 25_000},
}
"""So many that each takes some seconds, and that pages read ahead don't count much."""


def main() -> None:
    """Print one table per layout."""
    set_up_telemetry()
    for name in sys.argv[1:] or LAYOUTS:
        report = Report(f"{LAYOUTS[name].name}: records per CPU second")
        canned = in_process(report, name)
        if not LAYOUTS[name].aggregated:
            over_http(report, name, canned)
        report.print()


def in_process(report: Report, name: str) -> float:
    """Measure decoding alone, then all the way to user code, and return that."""
    layout = LAYOUTS[name]
    body = layout.body()
    decoded = layout.records / cheapest(
        lambda: open_records(decode_page(body).records, SOURCE)
    )
    report.note("decoding and opening alone", f"{decoded:,.0f}")
    spent = asyncio.run(consume(layout, RECORDS[name]))
    report.at_least("async for, canned pages", spent.per_cpu_second, AIMS[name])
    report.note("  of decoding alone", f"{spent.per_cpu_second / decoded:.0%}")
    return spent.per_cpu_second


def over_http(report: Report, name: str, canned: float) -> None:
    """Measure kinesumer and its peers over HTTP."""
    if not PEERS_PYTHON.exists():
        report.note("peers: not installed; make them by", HOW_TO)
    with background(EmbeddedAws()) as aws, served("benchmarks.server", name) as url:
        aws.create_table("state")
        environment = {
            **os.environ,
            **aws.environment(),
            "AWS_ENDPOINT_URL_KINESIS": url,
        }
        figures = {}
        for consumer, amounts in PEER_RECORDS.items():
            python = sys.executable if consumer == "kinesumer" else str(PEERS_PYTHON)
            if not Path(python).exists():
                continue
            records = str(amounts[name])
            figures[consumer] = float(
                subprocess.run(
                    [python, "-m", "benchmarks.peers", consumer, records],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            report.note(f"{consumer}, over HTTP", f"{figures[consumer]:,.0f}")
    for peer, ratio in RATIOS.items():
        if peer not in figures:
            continue
        found = figures["kinesumer"] / figures[peer]
        if name == "100B":
            report.at_least(f"  ratio to {peer}", found, ratio, " ×")
        else:
            report.note(f"  ratio to {peer}", f"{found:.3g} ×")
        from_canned = canned / figures[peer]
        report.note("  ratio of canned pages to it", f"{from_canned:.3g} ×")


if __name__ == "__main__":
    main()
