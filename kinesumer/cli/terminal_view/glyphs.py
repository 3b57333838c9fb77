"""The marks of the picture: letters and colours of clients, heights, and states."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEF"
"""One for each colour slot: every band can be read without colours."""

DEEP = "2f62d0 b4560c 1b7a50 b0317d 0d7490 886400 6b4fc6 54701a".split()
PALE = "80a7ff f0a262 60cd98 ee8cc4 5bc6de dfbb52 b39df5 b0ca60".split()
"""The page's hues in its light and its dark theme."""
FURTHER = 0.45
"""How far the third shade goes to black, and the fourth to white."""
TROUBLE = "bold #ffffff on #c21f1f"

STATES = {
    "orphaned": "!",
    "unowned": "?",
    "paused": "=",
    "moving": ">",
    "waiting": "-",
    "ended": ".",
}
"""Marks of shards, the worst first; a shard that is consumed has its owner's letter."""

HEIGHT_MILLIS = (1_000, 5_000, 30_000, 120_000, 600_000, 3_600_000, 21_600_000)
"""Where the heights of lag end, but for the last: 1 s, 5 s, 30 s, 2 min … 6 h."""


class Glyphs(NamedTuple):
    """What a terminal can show."""

    edge: str = "▏"
    heights: str = "▁▂▃▄▅▆▇█"
    fill: bool = False
    """Whether letters fill what a client has, because colours can't."""


ASCII = Glyphs("|", "12345678", fill=True)


def letter(slot: int) -> str:
    """Return the letter of a colour slot."""
    return LETTERS[slot % len(LETTERS)]


def colour(slot: int) -> str:
    """Return the colour of a slot: the page's eight hues, then other shades of them."""
    shade, hue = divmod(slot % len(LETTERS), len(DEEP))
    base = (PALE if shade % 2 else DEEP)[hue]
    parts = [int(base[at : at + 2], 16) for at in (0, 2, 4)]
    if shade >= 2:
        goal = 255 if shade % 2 else 0
        parts = [round(part + (goal - part) * FURTHER) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in parts)


def painted(slot: int) -> str:
    """Return the style of text on a slot's colour."""
    ink = "#000000" if slot // len(DEEP) % 2 else "#ffffff"
    return f"bold {ink} on {colour(slot)}"


def height(millis: int, glyphs: Glyphs) -> str:
    """Return the block that is as high as a lag is long."""
    return glyphs.heights[sum(millis >= limit for limit in HEIGHT_MILLIS)]


def sparkline(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """Return a block for each value, up to the largest; a space where there is none."""
    top = max((value for value in values if value), default=0.0)
    last = len(glyphs.heights) - 1
    return "".join(
        " "
        if value is None
        else glyphs.heights[round(value / top * last) if top else 0]
        for value in values
    )


def duration(millis: float) -> str:
    """Return a time as people say it: 320 ms, 1.2 s, 5 min, 3.1 h, 2.0 d."""
    if millis < 1000:
        return f"{millis:.0f} ms"
    seconds = millis / 1000
    if seconds < 100:
        return f"{seconds:.1f} s"
    for unit, size, limit in (("min", 60, 100), ("h", 3600, 48)):
        if seconds / size < limit:
            return f"{seconds / size:.{0 if unit == 'min' else 1}f} {unit}"
    return f"{seconds / 86400:.1f} d"
