"""Draw reports for people: the tables of ``status``, ``lag`` and ``distribution``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kinesumer.model.streams import stream_name
from kinesumer.model.times import time_text
from kinesumer.ops.cli.console import (
    Cell,
    Names,
    checkpoint_text,
    console,
    indented,
    marked,
    name,
    plain,
    print_lines,
    stream_title,
    table,
)
from kinesumer.ops.group.distribution import BusyShard, DistributionReport, Spread
from kinesumer.ops.group.lag import (
    CAUGHT_UP,
    FALLING,
    GROWING,
    STEADY,
    LagFigures,
    LagReport,
    ShardLag,
    StreamLag,
)
from kinesumer.ops.group.loads import PlanReport
from kinesumer.ops.group.status import (
    GroupReport,
    MemberReport,
    ShardReport,
    StreamReport,
)
from kinesumer.runtime.text import counted, duration_text, number_text

UNASSIGNED = "unassigned"
LOAD_TITLES = "records/s", "bytes/s", "handler s/s"
TREND_STYLES = {"growing": "red", "stalled": "red", "steady": "yellow"}
STATE_STYLES = {
    "unowned": "red",
    "orphaned": "red",
    "waiting": "yellow",
    "moving": "yellow",
}
BAR_COLUMNS = 10  # leaves room for the other columns in a terminal of 80
# A picture that is drawn again and again names so many problems, and counts the others.
MAX_PROBLEMS = 3


def status_tables(report: GroupReport, *, verbose: bool = False) -> RenderableType:
    """Return the report as tables of clients and shards; ``verbose`` with positions."""
    loads = verbose or report.plan.assignor == "load"
    parts = _group(report, loads=loads)
    for stream in report.streams:
        parts += ["", _stream_title(stream), _shards(stream, verbose, loads)]
    return Group(*parts, *marked(report.problems))


def status_picture(report: GroupReport, trouble: str = "") -> RenderableType:
    """Return the clients and streams without shards, with the problems first.

    ``trouble`` says why there is no newer report.
    """
    problems = list(filter(None, [trouble, *report.problems]))
    shown = problems[:MAX_PROBLEMS]
    if more := len(problems) - len(shown):
        shown.append(f"and {counted(more, 'more problem')}: see kinesumer status")
    title, *parts = _group(report, loads=report.plan.assignor == "load")
    streams = [_stream_title(stream) for stream in report.streams]
    return Group(title, *marked(shown), *parts, "", *streams)


def _group(report: GroupReport, *, loads: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [
        plain(f"app {report.app} in table {report.table}", "bold")
    ]
    if report.paused:
        parts.append(plain(f"all streams are {_paused_text(report)}", "yellow"))
    parts.append(_members(report.members))
    loaded = [member for member in report.members if member.load]
    if loads and loaded:
        parts += ["", _loads(loaded)]
    return parts + _plan_lines(report.plan) if loads else parts


def _paused_text(row: GroupReport | StreamReport) -> str:
    return f"paused: {row.pause_reason}" if row.pause_reason else "paused"


def _members(members: Sequence[MemberReport]) -> RenderableType:
    """Return a row for each client, with a bar for the number of its shards."""
    if not members:
        return Text("no client is alive", style="red")
    titles = "client", "index", "leads", "state", "heartbeat", "shards", ""
    most = max(1, *(member.shards for member in members))
    full = "#" if console().options.ascii_only else "█"
    bars = [full * round(BAR_COLUMNS * member.shards / most) for member in members]
    cells = map(_member, members)
    return table(titles, [[*row, bar] for row, bar in zip(cells, bars, strict=True)])


def _member(member: MemberReport) -> list[Cell]:
    # A stalled client can't update its own state, so show that it is stalled.
    state = "stalled" if member.stalled else member.state
    if member.drained:
        state = "drained" if state == "up" else f"{state}, drained"
    return [
        name(member.client_id),
        "joining" if member.index is None else str(member.index),
        "leader" * member.leader,
        plain(state, "" if state in ("up", "drained") else "red"),
        _known("{:.1f} s ago", member.heartbeat_unchanged_seconds),
        str(member.shards),
    ]


def _known(form: str, value: float | None) -> str:
    """Return a formatted value; nothing if it is unknown."""
    return "" if value is None else form.format(value)


def _loads(members: Sequence[MemberReport]) -> RenderableType:
    return table(
        ("client", *LOAD_TITLES, "load / share"),
        [[name(one.client_id), *_load_cells(one), _ratio(one)] for one in members],
    )


def _stream_title(stream: StreamReport) -> Text:
    ended = stream.states.get("ended", 0)
    about = [
        _behind_text(stream),
        f"start {_start_text(stream.start)}",
        *([f"{ended} ended shards"] if ended else []),
        *([_paused_text(stream)] if stream.paused else []),
        *(use.text for use in stream.fan_out),
        *([stream.failures.text] if stream.failures else []),
    ]
    title = f"{stream_title(stream.stream_arn)}: {'; '.join(filter(None, about))}"
    return plain(title, "bold")


def _shards(stream: StreamReport, verbose: bool, loads: bool) -> RenderableType:
    titles = ["shard", "share", "state", "owner", "lag"]
    if verbose:
        titles += ["position", "position's lag", "epoch", "hash keys from"]
    if loads:
        titles += LOAD_TITLES
    rows = [
        [
            *_shard(shard),
            *(_details(shard) if verbose else []),
            *(_load_cells(shard) if loads else []),
        ]
        for shard in stream.shards
        if shard.state != "ended"
    ]
    return table(titles, rows)


def _start_text(stored: str) -> str:
    """Return a stored start with its time, if any, as text in UTC."""
    seconds = stored.partition(" ")[2]
    return time_text(float(seconds)) if seconds else stored


def _shard(shard: ShardReport) -> list[Cell]:
    owners = [shard.owner or UNASSIGNED]
    if shard.state in ("moving", "unowned", "orphaned"):
        owners.append(shard.planned_owner or UNASSIGNED)
    owner = Names(dict.fromkeys(owners))
    state = Text(shard.state, style=STATE_STYLES.get(shard.state, ""))
    if shard.paused:
        state = Text("paused" if shard.state == "unowned" else f"{state}, paused")
    marks = ["hot" * shard.hot, "isolated" * shard.isolated]
    state.append("".join(f", {mark}" for mark in marks if mark))
    share = f"{shard.share:.1%}"
    return [name(shard.shard_id), share, state, owner, _behind_text(shard)]


def _details(shard: ShardReport) -> list[Cell]:
    millis = shard.millis_behind_latest
    position = checkpoint_text(shard.sequence_number, shard.sub_sequence_number)
    return [
        plain(position or "none yet"),
        "" if millis is None else duration_text(millis),
        str(shard.epoch),
        shard.first_hash,
    ]


def _behind_text(row: ShardReport | StreamReport) -> str:
    """Return the lag of a shard or stream in words; nothing if it is unknown."""
    millis = row.millis_behind_latest
    if millis is None:
        return ""
    return "caught up" if row.caught_up else f"{duration_text(millis)} behind"


def _load_cells(row: MemberReport | ShardReport | Spread | BusyShard) -> list[Cell]:
    if (load := row.load) is None:
        return ["", "", ""]
    rates = load.records_per_second, load.bytes_per_second
    return [*map(number_text, (*rates, load.handler_seconds_per_second))]


def _ratio(row: MemberReport | Spread) -> str:
    return _known("{:.2f}", row.load_share)


def _plan_lines(plan: PlanReport | None) -> list[RenderableType]:
    if plan is None or not plan.reasons:
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
    apart = _known(": two measurements, {:.1f} s apart", report.seconds)
    about = f"app {report.app} in table {report.table}{apart}"
    parts: list[RenderableType] = [plain(about, "bold")]
    for stream in report.streams:
        parts += ["", _lag_stream(stream)]
    return Group(*parts, *marked(filter(None, [*report.problems, trouble])))


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
    titles = "shard", "state", "owner", "behind", "records", "trend", "time left"
    notes = marked(s.problem for s in stream.shards if s.problem)
    rows = list(map(_lag_shard, stream.shards))
    return Group(plain(title, "bold"), table(titles, rows), *notes)


def _lag_shard(shard: ShardLag) -> list[Cell]:
    behind, records, trend, until = _lag_texts(shard)
    return [
        name(shard.shard_id),
        plain("paused" if shard.paused else shard.state),
        name(shard.owner or UNASSIGNED),
        behind,
        records,
        plain(trend, TREND_STYLES.get(shard.trend, "")),
        until,
    ]


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
    count = row.records_behind
    return [
        duration_text(millis),
        "unknown" if count is None else f"{'' if row.records_exact else '~'}{count:,}",
        trend,
        duration_text(until * 1000) if until else "",
    ]


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
            _work(row),
            _ratio(row),
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
    unowned = f"{report.unowned} shards have no owner" if report.unowned else ""
    print_lines(
        plain(f"{subject}: {total}", "bold"),
        table(titles, clusters),
        "",
        table(("client", report.by, "shards", "throughput"), clients),
        *_distribution_loads(report),
        *_plan_lines(plan),
        problems=filter(None, [unowned, *report.problems]),
    )


def _distribution_loads(report: DistributionReport) -> list[RenderableType]:
    """Return the loads of the clients and of the busiest shards, if they are known."""
    if not report.busiest_shards:
        return []
    clients: list[list[Cell]] = [
        [name(row.client_id), *_load_cells(row), _work(row), _ratio(row)]
        for row in report.clients
    ]
    shards: list[list[Cell]] = [
        [
            name(row.shard_id),
            name(stream_name(row.stream_arn)),
            name(row.owner or UNASSIGNED),
            *_load_cells(row),
            _work(row),
            "hot" * row.hot,
        ]
        for row in report.busiest_shards
    ]
    return [
        "",
        table(("client", *LOAD_TITLES, "work", "load / share"), clients),
        "",
        table(("busiest shard", "stream", "owner", *LOAD_TITLES, "work", ""), shards),
    ]


def _work(row: Spread | BusyShard) -> str:
    return _known("{:.1%}", row.work_share)


def _rate_text(rate: float | None) -> str:
    return "?" if rate is None else f"{rate / 1024:,.1f} KiB/s"
