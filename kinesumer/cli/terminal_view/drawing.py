"""The whole picture as lines: as much of a fleet as fits, the worst first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from kinesumer.cli.terminal_view import band
from kinesumer.cli.terminal_view.band import Brush
from kinesumer.cli.terminal_view.glyphs import (
    HEIGHT_MILLIS,
    STATES,
    duration,
    sparkline,
)
from kinesumer.cli.terminal_view.members import member_lines
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.cli.terminal_view.glyphs import Glyphs
    from kinesumer.dashboard.model import Band, Event, Line, State

GUTTER = 9
LEAST_WIDTH = 40
MOST_PROBLEMS, MOST_EVENTS = 3, 20
HOUR_SECONDS = 3600

Lines = list[Text]


class Frame(NamedTuple):
    """How much room there is, and how it can be drawn in."""

    width: int
    height: int | None
    """None: as many lines as it takes."""
    glyphs: Glyphs


def draw(state: State, frame: Frame) -> Lines:
    """Return the picture's lines, no more than fit.

    Streams are drawn with as much detail as leaves room for all of them; members in
    trouble come first.
    """
    width = max(frame.width, LEAST_WIDTH)
    slots = {member.client_id: member.slot for member in state.members}
    brush = Brush(width - GUTTER, slots, frame.glyphs)
    top = [_head(state), *_problems(state), *_fitted_members(state, frame)]
    legend = [_legend(state, frame.glyphs)]
    if frame.height is None:
        streams = [line for one in state.streams for line in _full(one, state, brush)]
        return [*top, *streams, *legend, *_events(state.events, MOST_EVENTS)]
    room = frame.height - len(top) - len(legend)
    streams = _fitted(state, brush, room)
    events = _events(state.events, min(MOST_EVENTS, room - len(streams)))
    return [*top, *streams, *legend, *events][: frame.height]


def _head(state: State) -> Text:
    totals = state.totals
    moment = datetime.fromtimestamp(state.at, UTC)
    words = [
        *_figures(totals.millis_behind, totals.records_per_second),
        f"{totals.owned:,} of {_count(totals.shards, 'shard')} consumed",
        *(_paused(state.pause_reason) if state.paused else []),
        *([f"{totals.paused} paused"] if totals.paused and not state.paused else []),
        _count(totals.clients, "client"),
        f"{moment:%H:%M:%S} UTC",
        f"table {escape_unprintable(state.table)}",
    ]
    return _titled(state.app, "", words)


def _titled(name: str, place: str, words: Sequence[str]) -> Text:
    return Text.assemble(
        (escape_unprintable(name), "bold"),
        (place, "dim"),
        "  ",
        " · ".join(words),
        no_wrap=True,
    )


def _paused(reason: str) -> list[str]:
    return [f"paused: {escape_unprintable(reason)}" if reason else "paused"]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _figures(millis: int | None, rate: float | None) -> list[str]:
    return [
        "lag unknown" if millis is None else f"{duration(millis)} behind",
        *([] if rate is None else [f"{rate:,.0f} records/s"]),
    ]


def _problems(state: State) -> Lines:
    problems = [*([state.trouble] if state.trouble else []), *state.problems]
    found = [
        Text(f"! {escape_unprintable(text)}", "bold red", no_wrap=True)
        for text in problems[:MOST_PROBLEMS]
    ]
    if len(problems) > MOST_PROBLEMS:
        more = f"! … and {_count(len(problems) - MOST_PROBLEMS, 'more problem')}"
        found.append(Text(more, "bold red", no_wrap=True))
    return found


def _fitted_members(state: State, frame: Frame) -> Lines:
    room = None if frame.height is None else max(2, frame.height // 4)
    return member_lines(state.members, room)


def _fitted(state: State, brush: Brush, room: int) -> Lines:
    """Return all streams at the most detail that fits, or as many as fit."""
    found: list[Lines] = []
    for detail in (_full, _medium, _compact):
        found = [detail(stream, state, brush) for stream in state.streams]
        if sum(map(len, found)) <= room:
            return [line for lines in found for line in lines]
    more = len(found) - max(room - 1, 0)
    told = Text(f"… and {_count(more, 'more stream')}: a taller terminal shows them")
    return [*(lines[0] for lines in found[: max(room - 1, 0)]), told]


def _full(stream: Band, state: State, brush: Brush) -> Lines:
    lines = _medium(stream, state, brush)
    lines += _hour(stream, state, brush)
    return lines


def _medium(stream: Band, state: State, brush: Brush) -> Lines:
    drawn = band.lines(stream.shards, stream.parts, brush)
    return [_title(stream), *(_labelled(label, text) for label, text in drawn)]


def _compact(stream: Band, state: State, brush: Brush) -> Lines:
    line = band.shard_line([s for s in stream.shards if s.lane == 0], brush)
    name = escape_unprintable(stream.name)
    if cell_len(name) >= GUTTER:
        name = set_cell_size(name, GUTTER - 1)
    return [_labelled(name, line)]


def _labelled(label: str, line: Text) -> Text:
    indent = " " * (GUTTER - 1 - cell_len(label))
    return Text.assemble((f"{indent}{label} ", "dim"), line, no_wrap=True)


def _title(stream: Band) -> Text:
    count = sum(stream.states.values()) - stream.states.get("ended", 0)
    states = [f"{n} {state}" for state, n in stream.states.items() if state != "ended"]
    words = [
        *_figures(stream.millis_behind, stream.records_per_second),
        f"{_count(count, 'shard')}{': ' if states else ''}{', '.join(states)}",
        *(_paused(stream.pause_reason) if stream.paused else []),
    ]
    return _titled(stream.name, f" ({escape_unprintable(stream.place)})", words)


def _hour(stream: Band, state: State, brush: Brush) -> Lines:
    """Return one line of sparklines, if the last hour is known."""
    history = state.history
    columns = (brush.width - 2 * len("lag to 99.9 min  ")) // 2
    pieces = [
        f"{name} {sparkline(_columns(line, history.times, columns), brush.glyphs)}"
        f" to {tell(max(v for v in line.values if v is not None))}"
        for name, lines, tell in (
            ("lag", history.millis_behind, duration),
            ("records/s", history.records_per_second, "{:,.0f}".format),
        )
        for line in lines
        if line.stream_arn == stream.stream_arn
        and any(value is not None for value in line.values)
    ]
    return [_labelled("hour", Text("  ".join(pieces)))] if pieces else []


def _columns(line: Line, times: Sequence[int], columns: int) -> list[float | None]:
    """Return the largest value in each of some equal parts of the hour until now."""
    found: list[float | None] = [None] * columns
    for at, value in zip(times, line.values, strict=True):
        place = columns - 1 - (times[-1] - at) * columns // HOUR_SECONDS
        if value is not None and 0 <= place:
            found[place] = max(value, found[place] or 0)
    return found


def _legend(state: State, glyphs: Glyphs) -> Text:
    """Return what the heights and those marks mean that are in the picture."""
    met = {band.mark_of(shard) for stream in state.streams for shard in stream.shards}
    limits = zip(glyphs.heights, HEIGHT_MILLIS, strict=False)
    words = [
        *(f"{mark} {name}" for name, mark in STATES.items() if name in met),
        *(f"{block} <{_brief(millis)}" for block, millis in limits),
        f"{glyphs.heights[-1]} more",
    ]
    return Text("  ".join(words), "dim", no_wrap=True)


def _brief(millis: int) -> str:
    seconds = millis // 1000
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _events(events: Sequence[Event], room: int) -> Lines:
    """Return the latest events, the last one on top."""
    latest = sorted(events, key=lambda event: event.number, reverse=True)
    return [
        Text.assemble(
            (f"{datetime.fromtimestamp(event.at, UTC):%H:%M:%S} ", "dim"),
            escape_unprintable(event.text),
            no_wrap=True,
        )
        for event in latest[: max(room, 0)]
    ]
