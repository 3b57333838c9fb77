"""Reports for people: the tables of ``status``, ``lag`` and ``distribution``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from kinesumer.model.streams import stream_name, stream_place
from kinesumer.ops.cli.console import (
    Cell,
    Names,
    console,
    indented,
    name,
    plain,
    print_lines,
    table,
)
from kinesumer.ops.group.fan_out import use_text
from kinesumer.ops.group.lag import CAUGHT_UP, FALLING, GROWING, STEADY
from kinesumer.runtime.text import duration_text, number_text, shorten

if TYPE_CHECKING:
    from rich.console import RenderableType

UNASSIGNED = "unassigned"
MAX_STREAM_LETTERS = 40

STATE_STYLES = {
    "unowned": "red",
    "orphaned": "red",
    "waiting": "yellow",
    "moving": "yellow",
}
LOAD_TITLES = "records/s", "bytes/s", "handler s/s"
TREND_STYLES = {"growing": "red", "stalled": "red", "steady": "yellow"}


def position_text(shard: dict[str, Any], none: str) -> str:
    """Return a shard's position in a report; ``none`` if it has no position."""
    number, sub = shard["sequence_number"], shard["sub_sequence_number"]
    if number is None:
        return none
    return number if sub is None else f"{number}/{sub}"


def stream_title(arn: str) -> str:
    """Return a stream's name, shortened if it is long, with its account and region."""
    place = stream_place(arn)
    title = shorten(stream_name(arn), MAX_STREAM_LETTERS)
    return f"{title} ({place})" if place else title


# --- status ---------------------------------------------------------------------------


def show_status(report: dict[str, Any], *, verbose: bool = False) -> None:
    """Print the report of ``kinesumer status``.

    ``verbose`` adds hash keys, epochs and positions, whose lines can be long.
    """
    parts: list[RenderableType] = [
        plain(f"app {report['app']} in table {report['table']}", "bold")
    ]
    if report["paused"]:
        parts.append(plain(f"all streams are {_paused_text(report)}", "yellow"))
    parts.append(_members(report["members"]))
    loads = verbose or report["plan"]["assignor"] == "load"
    loaded = [member for member in report["members"] if member["load"]]
    if loads and loaded:
        parts += ["", _loads(loaded)]
    if loads:
        parts += _plan(report["plan"])
    for stream in report["streams"]:
        parts += ["", _status_stream(stream, verbose=verbose, loads=loads)]
    print_lines(*parts, problems=report["problems"], wide=verbose)


def _paused_text(row: dict[str, Any]) -> str:
    return f"paused: {row['pause_reason']}" if row["pause_reason"] else "paused"


def _members(members: list[dict[str, Any]]) -> RenderableType:
    if not members:
        return Text("no client is alive", style="red")
    titles = "client", "index", "leads", "state", "heartbeat", "shards"
    rows: list[list[Cell]] = []
    for member in members:
        age_seconds = member["heartbeat_unchanged_seconds"]
        # A stalled client can't update its own state, so show that it is stalled.
        state = "stalled" if member["stalled"] else member["state"]
        if member["drained"]:
            state = "drained" if state == "up" else f"{state}, drained"
        rows.append(
            [
                name(member["client_id"]),
                "joining" if member["index"] is None else str(member["index"]),
                "leader" if member["leader"] else "",
                plain(state, "" if state in ("up", "drained") else "red"),
                "" if age_seconds is None else f"{age_seconds:.1f} s ago",
                str(member["shards"]),
            ]
        )
    return table(titles, rows)


def _loads(members: list[dict[str, Any]]) -> RenderableType:
    rows: list[list[Cell]] = [
        [name(member["client_id"]), *_load_cells(member), _ratio(member["load_share"])]
        for member in members
    ]
    return table(("client", *LOAD_TITLES, "load / share"), rows)


def _load_cells(row: dict[str, Any]) -> list[Cell]:
    load = row["load"]
    if load is None:
        return ["", "", ""]
    return [
        number_text(load["records_per_second"]),
        number_text(load["bytes_per_second"]),
        number_text(load["handler_seconds_per_second"]),
    ]


