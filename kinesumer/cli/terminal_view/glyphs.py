"""The picture's glyphs: client letters and colours, lag heights, and shard marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEF"
"""One for each colour slot, so that the picture can be read without colours."""

DARK_HUES = "2f62d0 b4560c 1b7a50 b0317d 0d7490 886400 6b4fc6 54701a".split()
LIGHT_HUES = "80a7ff f0a262 60cd98 ee8cc4 5bc6de dfbb52 b39df5 b0ca60".split()
"""The hues of the dashboard's light and dark themes."""
SHADE_SHARE = 0.45
"""How far the third shade is mixed with black, and the fourth with white."""
TROUBLE_STYLE = "bold #ffffff on #c21f1f"

STATES = {
    "orphaned": "!",
    "unowned": "?",
    "paused": "=",
    "moving": ">",
    "waiting": "-",
    "ended": ".",
}
"""The marks of shards, the worst first. A consumed shard has its owner's letter."""

HEIGHT_MILLIS = (1_000, 5_000, 30_000, 120_000, 600_000, 3_600_000, 21_600_000)
"""The upper limits of lag for all heights but the highest: 1 s, 5 s, 30 s … 6 h."""


class Glyphs(NamedTuple):
    """The characters that a terminal can show."""

    edge: str = "▏"
    heights: str = "▁▂▃▄▅▆▇█"
    fill: bool = False
    """Whether letters fill a client's shards, in place of colours."""


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
    """Return the style of text on a slot's colour."""
    text_colour = "#000000" if slot // len(DARK_HUES) % 2 else "#ffffff"
    return f"bold {text_colour} on {colour(slot)}"


def height(millis: int, glyphs: Glyphs) -> str:
    """Return the block whose height stands for a lag."""
    return glyphs.heights[sum(millis >= limit for limit in HEIGHT_MILLIS)]


def sparkline(values: Sequence[float | None], glyphs: Glyphs) -> str:
    """Return a block for each value in proportion to the largest; a space for None."""
    top = max((value for value in values if value), default=0.0)
    last = len(glyphs.heights) - 1
    return "".join(
        " "
        if value is None
        else glyphs.heights[round(value / top * last) if top else 0]
        for value in values
    )


def duration(millis: float) -> str:
    """Return a duration in a suitable unit: 320 ms, 1.2 s, 5 min, 3.1 h, 2.0 d."""
    if millis < 1000:
        return f"{millis:.0f} ms"
    seconds = millis / 1000
    if seconds < 100:
        return f"{seconds:.1f} s"
    for unit, size, limit in (("min", 60, 100), ("h", 3600, 48)):
        if seconds / size < limit:
            return f"{seconds / size:.{0 if unit == 'min' else 1}f} {unit}"
    return f"{seconds / 86400:.1f} d"
