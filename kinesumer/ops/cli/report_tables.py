"""Draw reports for people: the tables of ``lag`` and ``distribution``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group

from kinesumer.model.streams import stream_name, stream_place
from kinesumer.ops.cli.console import Cell, indented, name, plain, print_lines, table
from kinesumer.ops.group.lag import CAUGHT_UP, FALLING, GROWING, STEADY
from kinesumer.runtime.text import (
    MAX_STREAM_LETTERS,
    duration_text,
    number_text,
    shorten,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kinesumer.ops.group.distribution import DistributionReport
    from kinesumer.ops.group.lag import LagFigures, LagReport, StreamLag
    from kinesumer.ops.group.loads import Rates
    from kinesumer.ops.group.plan_reasons import PlanReport

UNASSIGNED = "unassigned"
LOAD_TITLES = "records/s", "bytes/s", "handler s/s"
TREND_STYLES = {"growing": "red", "stalled": "red", "steady": "yellow"}


def position_text(number: str | None, sub: int | None) -> str:
    """Return a position; nothing if there is none."""
    return number or "" if sub is None else f"{number}/{sub}"


def stream_title(arn: str) -> str:
    """Return a stream's name, shortened if it is long, with its account and region."""
    place = stream_place(arn)
    title = shorten(stream_name(arn), MAX_STREAM_LETTERS)
    return f"{title} ({place})" if place else title


def load_cells(load: Rates | None) -> list[Cell]:
    """Return the cells of a load, under ``LOAD_TITLES``."""
    if load is None:
        return ["", "", ""]
    return [
        number_text(load.records_per_second),
        number_text(load.bytes_per_second),
        number_text(load.handler_seconds_per_second),
    ]


def ratio(share: float | None) -> str:
    """Return the cell of a ratio."""
    return "" if share is None else f"{share:.2f}"


def plan_lines(plan: PlanReport) -> list[RenderableType]:
    """Return the lines that say why the plan is as it is."""
    if not plan.reasons:
        return []
    age_seconds = plan.age_seconds
    age = "" if age_seconds is None else f", {duration_text(1000 * age_seconds)} old"
    title = plain(f"plan by {plan.assignor}{age}", "bold")
    return ["", title, *(indented(text) for text in plan.reasons)]


# --- lag ------------------------------------------------------------------------------


def lag_tables(report: LagReport, trouble: str = "") -> RenderableType:
    """Return the report of ``kinesumer lag`` as tables, with the problems at the end.

    ``trouble`` says why there is no newer report.
    """
    about = f"app {report.app} in table {report.table}"
    if report.seconds is not None:
        about += f": two measurements, {report.seconds:.1f} s apart"
    parts: list[RenderableType] = [plain(about, "bold")]
    for stream in report.streams:
        parts += ["", _lag_stream(stream)]
    problems = [*report.problems, *([trouble] if trouble else [])]
    return Group(*parts, *(plain(f"! {text}", "red") for text in problems))


def _lag_stream(stream: StreamLag) -> RenderableType:
    behind, records, trend, until = _lag_texts(stream)
    hours = stream.retention_hours
    about = [
        f"{behind} behind" if behind[0].isdigit() else behind,
        f"{records} records" if records else "",
        trend,
        f"{until} left" if until else "",
        "" if hours is None else f"keeps records for {duration_text(hours * 3.6e6)}",
    ]
    title = f"{stream_title(stream.stream_arn)}: {', '.join(filter(None, about))}"
    rows: list[list[Cell]] = []
    for shard in stream.shards:
        behind, records, trend, until = _lag_texts(shard)
        rows.append(
            [
                name(shard.shard_id),
                plain("paused" if shard.paused else shard.state),
                name(shard.owner or UNASSIGNED),
                behind,
                records,
                plain(trend, TREND_STYLES.get(shard.trend, "")),
                until,
            ]
        )
    titles = "shard", "state", "owner", "behind", "records", "trend", "time left"
    notes = [plain(f"! {s.problem}", "red") for s in stream.shards if s.problem]
    return Group(plain(title, "bold"), table(titles, rows), *notes)


def _lag_texts(row: LagFigures) -> list[str]:
    """Return the lag in time and in records, its trend, and the time to catch up."""
    millis, speed = row.millis_behind_latest, row.millis_per_second
    trend, until = row.trend, row.seconds_to_catch_up
    if trend == CAUGHT_UP:
        return [trend, "", "", ""]
    if millis is None:
        return ["lag unknown", "", "", ""]
    if trend in (FALLING, GROWING, STEADY) and speed is not None:
        trend += f" {abs(speed) / 1000:.1f} s/s"
    return [
        duration_text(millis),
        _records_text(row),
        trend,
        duration_text(until * 1000) if until else "",
    ]


def _records_text(row: LagFigures) -> str:
    count = row.records_behind
    if count is None:
        return "unknown"
    return f"{'' if row.records_exact else '~'}{count:,}"


# --- distribution ---------------------------------------------------------------------


def show_distribution(subject: str, report: DistributionReport) -> None:
    """Print the report of ``kinesumer distribution``."""
    total = f"{report.shards} shards, {_rate_text(report.bytes_per_second)}"
    plan = report.plan
    by_load = plan is not None and plan.assignor == "load"
    titles = (
        *(report.by, "clients", "shards", "fair", "a client", "throughput"),
        *("work", "load / share"),
    )
    clusters: list[list[Cell]] = [
        [
            name(row.cluster or "(none)"),
            str(row.clients),
            str(row.shards),
            "" if by_load else f"{row.fair_shards:g}",
            f"{row.fewest_of_a_client} to {row.most_of_a_client}",
            _rate_text(row.bytes_per_second),
            _percent(row.work_share),
            ratio(row.load_share),
        ]
        for row in report.clusters
    ]
    clients: list[list[Cell]] = [
        [
            name(row.client_id),
            name(row.cluster or "(none)"),
            str(row.shards),
            _rate_text(row.bytes_per_second),
        ]
        for row in report.clients
    ]
    problems = list(report.problems)
    if report.unowned:
        problems.insert(0, f"{report.unowned} shards have no owner")
    title = plain(f"{subject}: {total}", "bold")
    print_lines(
        title,
        table(titles, clusters),
        "",
        table(("client", report.by, "shards", "throughput"), clients),
        *_distribution_loads(report),
        *(plan_lines(plan) if plan is not None else []),
        problems=problems,
    )


def _distribution_loads(report: DistributionReport) -> list[RenderableType]:
    """Return the loads of the clients and of the busiest shards, if they are known."""
    if not report.busiest_shards:
        return []
    clients: list[list[Cell]] = [
        [
            name(row.client_id),
            *load_cells(row.load),
            _percent(row.work_share),
            ratio(row.load_share),
        ]
        for row in report.clients
    ]
    shards: list[list[Cell]] = [
        [
            name(row.shard_id),
            name(stream_name(row.stream_arn)),
            name(row.owner or UNASSIGNED),
            *load_cells(row.load),
            _percent(row.work_share),
            "hot" if row.hot else "",
        ]
        for row in report.busiest_shards
    ]
    return [
        "",
        table(("client", *LOAD_TITLES, "work", "load / share"), clients),
        "",
        table(("busiest shard", "stream", "owner", *LOAD_TITLES, "work", ""), shards),
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _rate_text(bytes_per_second: float | None) -> str:
    if bytes_per_second is None:
        return "?"
    return f"{bytes_per_second / 1024:,.1f} KiB/s"