def _ratio(share: float | None) -> str:
    return "" if share is None else f"{share:.2f}"


def _plan(plan: dict[str, Any]) -> list[RenderableType]:
    """Return the lines that say why the plan is as it is."""
    if not plan["reasons"]:
        return []
    age_seconds = plan["age_seconds"]
    age = "" if age_seconds is None else f", {duration_text(1000 * age_seconds)} old"
    title = plain(f"plan by {plan['assignor']}{age}", "bold")
    return ["", title, *(indented(text) for text in plan["reasons"])]


def _status_stream(
    stream: dict[str, Any], *, verbose: bool, loads: bool
) -> RenderableType:
    ended = stream["states"].get("ended", 0)
    about = [
        _behind_text(stream),
        f"start {_start_text(stream['start'])}",
        *([f"{ended} ended shards"] if ended else []),
        *([_paused_text(stream)] if stream["paused"] else []),
        *map(use_text, stream["fan_out"]),
        *_failing(stream["failures"]),
    ]
    title = f"{stream_title(stream['stream_arn'])}: {'; '.join(filter(None, about))}"
    titles = ["shard", "share", "state", "owner", "lag"]
    if verbose:
        titles += ["position", "position's lag", "epoch", "hash keys from"]
    if loads:
        titles += LOAD_TITLES
    shards = [shard for shard in stream["shards"] if shard["state"] != "ended"]
    rows = [
        [
            *_status_shard(shard),
            *(_details(shard) if verbose else []),
            *(_load_cells(shard) if loads else []),
        ]
        for shard in shards
    ]
    return Group(plain(title, "bold"), table(titles, rows, wide=verbose))


def _failing(failures: dict[str, Any] | None) -> list[str]:
    """Return how much of a stream fails; nothing if nothing does."""
    return [] if failures is None else [failures["text"]]


def _start_text(stored: str) -> str:
    """Return a stored start with its time, if any, as text in UTC."""
    _, _, seconds = stored.partition(" ")
    if not seconds:
        return stored
    moment = datetime.fromtimestamp(float(seconds), UTC)
    return f"{moment.isoformat(timespec='seconds').removesuffix('+00:00')}Z"


def _status_shard(shard: dict[str, Any]) -> list[Cell]:
    owners = [shard["owner"] or UNASSIGNED]
    if shard["state"] in ("moving", "unowned", "orphaned"):
        owners.append(shard["planned_owner"] or UNASSIGNED)
    owner = Names(dict.fromkeys(owners))
    state = Text(shard["state"], style=STATE_STYLES.get(shard["state"], ""))
    if shard["paused"]:
        state = Text("paused" if shard["state"] == "unowned" else f"{state}, paused")
    for mark in ("hot", "isolated"):
        if shard[mark]:
            state.append(f", {mark}")
    return [
        name(shard["shard_id"]),
        f"{shard['share']:.1%}",
        state,
        owner,
        _behind_text(shard),
    ]


def _details(shard: dict[str, Any]) -> list[Cell]:
    millis = shard["millis_behind_latest"]
    return [
        plain(position_text(shard, "none yet")),
        "" if millis is None else duration_text(millis),
        str(shard["epoch"]),
        shard["first_hash"],
    ]


def _behind_text(row: dict[str, Any]) -> str:
    """Return the lag of a shard or stream in words; nothing if it is unknown."""
    millis = row["millis_behind_latest"]
    if millis is None:
        return ""
    return "caught up" if row["caught_up"] else f"{duration_text(millis)} behind"


# --- lag ------------------------------------------------------------------------------


def show_lag_again(report: dict[str, Any]) -> None:
    """Print a report of ``kinesumer lag`` in place of the one before."""
    target = console()
    if target.is_terminal:
        target.clear()
    show_lag(report)


def show_lag(report: dict[str, Any]) -> None:
    """Print the report of ``kinesumer lag``."""
    about = f"app {report['app']} in table {report['table']}"
    if report["seconds"] is not None:
        about += f": two measurements, {report['seconds']:.1f} s apart"
    parts: list[RenderableType] = [plain(about, "bold")]
    for stream in report["streams"]:
        parts += ["", _lag_stream(stream)]
    print_lines(*parts, problems=report["problems"])


