"""Measure records per CPU second in user code, compared with other libraries.

    python -m benchmarks.consume [--tls] [LAYOUT…]

The first part runs in this process. Prepared GetRecords responses take the whole path:
decoding, buffer, delivery, acks, commits to a store in memory, and telemetry. The
second part uses HTTP, with ``--tls`` through TLS 1.3, as AWS has it: each consumer
runs in its own process and reads from a server of prepared responses. Only the
consumer's CPU time counts. "Receive only" is a loop that receives responses into one
buffer and decodes nothing, so it is the limit of every consumer. It and kinesumer take
turns for three rounds, whose medians count. The others run once, and not for KPL
aggregates, which most of them leave closed. The loop over AWS's SDK for Go in
``go/main.go`` needs only Go. The other libraries need their own environment, which
this command creates:

    bash -c '. scripts/environment.sh; environment .venv-bench bench editable'
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from shutil import which
from statistics import median

from benchmarks.canned_source import consume, set_up_telemetry
from benchmarks.decode import SOURCE, cheapest, each
from benchmarks.http_server import printed_rate, served_kinesis
from benchmarks.pages import JSON, LAYOUTS, Order
from benchmarks.report import Report, percentile
from kinesumer.testing import EmbeddedAws, background
from kinesumer.wire.records import decode_page
from tests.support.aggregates import open_records

PEERS_PYTHON = Path(".venv-bench/bin/python")
HOW_TO = "bash -c '. scripts/environment.sh; environment .venv-bench bench editable'"
AIMS = {"100B": 1.5e6, "1KB": 300e3, "10KB": 40e3, "1MB": 300.0, "KPL": 1.2e6}
RECORDS = {
    "100B": 3_000_000,
    "1KB": 600_000,
    "10KB": 60_000,
    "1MB": 600,
    "KPL": 2_000_000,
}
# Target ratios over TLS, of records to what others read, and of columns to records.
TARGETS = {
    "kinesumer-json": {"100B": 1.0, "1KB": 1.4, "10KB": 1.5},
    "go-sdk": {"100B": 2.3, "1KB": 2.8},
    "aioboto3": {"100B": 20.0},
    "async-kinesis": {"100B": 40.0},
    "records": {"100B": 2.5, "1KB": 1.8},
}
OTHERS = ("go-sdk", "kcl-rs", "aioboto3", "async-kinesis")
OUR_RECORDS = {
    "100B": 3_000_000,
    "1KB": 600_000,
    "10KB": 60_000,
    "1MB": 1_000,
    "KPL": 3_000_000,
}
# So many that each run takes some seconds, and pages read ahead hardly matter.
MANY_RECORDS = {"100B": 10_000_000, "1KB": 1_500_000, "10KB": 200_000, "1MB": 2_000}
PEER_RECORDS = {
    "receive-only": MANY_RECORDS,
    "kinesumer": OUR_RECORDS,
    "kinesumer-json": OUR_RECORDS,
    "kinesumer-columns": MANY_RECORDS | {"KPL": 10_000_000},
    "go-sdk": {"100B": 1_500_000, "1KB": 400_000, "10KB": 60_000, "1MB": 1_000},
    "kcl-rs": {"100B": 1_500_000, "1KB": 400_000, "10KB": 60_000, "1MB": 1_000},
    "aioboto3": {"100B": 200_000, "1KB": 100_000, "10KB": 25_000, "1MB": 300},
    "async-kinesis": {"100B": 100_000, "1KB": 80_000, "10KB": 25_000, "1MB": 300},
}
# CPU time depends on what else the machine does, so the consumers take turns.
ROUNDS = 3
# No page may keep other tasks waiting for longer.
DECODE_MILLISECONDS = 20.0


def main() -> None:
    """Print one table per layout, then that of README.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consume")
    parser.add_argument("layouts", nargs="*", choices=[[], *LAYOUTS])
    parser.add_argument("--tls", action="store_true")
    given = parser.parse_args()
    set_up_telemetry()
    rows = {}
    for name in given.layouts or LAYOUTS:
        report = Report(f"{LAYOUTS[name].name}: records per CPU second")
        canned = in_process(report, name)
        row = f"{name}, {'TLS 1.3' if given.tls else 'HTTP'}"
        rows[row] = over_http(report, name, canned, tls=given.tls)
        report.print()
    print_table(rows)


