"""Draw a stream's hash space as lines of text: lag, shards, children and plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.ops.dashboard.model import Part, Shard

MAX_LANES = 4
NO_OWNER = "~"
MIN_COLUMNS_WITH_EDGE = 3  # an edge, the owner's letter, and one more column
# A letter for each colour slot, so that the picture is readable without colours.
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEF"

# The hues of the dashboard's light and dark themes.
DARK_HUES = "2f62d0 b4560c 1b7a50 b0317d 0d7490 886400 6b4fc6 54701a".split()
LIGHT_HUES = "80a7ff f0a262 60cd98 ee8cc4 5bc6de dfbb52 b39df5 b0ca60".split()
# The share of black in the third shade, and of white in the fourth.
SHADE_SHARE = 0.45
TROUBLE_STYLE = "bold #ffffff on #c21f1f"

# The marks of shards' states, worst first. An owned shard has its owner's letter.
STATES = {
    "orphaned": "!",
    "unowned": "?",
    "paused": "=",
    "moving": ">",
    "waiting": "-",
    "ended": ".",
}

# Each height but the highest stands for lags up to a limit: 1 s, 5 s, 30 s … 6 h.
HEIGHT_MILLIS = (1_000, 5_000, 30_000, 120_000, 600_000, 3_600_000, 21_600_000)


class Glyphs(NamedTuple):
    """The characters that a terminal can show."""

    edge: str = "▏"
    heights: str = "▁▂▃▄▅▆▇█"
    # Whether a client's shards are filled with its letter, for lack of colours.
    fill: bool = False


ASCII = Glyphs("|", "12345678", fill=True)


def letter(slot: int) -> str:
    """Return the letter of a colour slot."""
    return LETTERS[slot % len(LETTERS)]


def colour(slot: int) -> str:
    """Return the colour of a slot: one of eight hues, in one of four shades."""
    shade, hue = divmod(slot % len(LETTERS), len(DARK_HUES))
    base = (LIGHT_HUES if shade % 2 else DARK_HUES)[hue]
    parts = [int(base[at : at + 2], 16) for at in (0, 2, 4)]
    if shade >= 2:
        target = 255 if shade % 2 else 0
        parts = [round(part + (target - part) * SHADE_SHARE) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in parts)


def background(slot: int) -> str:
    """Return the style of text whose background is a slot's colour."""
    text_colour = "#000000" if slot // len(DARK_HUES) % 2 else "#ffffff"
    return f"bold {text_colour} on {colour(slot)}"


def height(millis: int, glyphs: Glyphs) -> str:
    """Return the block character whose height shows a lag."""
    return glyphs.heights[sum(millis >= limit for limit in HEIGHT_MILLIS)]


