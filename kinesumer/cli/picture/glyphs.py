"""The marks of the picture: letters and colours of clients, heights, and states."""

from __future__ import annotations

from colorsys import hls_to_rgb
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEF"
"""One for each colour slot: every band can be read without colours."""

HUES = (0.58, 0.08, 0.40, 0.80, 0.15, 0.50, 0.92, 0.30)
SHADES = (0.45, 0.30, 0.65, 0.22)
LIGHT = 0.5
TROUBLE = "bold white on red3"

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
    """Return the colour of a slot: eight hues, then the same in other shades."""
    red, green, blue = hls_to_rgb(*_hue_and_light(slot), 0.75)
    return f"#{int(red * 255):02x}{int(green * 255):02x}{int(blue * 255):02x}"


def painted(slot: int) -> str:
    """Return the style of text on a slot's colour."""
    ink = "black" if _hue_and_light(slot)[1] >= LIGHT else "white"
    return f"bold {ink} on {colour(slot)}"


def _hue_and_light(slot: int) -> tuple[float, float]:
    hue, shade = slot % len(HUES), slot // len(HUES) % len(SHADES)
    return HUES[hue], SHADES[shade]


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