def in_process(report: Report, name: str) -> float:
    """Measure decoding alone, then the whole path. Return the rate of the path."""
    layout = LAYOUTS[name]
    body = layout.body()

    def decode() -> object:
        return open_records(decode_page(body).records, SOURCE)

    decoded = layout.records / cheapest(decode)
    report.note("decoding and opening alone", f"{decoded:,.0f}")
    seconds = each(decode)
    report.note("  a page, median", f"{1e3 * percentile(seconds, 0.5):.1f} ms")
    slowest = 1e3 * max(seconds)
    report.at_most("  the slowest of 25 pages", slowest, DECODE_MILLISECONDS, " ms")
    spent = asyncio.run(consume(layout, RECORDS[name]))
    report.at_least("async for, canned pages", spent.per_cpu_second, AIMS[name])
    report.note("  of decoding alone", f"{spent.per_cpu_second / decoded:.0%}")
    if layout.size == JSON.size and not layout.aggregated:
        for what, type_ in (("JSON", None), ("JSON, decode= a Struct", Order)):
            rate = asyncio.run(consume(JSON, RECORDS[name], type_)).per_cpu_second
            report.note(f"  {what}", f"{rate:,.0f}")
    return spent.per_cpu_second


def over_http(
    report: Report, name: str, canned: float, *, tls: bool
) -> dict[str, float]:
    """Measure kinesumer and others over HTTP, or over TLS. Return the rate of each."""
    over = "over TLS" if tls else "over HTTP"
    if not PEERS_PYTHON.exists():
        report.note("peers: not installed; make them by", HOW_TO)
    with (
        background(EmbeddedAws()) as aws,
        served_kinesis("benchmarks.canned_server", name, tls=tls) as reach,
    ):
        aws.create_table("state")
        environment = aws.environment() | reach
        rates: dict[str, list[float]] = {}
        own = [consumer for consumer in PEER_RECORDS if consumer not in OTHERS]
        for consumer in [*PEER_RECORDS, *own * (ROUNDS - 1)]:
            python = python_for(consumer)
            if python is None or name not in PEER_RECORDS[consumer]:
                continue
            rate = printed_rate(
                "benchmarks.peers",
                consumer,
                PEER_RECORDS[consumer][name],
                environment=environment,
                python=python,
            )
            rates.setdefault(consumer, []).append(rate)
    figures = {consumer: median(several) for consumer, several in rates.items()}
    for consumer, figure in figures.items():
        spread = f"{min(rates[consumer]):,.0f} to {max(rates[consumer]):,.0f}"
        report.note(f"{consumer}, {over}", f"{figure:,.0f} ({spread})")
    targets = {each: TARGETS[each].get(name) for each in TARGETS if tls}
    for peer in figures:
        if peer != "kinesumer":
            ratio = figures["kinesumer"] / figures[peer]
            report.at_least(f"  ratio to {peer}", ratio, targets.get(peer), " ×")
    for peer in OTHERS:
        if peer in figures:
            from_canned = canned / figures[peer]
            report.note(f"  ratio of canned pages to {peer}", f"{from_canned:.3g} ×")
    gain = figures["kinesumer-columns"] / figures["kinesumer"]
    aim = targets.get("records")
    report.at_least("  ratio of columns to records", gain, aim, " ×")
    return figures


def print_table(rows: dict[str, dict[str, float]]) -> None:
    """Print the table of README.md: a row per layout, a column per consumer."""
    head = ["records of, over", *PEER_RECORDS, "ratio to receive-only"]
    lines = [head, ["---"] * len(head)]
    for name, figures in rows.items():
        cells = [
            f"{float(f'{figures[consumer]:.3g}'):,.0f}" if consumer in figures else "—"
            for consumer in PEER_RECORDS
        ]
        limit = figures.get("receive-only")
        share = f"{figures['kinesumer'] / limit:.2f}" if limit else "—"
        lines.append([name, *cells, share])
    print(*(f"| {' | '.join(line)} |" for line in lines), sep="\n")


def python_for(consumer: str) -> str | None:
    """Return the Python that runs a consumer, or None if what it needs is missing."""
    if consumer == "go-sdk":
        return sys.executable if which("go") else None
    if consumer in OTHERS:
        return str(PEERS_PYTHON) if PEERS_PYTHON.exists() else None
    return sys.executable


if __name__ == "__main__":
    main()