def sparkline(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """Return a block for each value, scaled to the largest; a space for None."""
    top = max((value for value in values if value), default=0.0)
    last = len(glyphs.heights) - 1
    return "".join(
        " "
        if value is None
        else glyphs.heights[round(value / top * last) if top else 0]
        for value in values
    )


# --- one stream -----------------------------------------------------------------------


class Segment(NamedTuple):
    """Neighbouring columns that show one shard, or several very narrow shards."""

    shards: tuple[Shard, ...]
    first: int
    columns: int


class Canvas(NamedTuple):
    """The width of the lines, the clients' colour slots, and the glyphs."""

    width: int
    slots: Mapping[str, int]
    glyphs: Glyphs = Glyphs()

    def slot(self, client_id: str | None) -> int | None:
        """Return a client's colour slot; None if the client isn't alive."""
        return self.slots.get(client_id or "")

    def letter(self, client_id: str | None) -> str:
        """Return a client's letter."""
        slot = self.slot(client_id)
        return NO_OWNER if slot is None else letter(slot)


def lines(
    shards: Sequence[Shard], parts: Sequence[Part], canvas: Canvas
) -> list[tuple[str, Text]]:
    """Return the lines that show a stream, each with its label."""
    lanes = max((shard.lane for shard in shards), default=0) + 1
    result = [("lag", _lag_line(segments(_in_lane(shards, 0), canvas.width), canvas))]
    for lane in range(min(lanes, MAX_LANES)):
        label = "children" if lane else "shards"
        result.append((label, shard_line(_in_lane(shards, lane), canvas)))
    if parts:
        result.append(("plan", _plan_line(parts, canvas)))
    return result


def shard_line(shards: Sequence[Shard], canvas: Canvas) -> Text:
    """Return the line that shows the owners and states of one lane's shards.

    The line has edges between shards if a shard has at least three columns on average.
    """
    drawn = segments(shards, canvas.width)
    columns = sum(segment.columns for segment in drawn)
    has_edges = columns >= MIN_COLUMNS_WITH_EDGE * len(shards)
    edge = canvas.glyphs.edge if has_edges else ""
    return _join(
        [(one.first, _segment_text(one, edge, canvas)) for one in drawn], canvas
    )


def segments(shards: Iterable[Shard], width: int) -> list[Segment]:
    """Return the columns of each shard. Shards that share a column are one segment."""
    result: list[Segment] = []
    for shard in sorted(shards, key=lambda shard: shard.x):
        # Each shard gets at least one column, so that a narrow one stays visible.
        first = min(round(shard.x * width), width - 1)
        end = max(round((shard.x + shard.width) * width), first + 1)
        before = result[-1] if result else None
        if before is not None and first < before.first + before.columns:
            columns = max(before.columns, end - before.first)
            result[-1] = Segment((*before.shards, shard), before.first, columns)
        else:
            result.append(Segment((shard,), first, end - first))
    return result


def displayed_state(shard: Shard) -> str:
    """Return the state to show for a shard. A pause hides who owns the shard."""
    if shard.paused and shard.state in ("unowned", "orphaned", "owned"):
        return "paused"
    return shard.state


def _worst_state(shards: Iterable[Shard]) -> str:
    states = {displayed_state(shard) for shard in shards}
    return next((state for state in STATES if state in states), "owned")


def _main_owner(shards: Iterable[Shard]) -> str | None:
    """Return the owner that has the most of these shards."""
    owners = Counter(shard.owner for shard in shards if shard.owner)
    return max(owners, key=lambda name: (owners[name], name)) if owners else None


def _in_lane(shards: Iterable[Shard], lane: int) -> list[Shard]:
    return [shard for shard in shards if shard.lane == lane]


def _segment_text(segment: Segment, edge: str, canvas: Canvas) -> Text:
    edge = edge if segment.columns > 1 else ""
    marks = _marks(segment, canvas, segment.columns - len(edge))
    return Text(edge + marks, _style(segment, canvas))


def _marks(segment: Segment, canvas: Canvas, columns: int) -> str:
    """Return the letters and marks that fill a segment's columns."""
    state, owner = _worst_state(segment.shards), _main_owner(segment.shards)
    name = canvas.letter(owner)
    fill = name if canvas.glyphs.fill else " "
    if state == "owned":
        return name + fill * (columns - 1)
    if state == "moving" and columns > 2:
        target = canvas.letter(segment.shards[0].planned_owner)
        return f"{name}>{target}".ljust(columns, fill)
    if state == "paused" and owner and columns > 1:
        return name + STATES[state] * (columns - 1)
    return STATES[state] * columns


def _style(segment: Segment, canvas: Canvas) -> str:
    state, slot = _worst_state(segment.shards), canvas.slot(_main_owner(segment.shards))
    if state in ("orphaned", "unowned"):
        return TROUBLE_STYLE
    return "dim" if state in ("waiting", "ended") or slot is None else background(slot)


def _lag_line(drawn: Iterable[Segment], canvas: Canvas) -> Text:
    return _join([(one.first, _lag_text(one, canvas)) for one in drawn], canvas)


def _lag_text(segment: Segment, canvas: Canvas) -> Text:
    """Return blocks whose height shows the largest lag of a segment's shards.

    The lag of a shard that is caught up counts as 0.
    """
    slot = canvas.slot(_main_owner(segment.shards))
    known = [
        0 if shard.caught_up else shard.millis_behind
        for shard in segment.shards
        if shard.millis_behind is not None
    ]
    block = height(max(known), canvas.glyphs) if known else " "
    return Text(block * segment.columns, "red3" if slot is None else colour(slot))


def _plan_line(parts: Iterable[Part], canvas: Canvas) -> Text:
    """Return each client's planned range, with its name if the name fits."""
    placed = []
    for part in parts:
        first, end = (round(x * canvas.width) for x in (part.x, part.x + part.width))
        mark = canvas.letter(part.client_id)
        edge = canvas.glyphs.edge if end - first >= MIN_COLUMNS_WITH_EDGE else ""
        text = f"{edge}{mark} {escape_unprintable(part.client_id)}"
        if end - first < cell_len(text):
            text = edge + mark * (end - first - len(edge))
        style = background(canvas.slots[part.client_id])
        placed.append((first, Text(set_cell_size(text, end - first), style)))
    return _join(placed, canvas)


def _join(placed: Iterable[tuple[int, Text]], canvas: Canvas) -> Text:
    """Put pieces of text at their columns in one line of the canvas's width."""
    line = Text(no_wrap=True)
    for first, piece in placed:
        line.append(" " * (first - line.cell_len))
        line.append_text(piece)
    line.truncate(canvas.width)
    return line
