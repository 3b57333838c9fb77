"""The report of ``kinesumer status`` for people."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinesumer.cli.console import console, plain

STYLES = {"unowned": "red", "orphaned": "red", "waiting": "yellow", "moving": "yellow"}


def show(report: dict[str, Any]) -> None:
    """Print a report."""
    console().print(_all(report))


def _all(report: dict[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [
        plain(f"app {report['app']} in table {report['table']}", "bold"),
        *([plain(f"all streams are {paused(report)}", "yellow")] * report["paused"]),
        _members(report["members"]),
    ]
    for stream in report["streams"]:
        parts += ["", _stream(stream)]
    parts += [plain(f"! {text}", "red") for text in report["problems"]]
    return Group(*parts)


def paused(row: dict[str, Any]) -> str:
    """Return that something is paused, and why if that is known."""
    return f"paused: {row['pause_reason']}" if row["pause_reason"] else "paused"


def _members(members: list[dict[str, Any]]) -> RenderableType:
    if not members:
        return Text("no client is alive", style="red")
    table = Table(box=None, pad_edge=False)
    for title in ("client", "index", "leads", "state", "heartbeat", "shards"):
        table.add_column(title)
    for member in members:
        silent = member["heartbeat_unchanged_seconds"]
        state = "stalled" if member["stalled"] else member["state"]
        if member["drained"]:
            state = "drained" if state == "up" else f"{state}, drained"
        table.add_row(
            plain(member["client_id"]),
            "joining" if member["index"] is None else str(member["index"]),
            "leader" if member["leader"] else "",
            plain(state, "" if state in ("up", "drained") else "red"),
            "" if silent is None else f"{silent:.1f} s ago",
            str(member["shards"]),
        )
    return table


def _stream(stream: dict[str, Any]) -> RenderableType:
    ended = stream["states"].get("ended", 0)
    about = f"start {stream['start']}; {ended} ended shards"
    if stream["paused"]:
        about += f"; {paused(stream)}"
    table = Table(
        box=None,
        pad_edge=False,
        title=plain(f"{stream['stream_arn']}  ({about})", "bold"),
        title_justify="left",
    )
    titles = (
        "shard",
        "hash keys from",
        "state",
        "owner",
        "epoch",
        "behind",
        "position",
    )
    for title in titles:
        table.add_column(title, overflow="fold" if title == "position" else "ellipsis")
    for shard in stream["shards"]:
        if shard["state"] != "ended":
            table.add_row(*_shard(shard))
    return table


def _shard(shard: dict[str, Any]) -> list[RenderableType]:
    owner = shard["owner"] or ""
    if shard["state"] in ("moving", "unowned", "orphaned"):
        owner = f"{owner or 'nobody'} → {shard['planned_owner'] or 'nobody'}"
    state = Text(shard["state"], style=STYLES.get(shard["state"], ""))
    if shard["paused"]:
        state = Text("paused" if shard["state"] == "unowned" else f"{state}, paused")
    return [
        plain(shard["shard_id"]),
        f"{shard['first_hash'][:8]}… ({shard['share']:.1%})",
        state,
        plain(owner),
        str(shard["epoch"]),
        _behind(shard["millis_behind_latest"]),
        _position(shard),
    ]


def _position(shard: dict[str, Any]) -> str:
    number, part = shard["sequence_number"], shard["sub_sequence_number"]
    if number is None:
        return "none yet"
    return number if part is None else f"{number}/{part}"


def _behind(millis: int | None) -> str:
    if millis is None:
        return "?"
    return f"{millis} ms" if millis < 1000 else f"{millis / 1000:,.1f} s"
