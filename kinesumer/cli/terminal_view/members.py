"""The members of a fleet as lines: those in trouble first where not all fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import set_cell_size
from rich.text import Text

from kinesumer.cli.terminal_view.glyphs import duration, letter, painted
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.dashboard.model import Member

NAME_COLUMNS = 32
HARMLESS = {"up", "joining", "leaving", "drained"}


def member_lines(members: Sequence[Member], room: int | None) -> list[Text]:
    """Return a title and a line for each member, at most ``room`` of them."""
    if not members:
        return [Text("no client is alive", "bold red")]
    order = sorted(members, key=_place)
    shown_ = order if room is None else order[:room]
    width = min(NAME_COLUMNS, max(len(escape_unprintable(m.client_id)) for m in shown_))
    width = max(width, len("client"))
    title = f"  {'client':{width}}  index  heartbeat  shards     behind  state"
    lines = [
        Text(title, "dim", no_wrap=True),
        *(_line(member, width) for member in shown_),
    ]
    if len(shown_) < len(order):
        rest = order[len(shown_) :]
        well = "all well" if all(map(_is_well, rest)) else "some in trouble"
        lines.append(Text(f"  … and {len(rest)} more clients, {well}", "dim"))
    return lines


def _place(member: Member) -> tuple[bool, bool, float, str]:
    index = float("inf") if member.index is None else member.index
    return _is_well(member), not member.leader, index, member.client_id


def _is_well(member: Member) -> bool:
    return HARMLESS.issuperset(member.states)


def _line(member: Member, width: int) -> Text:
    age, behind = member.heartbeat_age_seconds, member.millis_behind
    index = "-" if member.index is None else str(member.index)
    states = [
        *(["leader"] if member.leader else []),
        *(["Spark query"] if member.query else []),
        *member.states,
        *([f"in {member.label}"] if member.label else []),
    ]
    return Text.assemble(
        (letter(member.slot), painted(member.slot)),
        " ",
        set_cell_size(escape_unprintable(member.client_id), width),
        f"  {index:>5}  {'-' if age is None else f'{age:.1f} s':>9}",
        f"  {member.shards:>6,}  {'-' if behind is None else duration(behind):>9}  ",
        (escape_unprintable(", ".join(states)), "" if _is_well(member) else "bold red"),
        no_wrap=True,
    )
