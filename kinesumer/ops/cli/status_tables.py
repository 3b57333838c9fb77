"""Draw the report of a group for people: the tables of ``kinesumer status``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from kinesumer.ops.cli.console import Cell, Names, console, name, plain, table
from kinesumer.ops.cli.report_tables import (
    LOAD_TITLES,
    UNASSIGNED,
    load_cells,
    plan_lines,
    position_text,
    ratio,
    stream_title,
)
from kinesumer.runtime.text import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from kinesumer.ops.group.status import (
        GroupReport,
        MemberReport,
        ShardReport,
        StreamReport,
    )

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
    """Return the report as tables of clients and shards, with the problems at the end.

    ``verbose`` adds hash keys, epochs and positions, whose lines can be long.
    """
    loads = verbose or report.plan.assignor == "load"
    parts = _group(report, loads=loads)
    for stream in report.streams:
        parts += ["", _stream_title(stream), _shards(stream, verbose, loads)]
    return Group(*parts, *_problems(report.problems))


def status_picture(report: GroupReport, trouble: str = "") -> RenderableType:
    """Return the clients and streams without shards, with the problems first.

    ``trouble`` says why there is no newer report.
    """
    problems = [*([trouble] if trouble else []), *report.problems]
    shown = problems[:MAX_PROBLEMS]
    if more := len(problems) - len(shown):
        shown.append(f"and {counted(more, 'more problem')}: see kinesumer status")
    title, *parts = _group(report, loads=report.plan.assignor == "load")
    streams = [_stream_title(stream) for stream in report.streams]
    return Group(title, *_problems(shown), *parts, "", *streams)


def _problems(texts: Sequence[str]) -> list[Text]:
    return [plain(f"! {text}", "red") for text in texts]


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
    return parts + plan_lines(report.plan) if loads else parts


def _paused_text(row: GroupReport | StreamReport) -> str:
    return f"paused: {row.pause_reason}" if row.pause_reason else "paused"


def _members(members: Sequence[MemberReport]) -> RenderableType:
    """Return a row for each client, with a bar for the number of its shards."""
    if not members:
        return Text("no client is alive", style="red")
    titles = "client", "index", "leads", "state", "heartbeat", "shards", ""
    most = max(1, *(member.shards for member in members))
    full = "#" if console().options.ascii_only else "█"
    rows: list[list[Cell]] = []
    for member in members:
        age_seconds = member.heartbeat_unchanged_seconds
        # A stalled client can't update its own state, so show that it is stalled.
        state = "stalled" if member.stalled else member.state
        if member.drained:
            state = "drained" if state == "up" else f"{state}, drained"
        rows.append(
            [
                name(member.client_id),
                "joining" if member.index is None else str(member.index),
                "leader" if member.leader else "",
                plain(state, "" if state in ("up", "drained") else "red"),
                "" if age_seconds is None else f"{age_seconds:.1f} s ago",
                str(member.shards),
                full * round(BAR_COLUMNS * member.shards / most),
            ]
        )
    return table(titles, rows)


def _loads(members: Sequence[MemberReport]) -> RenderableType:
    rows: list[list[Cell]] = [
        [name(member.client_id), *load_cells(member.load), ratio(member.load_share)]
        for member in members
    ]
    return table(("client", *LOAD_TITLES, "load / share"), rows)


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
            *(load_cells(shard.load) if loads else []),
        ]
        for shard in stream.shards
        if shard.state != "ended"
    ]
    return table(titles, rows, wide=verbose)


def _start_text(stored: str) -> str:
    """Return a stored start with its time, if any, as text in UTC."""
    _, _, seconds = stored.partition(" ")
    if not seconds:
        return stored
    moment = datetime.fromtimestamp(float(seconds), UTC)
    return f"{moment.isoformat(timespec='seconds').removesuffix('+00:00')}Z"


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
    position = position_text(shard.sequence_number, shard.sub_sequence_number)
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