def _lag_stream(stream: dict[str, Any]) -> RenderableType:
    behind, records, trend, until = _lag_texts(stream)
    hours = stream["retention_hours"]
    about = [
        f"{behind} behind" if behind[0].isdigit() else behind,
        f"{records} records" if records else "",
        trend,
        f"{until} left" if until else "",
        "" if hours is None else f"keeps records for {duration_text(hours * 3.6e6)}",
    ]
    title = f"{stream_title(stream['stream_arn'])}: {', '.join(filter(None, about))}"
    rows: list[list[Cell]] = []
    for shard in stream["shards"]:
        behind, records, trend, until = _lag_texts(shard)
        rows.append(
            [
                name(shard["shard_id"]),
                plain("paused" if shard["paused"] else shard["state"]),
                name(shard["owner"] or UNASSIGNED),
                behind,
                records,
                plain(trend, TREND_STYLES.get(shard["trend"], "")),
                until,
            ]
        )
    titles = "shard", "state", "owner", "behind", "records", "trend", "time left"
    notes = [
        plain(f"! {s['problem']}", "red") for s in stream["shards"] if s["problem"]
    ]
    return Group(plain(title, "bold"), table(titles, rows), *notes)


def _lag_texts(row: dict[str, Any]) -> list[str]:
    """Return the lag in time and in records, its trend, and the time to catch up."""
    millis, speed = row["millis_behind_latest"], row["millis_per_second"]
    trend, until = row["trend"], row["seconds_to_catch_up"]
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


def _records_text(row: dict[str, Any]) -> str:
    count = row["records_behind"]
    if count is None:
        return "unknown"
    return f"{'' if row['records_exact'] else '~'}{count:,}"


# --- distribution ---------------------------------------------------------------------


def show_distribution(subject: str, report: dict[str, Any]) -> None:
    """Print the report of ``kinesumer distribution``."""
    total = f"{report['shards']} shards, {_rate_text(report['bytes_per_second'])}"
    plan = report["plan"]
    by_load = plan is not None and plan["assignor"] == "load"
    titles = (
        *(report["by"], "clients", "shards", "fair", "a client", "throughput"),
        *("work", "load / share"),
    )
    clusters: list[list[Cell]] = [
        [
            name(row["cluster"] or "(none)"),
            str(row["clients"]),
            str(row["shards"]),
            "" if by_load else f"{row['fair_shards']:g}",
            f"{row['fewest_of_a_client']} to {row['most_of_a_client']}",
            _rate_text(row["bytes_per_second"]),
            _percent(row["work_share"]),
            _ratio(row["load_share"]),
        ]
        for row in report["clusters"]
    ]
    clients: list[list[Cell]] = [
        [
            name(row["client_id"]),
            name(row["cluster"] or "(none)"),
            str(row["shards"]),
            _rate_text(row["bytes_per_second"]),
        ]
        for row in report["clients"]
    ]
    problems = list(report["problems"])
    if report["unowned"]:
        problems.insert(0, f"{report['unowned']} shards have no owner")
    title = plain(f"{subject}: {total}", "bold")
    print_lines(
        title,
        table(titles, clusters),
        "",
        table(("client", report["by"], "shards", "throughput"), clients),
        *_distribution_loads(report),
        *(_plan(plan) if plan is not None else []),
        problems=problems,
    )


def _distribution_loads(report: dict[str, Any]) -> list[RenderableType]:
    """Return the loads of the clients and of the busiest shards, if they are known."""
    if not report["busiest_shards"]:
        return []
    clients: list[list[Cell]] = [
        [
            name(row["client_id"]),
            *_load_cells(row),
            _percent(row["work_share"]),
            _ratio(row["load_share"]),
        ]
        for row in report["clients"]
    ]
    shards: list[list[Cell]] = [
        [
            name(row["shard_id"]),
            name(stream_name(row["stream_arn"])),
            name(row["owner"] or UNASSIGNED),
            *_load_cells(row),
            _percent(row["work_share"]),
            "hot" if row["hot"] else "",
        ]
        for row in report["busiest_shards"]
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
