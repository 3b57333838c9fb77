"""The report of ``kinesumer lag`` for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from kinesumer.cli.console import console, plain
from kinesumer.cli.terminal_view.glyphs import duration

STYLES = {"growing": "red", "stalled": "red", "steady": "yellow"}


def show(report: dict[str, Any]) -> None:
    """Print a report."""
    _print(console(), report)


def show_again(report: dict[str, Any]) -> None:
    """Print a report in place of the one before."""
    there = console()
    if there.is_terminal:
        there.clear()
    _print(there, report)


def _print(there: Console, report: dict[str, Any]) -> None:
    about = f"app {report['app']} in table {report['table']}"
    if report["seconds"] is not None:
        about += f": two looks, {report['seconds']:.1f} s apart"
    parts: list[RenderableType] = [plain(about, "bold")]
    for stream in report["streams"]:
        parts += ["", _stream(stream)]
    parts += [plain(f"! {text}", "red") for text in report["problems"]]
    there.print(Group(*parts))


def _stream(stream: dict[str, Any]) -> RenderableType:
    kept = stream["retention_hours"]
    about = f"{stream['stream_arn']}  {', '.join(filter(None, _told(stream)))}"
    if kept is not None:
        about += f"  (keeps records for {duration(kept * 3_600_000)})"
    table = Table(box=None, pad_edge=False)
    for title in ("shard", "state", "owner", "behind", "records", "trend", "caught up"):
        table.add_column(title)
    for shard in stream["shards"]:
        behind, records, trend, until = _told(shard)
        table.add_row(
            plain(shard["shard_id"]),
            plain("paused" if shard["paused"] else shard["state"]),
            plain(shard["owner"] or "nobody"),
            behind,
            records,
            plain(trend, STYLES.get(shard["trend"], "")),
            until,
        )
    notes = [
        plain(f"! {s['problem']}", "red") for s in stream["shards"] if s["problem"]
    ]
    return Group(plain(about, "bold"), table, *notes)


def _told(of: dict[str, Any]) -> list[str]:
    """Return how far something is behind, in time and records, its trend and end."""
    millis, speed = of["millis_behind_latest"], of["millis_per_second"]
    trend = of["trend"]
    if trend in ("falling", "growing", "steady") and speed is not None:
        trend += f" {abs(speed) / 1000:.1f} s/s"
    until = of["seconds_to_catch_up"]
    return [
        "? behind" if millis is None else f"{duration(millis)} behind",
        _records(of),
        trend,
        "" if not until else f"in about {duration(until * 1000)}",
    ]


def _records(of: dict[str, Any]) -> str:
    count = of["records_behind"]
    if count is None:
        return "? records"
    return f"{'' if of['records_exact'] else '~'}{count:,} records"
