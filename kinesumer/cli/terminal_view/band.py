"""One stream's hash space as lines of a terminal: lag, shards, children, plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from kinesumer.cli.terminal_view.glyphs import (
    STATES,
    TROUBLE,
    Glyphs,
    colour,
    height,
    letter,
    painted,
)
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.dashboard.model import Part, Shard

MOST_LANES = 4
PLAN = "plan"
NOBODY = "~"
EDGE_COLUMNS = 3


class Run(NamedTuple):
    """Neighbouring columns that show the same shards: one, or several in a column."""

    shards: tuple[Shard, ...]
    first: int
    columns: int


class Brush(NamedTuple):
    """What lines are drawn with."""

    width: int
    slots: Mapping[str, int]
    glyphs: Glyphs = Glyphs()

    def slot(self, client_id: str | None) -> int | None:
        """Return a client's colour slot; None if it is nobody who lives."""
        return self.slots.get(client_id or "")

    def letter(self, client_id: str | None) -> str:
        """Return a client's letter."""
        slot = self.slot(client_id)
        return NOBODY if slot is None else letter(slot)


def lines(
    shards: Sequence[Shard], parts: Sequence[Part], brush: Brush
) -> list[tuple[str, Text]]:
    """Return the lines of a band, each with its label."""
    lanes = max((shard.lane for shard in shards), default=0) + 1
    drawn = [("lag", _lag(runs(_of(shards, 0), brush.width), brush))]
    for lane in range(min(lanes, MOST_LANES)):
        label = "children" if lane else "shards"
        drawn.append((label, shard_line(_of(shards, lane), brush)))
    if parts:
        drawn.append((PLAN, _plan(parts, brush)))
    return drawn


def shard_line(shards: Sequence[Shard], brush: Brush) -> Text:
    """Return the line that says who has what in one lane.

    Boundaries are drawn where shards have at least three columns on average.
    """
    found = runs(shards, brush.width)
    columns = sum(run.columns for run in found)
    edge = brush.glyphs.edge if columns >= EDGE_COLUMNS * len(shards) else ""
    return _line([(run.first, _marks(run, edge, brush)) for run in found], brush)


def runs(shards: Iterable[Shard], width: int) -> list[Run]:
    """Return which columns show which shards; those that share a column are one run."""
    found: list[Run] = []
    for shard in sorted(shards, key=lambda shard: shard.x):
        first = min(round(shard.x * width), width - 1)
        end = max(round((shard.x + shard.width) * width), first + 1)
        before = found[-1] if found else None
        if before is not None and first < before.first + before.columns:
            columns = max(before.columns, end - before.first)
            found[-1] = Run((*before.shards, shard), before.first, columns)
        else:
            found.append(Run((shard,), first, end - first))
    return found


def mark_of(shard: Shard) -> str:
    """Return the state that a shard is drawn in: a pause explains the others."""
    if shard.paused and shard.state in ("unowned", "orphaned", "owned"):
        return "paused"
    return shard.state


def _worst(shards: Iterable[Shard]) -> str:
    found = {mark_of(shard) for shard in shards}
    return next((state for state in STATES if state in found), "owned")


def _owner(shards: Iterable[Shard]) -> str | None:
    """Return who has most of them."""
    owners = Counter(shard.owner for shard in shards if shard.owner)
    return max(owners, key=lambda name: (owners[name], name)) if owners else None


def _of(shards: Iterable[Shard], lane: int) -> list[Shard]:
    return [shard for shard in shards if shard.lane == lane]


def _marks(run: Run, edge: str, brush: Brush) -> Text:
    edge = edge if run.columns > 1 else ""
    return Text(
        edge + _written(run, brush, run.columns - len(edge)), _style(run, brush)
    )


def _written(run: Run, brush: Brush, columns: int) -> str:
    """Return the letters and marks that fill a run of columns."""
    state, owner = _worst(run.shards), _owner(run.shards)
    name = brush.letter(owner)
    if state == "owned":
        fill = name if brush.glyphs.fill else " "
        return name + fill * (columns - 1)
    if state == "moving" and columns > 2:
        goal = brush.letter(run.shards[0].planned_owner)
        return f"{name}>{goal}".ljust(columns, name if brush.glyphs.fill else " ")
    if state == "paused" and owner and columns > 1:
        return name + STATES[state] * (columns - 1)
    return STATES[state] * columns


def _style(run: Run, brush: Brush) -> str:
    state, slot = _worst(run.shards), brush.slot(_owner(run.shards))
    if state in ("orphaned", "unowned"):
        return TROUBLE
    return "dim" if state in ("waiting", "ended") or slot is None else painted(slot)


def _lag(found: Iterable[Run], brush: Brush) -> Text:
    return _line([(run.first, _heights(run, brush)) for run in found], brush)


def _heights(run: Run, brush: Brush) -> Text:
    """Return a block as high as the lag of the slowest of these shards."""
    slot = brush.slot(_owner(run.shards))
    known = [s.millis_behind for s in run.shards if s.millis_behind is not None]
    block = height(max(known), brush.glyphs) if known else " "
    return Text(block * run.columns, "red3" if slot is None else colour(slot))


def _plan(parts: Iterable[Part], brush: Brush) -> Text:
    """Return each client's contiguous range, with its name where that fits."""
    placed = []
    for part in parts:
        first, end = (round(x * brush.width) for x in (part.x, part.x + part.width))
        slot, mark = brush.slots[part.client_id], brush.letter(part.client_id)
        edge = brush.glyphs.edge if end - first >= EDGE_COLUMNS else ""
        text = f"{edge}{mark} {escape_unprintable(part.client_id)}"
        if end - first < cell_len(text):
            text = edge + mark * (end - first - len(edge))
        placed.append((first, Text(set_cell_size(text, end - first), painted(slot))))
    return _line(placed, brush)


def _line(placed: Iterable[tuple[int, Text]], brush: Brush) -> Text:
    """Return pieces at their columns in one line of the brush's width."""
    line = Text(no_wrap=True)
    for first, piece in placed:
        line.append(" " * (first - line.cell_len))
        line.append_text(piece)
    line.truncate(brush.width)
    return line
