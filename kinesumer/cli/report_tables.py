"""Reports for people: the console they are printed on, and the tables of two."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinesumer.cli.terminal_view.glyphs import duration
from kinesumer.runtime.text import escape_unprintable

FILE_COLUMNS = 200
"""Width where the output isn't a terminal: wide enough to cut nothing off."""
MIN_TERMINAL_COLUMNS = 140
"""A narrower terminal wraps lines, so that no name is cut off."""

STATE_STYLES = {
    "unowned": "red",
    "orphaned": "red",
    "waiting": "yellow",
    "moving": "yellow",
}
TREND_STYLES = {"growing": "red", "stalled": "red", "steady": "yellow"}


def console() -> Console:
    """Return the console that reports are printed on."""
    default = Console()
    if default.is_terminal:
        return Console(width=max(default.width, MIN_TERMINAL_COLUMNS))
    return Console(width=FILE_COLUMNS)


def plain(text: str, style: str = "") -> Text:
    """Return text without markup: brackets stay, and control characters are escaped."""
    return Text(escape_unprintable(text), style=style)


def table(*titles: str, **settings: Any) -> Table:
    """Return a table without a frame."""
    result = Table(box=None, pad_edge=False, **settings)
    for title in titles:
        result.add_column(title)
    return result


def position_text(shard: dict[str, Any], none: str) -> str:
    """Return a shard's position in a report; ``none`` if it has no position."""
    number, sub = shard["sequence_number"], shard["sub_sequence_number"]
    if number is None:
        return none
    return number if sub is None else f"{number}/{sub}"


# --- status ---------------------------------------------------------------------------


def show_status(report: dict[str, Any]) -> None:
    """Print the report of ``kinesumer status``."""
    parts: list[RenderableType] = [
        plain(f"app {report['app']} in table {report['table']}", "bold")
    ]
    if report["paused"]:
        parts.append(plain(f"all streams are {_paused_text(report)}", "yellow"))
    parts.append(_members(report["members"]))
    for stream in report["streams"]:
        parts += ["", _status_stream(stream)]
    parts += [plain(f"! {text}", "red") for text in report["problems"]]
    console().print(Group(*parts))


def _paused_text(row: dict[str, Any]) -> str:
    return f"paused: {row['pause_reason']}" if row["pause_reason"] else "paused"


def _members(members: list[dict[str, Any]]) -> RenderableType:
    if not members:
        return Text("no client is alive", style="red")
    result = table("client", "index", "leads", "state", "heartbeat", "shards")
    for member in members:
        age_seconds = member["heartbeat_unchanged_seconds"]
        state = "stalled" if member["stalled"] else member["state"]
        if member["drained"]:
            state = "drained" if state == "up" else f"{state}, drained"
        result.add_row(
            plain(member["client_id"]),
            "joining" if member["index"] is None else str(member["index"]),
            "leader" if member["leader"] else "",
            plain(state, "" if state in ("up", "drained") else "red"),
            "" if age_seconds is None else f"{age_seconds:.1f} s ago",
            str(member["shards"]),
        )
    return result


def _status_stream(stream: dict[str, Any]) -> RenderableType:
    ended = stream["states"].get("ended", 0)
    about = f"start {stream['start']}; {ended} ended shards"
    if stream["paused"]:
        about += f"; {_paused_text(stream)}"
    result = table(
        *("shard", "hash keys from", "state", "owner", "epoch", "behind"),
        title=plain(f"{stream['stream_arn']}  ({about})", "bold"),
        title_justify="left",
    )
    result.add_column("position", overflow="fold")
    for shard in stream["shards"]:
        if shard["state"] != "ended":
            result.add_row(*_status_shard(shard))
    return result


def _status_shard(shard: dict[str, Any]) -> list[RenderableType]:
    owner = shard["owner"] or ""
    if shard["state"] in ("moving", "unowned", "orphaned"):
        owner = f"{owner or 'none'} → {shard['planned_owner'] or 'none'}"
    state = Text(shard["state"], style=STATE_STYLES.get(shard["state"], ""))
    if shard["paused"]:
        state = Text("paused" if shard["state"] == "unowned" else f"{state}, paused")
    return [
        plain(shard["shard_id"]),
        f"{shard['first_hash'][:8]}… ({shard['share']:.1%})",
        state,
        plain(owner),
        str(shard["epoch"]),
        _behind_text(shard["millis_behind_latest"]),
        position_text(shard, "none yet"),
    ]


def _behind_text(millis: int | None) -> str:
    if millis is None:
        return "?"
    return f"{millis} ms" if millis < 1000 else f"{millis / 1000:,.1f} s"


# --- lag ------------------------------------------------------------------------------


def show_lag(report: dict[str, Any]) -> None:
    """Print the report of ``kinesumer lag``."""
    _print_lag(console(), report)


def show_lag_again(report: dict[str, Any]) -> None:
    """Print a report of ``kinesumer lag`` in place of the one before."""
    target = console()
    if target.is_terminal:
        target.clear()
    _print_lag(target, report)


def _print_lag(target: Console, report: dict[str, Any]) -> None:
    about = f"app {report['app']} in table {report['table']}"
    if report["seconds"] is not None:
        about += f": two measurements, {report['seconds']:.1f} s apart"
    parts: list[RenderableType] = [plain(about, "bold")]
    for stream in report["streams"]:
        parts += ["", _lag_stream(stream)]
    parts += [plain(f"! {text}", "red") for text in report["problems"]]
    target.print(Group(*parts))


def _lag_stream(stream: dict[str, Any]) -> RenderableType:
    retention_hours = stream["retention_hours"]
    about = f"{stream['stream_arn']}  {', '.join(filter(None, _lag_texts(stream)))}"
    if retention_hours is not None:
        about += f"  (keeps records for {duration(retention_hours * 3_600_000)})"
    result = table("shard", "state", "owner", "behind", "records", "trend", "caught up")
    for shard in stream["shards"]:
        behind, records, trend, until = _lag_texts(shard)
        result.add_row(
            plain(shard["shard_id"]),
            plain("paused" if shard["paused"] else shard["state"]),
            plain(shard["owner"] or "none"),
            behind,
            records,
            plain(trend, TREND_STYLES.get(shard["trend"], "")),
            until,
        )
    notes = [
        plain(f"! {s['problem']}", "red") for s in stream["shards"] if s["problem"]
    ]
    return Group(plain(about, "bold"), result, *notes)


def _lag_texts(row: dict[str, Any]) -> list[str]:
    """Return the lag in time and in records, its trend, and the time to catch up."""
    millis, speed = row["millis_behind_latest"], row["millis_per_second"]
    trend = row["trend"]
    if trend in ("falling", "growing", "steady") and speed is not None:
        trend += f" {abs(speed) / 1000:.1f} s/s"
    until = row["seconds_to_catch_up"]
    return [
        "? behind" if millis is None else f"{duration(millis)} behind",
        _records_text(row),
        trend,
        "" if not until else f"in about {duration(until * 1000)}",
    ]


def _records_text(row: dict[str, Any]) -> str:
    count = row["records_behind"]
    if count is None:
        return "? records"
    return f"{'' if row['records_exact'] else '~'}{count:,} records"
