"""Draw a fleet as lines, with as much detail as fits and with problems first."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from kinesumer.ops.cli.terminal_view import band
from kinesumer.ops.cli.terminal_view.band import (
    HEIGHT_MILLIS,
    STATES,
    Canvas,
    background,
    letter,
    sparkline,
)
from kinesumer.runtime.text import duration_text, escape_unprintable, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.ops.cli.terminal_view.band import Glyphs
    from kinesumer.ops.dashboard.model import Band, Event, Line, Member, State, Totals

LABEL_COLUMNS = 9
MIN_WIDTH = 40
MAX_NAME_COLUMNS = 32
MAX_PROBLEMS, MAX_EVENTS = 3, 20
HOUR_SECONDS = 3600
NORMAL_STATES = {"up", "joining", "leaving", "drained"}

Lines = list[Text]


class Frame(NamedTuple):
    """The space for the picture, and its glyphs."""

    width: int
    height: int | None  # the maximum number of lines; None if there is none
    glyphs: Glyphs


def draw(state: State, frame: Frame) -> Lines:
    """Return the picture's lines, at most as many as fit.

    All streams are drawn with the same detail, as much as fits. Members with problems
    come first.
    """
    width = max(frame.width, MIN_WIDTH)
    slots = {member.client_id: member.slot for member in state.members}
    canvas = Canvas(width - LABEL_COLUMNS, slots, frame.glyphs)
    # Streams need most of the height: at most a quarter is for members.
    max_members = None if frame.height is None else max(2, frame.height // 4)
    top = [_head(state), *_problems(state), *_members(state.members, max_members)]
    legend = _legend(state, frame.glyphs)
    if frame.height is None:
        streams = [line for one in state.streams for line in _full(one, state, canvas)]
        return [*top, *streams, legend, *_events(state.events, MAX_EVENTS)]
    left = frame.height - len(top) - 1
    streams = _fit_streams(state, canvas, left)
    events = _events(state.events, min(MAX_EVENTS, left - len(streams)))
    return [*top, *streams, legend, *events][: frame.height]


def _head(state: State) -> Text:
    totals = state.totals
    words = [
        *_figures(totals),
        f"{totals.owned:,} of {_count(totals.shards, 'shard')} consumed",
        *(_paused(state.pause_reason) if state.paused else []),
        *([f"{totals.paused} paused"] if totals.paused and not state.paused else []),
        _count(totals.clients, "client"),
        f"{datetime.fromtimestamp(state.at, UTC):%H:%M:%S} UTC",
        f"table {escape_unprintable(state.table)}",
    ]
    return _title(state.app, "", words)


def _title(name: str, account: str, words: Sequence[str]) -> Text:
    return Text.assemble(
        (escape_unprintable(name), "bold"),
        (account, "dim"),
        "  ",
        " · ".join(words),
        no_wrap=True,
        overflow="ellipsis",
    )


def _paused(reason: str) -> list[str]:
    return [f"paused: {escape_unprintable(reason)}" if reason else "paused"]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _figures(of: Totals | Band) -> list[str]:
    rate = of.records_per_second
    lag = "lag unknown"
    if of.millis_behind is not None:
        lag = _lag_text(of.millis_behind, of.caught_up)
        lag = lag if of.caught_up else f"{lag} behind"
    return [lag, *([] if rate is None else [f"{rate:,.0f} records/s"])]


def _lag_text(millis: int | None, caught_up: bool | None) -> str:
    if millis is None:
        return "-"
    return "caught up" if caught_up else duration_text(millis)


def _problems(state: State) -> Lines:
    problems = [*([state.trouble] if state.trouble else []), *state.problems]
    texts = [escape_unprintable(text) for text in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        texts.append(f"… and {_count(len(problems) - MAX_PROBLEMS, 'more problem')}")
    return [Text(f"! {text}", "bold red", no_wrap=True) for text in texts]


# --- members --------------------------------------------------------------------------


def _members(members: Sequence[Member], max_members: int | None) -> Lines:
    """Return a title and a line for each member, at most ``max_members`` of them."""
    if not members:
        return [Text("no client is alive", "bold red")]
    ordered = sorted(members, key=_member_order)
    drawn, rest = ordered[:max_members], ordered[len(ordered[:max_members]) :]
    names = [escape_unprintable(member.client_id) for member in drawn]
    width = max(len("client"), min(MAX_NAME_COLUMNS, max(map(len, names))))
    title = f"  {'client':{width}}  index  heartbeat  shards     behind  load  state"
    lines = [
        Text(title, "dim", no_wrap=True),
        *(_member_line(member, width) for member in drawn),
    ]
    if rest:
        well = "all well" if all(map(_is_well, rest)) else "some in trouble"
        lines.append(Text(f"  … and {len(rest)} more clients, {well}", "dim"))
    return lines


def _member_order(member: Member) -> tuple[bool, bool, float, str]:
    index = float("inf") if member.index is None else member.index
    return _is_well(member), not member.leader, index, member.client_id


def _is_well(member: Member) -> bool:
    return NORMAL_STATES.issuperset(member.states)


def _member_line(member: Member, width: int) -> Text:
    age, behind = member.heartbeat_age_seconds, member.millis_behind
    index = "-" if member.index is None else str(member.index)
    lag = _lag_text(behind, member.caught_up)
    load = "-" if member.load_share is None else f"{member.load_share:.2f}"
    states = [
        *(["leader"] if member.leader else []),
        *(["Spark query"] if member.query else []),
        *member.states,
        *([f"in {member.label}"] if member.label else []),
    ]
    return Text.assemble(
        (letter(member.slot), background(member.slot)),
        " ",
        set_cell_size(shorten(escape_unprintable(member.client_id), width), width),
        f"  {index:>5}  {'-' if age is None else f'{age:.1f} s':>9}",
        f"  {member.shards:>6,}  {lag:>9}  {load:>4}  ",
        (escape_unprintable(", ".join(states)), "" if _is_well(member) else "bold red"),
        no_wrap=True,
    )


# --- streams --------------------------------------------------------------------------


def _fit_streams(state: State, canvas: Canvas, max_lines: int) -> Lines:
    """Return all streams with as much detail as fits, but at least one line for each.

    If these lines don't fit, return the first streams and the number of the others.
    """
    drawn: list[Lines] = []
    for detail in (_full, _medium, _compact):
        drawn = [detail(stream, state, canvas) for stream in state.streams]
        if sum(map(len, drawn)) <= max_lines:
            return [line for lines in drawn for line in lines]
    count = max(max_lines - 1, 0)
    more = _count(len(drawn) - count, "more stream")
    note = Text(f"… and {more}: a taller terminal shows them")
    return [*(lines[0] for lines in drawn[:count]), note]


def _full(stream: Band, state: State, canvas: Canvas) -> Lines:
    return [*_medium(stream, state, canvas), *_history(stream, state, canvas)]


def _medium(stream: Band, state: State, canvas: Canvas) -> Lines:
    lines = band.lines(stream.shards, stream.parts, canvas)
    return [_stream_title(stream), *(_labelled(label, text) for label, text in lines)]


def _compact(stream: Band, state: State, canvas: Canvas) -> Lines:
    line = band.shard_line([s for s in stream.shards if s.lane == 0], canvas)
    name = escape_unprintable(stream.name)
    if cell_len(name) >= LABEL_COLUMNS:
        name = set_cell_size(name, LABEL_COLUMNS - 1)
    return [_labelled(name, line)]


def _labelled(label: str, line: Text) -> Text:
    indent = " " * (LABEL_COLUMNS - 1 - cell_len(label))
    return Text.assemble((f"{indent}{label} ", "dim"), line, no_wrap=True)


def _stream_title(stream: Band) -> Text:
    shards = [shard for shard in stream.shards if shard.state != "ended"]
    counts = Counter(map(band.displayed_state, shards))
    states = [f"{n} {state}" for state, n in counts.items()]
    words = [
        *_figures(stream),
        f"{_count(len(shards), 'shard')}{': ' if states else ''}{', '.join(states)}",
        *(_paused(stream.pause_reason) if stream.paused else []),
        *([escape_unprintable(stream.fan_out)] if stream.fan_out else []),
        *([stream.failures] if stream.failures else []),
    ]
    name = shorten(stream.name, MAX_NAME_COLUMNS)
    return _title(name, f" ({escape_unprintable(stream.place)})", words)


def _history(stream: Band, state: State, canvas: Canvas) -> Lines:
    """Return one line of sparklines if values of the last hour are known."""
    history = state.history
    # Two charts share the line, and each needs space for its name and highest value.
    columns = (canvas.width - 2 * len("lag to 99.9 min  ")) // 2
    pieces = [
        f"{name} {sparkline(_columns(line, history.times, columns), canvas.glyphs)}"
        f" {format_(max(v for v in line.values if v is not None))}"
        for name, lines, format_ in (
            ("lag", history.millis_behind, _highest_lag),
            ("records/s", history.records_per_second, "to {:,.0f}".format),
        )
        for line in lines
        if line.stream_arn == stream.stream_arn
        and any(value is not None for value in line.values)
    ]
    return [_labelled("hour", Text("  ".join(pieces)))] if pieces else []


def _highest_lag(millis: float) -> str:
    return f"to {duration_text(millis)}" if millis else "caught up"


def _columns(line: Line, times: Sequence[int], columns: int) -> list[float | None]:
    """Divide the last hour into columns, and return the largest value of each."""
    largest: list[float | None] = [None] * columns
    for at, value in zip(times, line.values, strict=True):
        column = columns - 1 - (times[-1] - at) * columns // HOUR_SECONDS
        if value is not None and 0 <= column:
            largest[column] = max(value, largest[column] or 0)
    return largest


# --- legend and events ----------------------------------------------------------------


def _legend(state: State, glyphs: Glyphs) -> Text:
    """Explain the heights and the marks that are in the picture."""
    shards = [shard for stream in state.streams for shard in stream.shards]
    drawn = {band.displayed_state(shard) for shard in shards}
    limits = zip(glyphs.heights, HEIGHT_MILLIS, strict=False)
    words = [
        *(f"{mark} {name}" for name, mark in STATES.items() if name in drawn),
        *(f"{block} <{_short_duration(millis)}" for block, millis in limits),
        f"{glyphs.heights[-1]} more",
    ]
    return Text("  ".join(words), "dim", no_wrap=True)


def _short_duration(millis: int) -> str:
    seconds = millis // 1000
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _events(events: Sequence[Event], max_lines: int) -> Lines:
    """Return the latest events, the last one first."""
    latest = sorted(events, key=lambda event: event.number, reverse=True)
    return [
        Text.assemble(
            (f"{datetime.fromtimestamp(event.at, UTC):%H:%M:%S} ", "dim"),
            escape_unprintable(event.text),
            no_wrap=True,
        )
        for event in latest[: max(max_lines, 0)]
    ]
