"""Elements of an SVG whose looks CSS animates, and the file that holds them.

A picture in an ``img`` runs no script. CSS animations run there, and follow the
reader's settings: dark or light colours, and reduced motion, which shows one still.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import NamedTuple


class Animation(NamedTuple):
    """The times of all elements' looks."""

    seconds: float
    step_seconds: float  # between two looks
    still: int  # the number of the look that readers without motion get


class Element(NamedTuple):
    """A rectangle, or a text, whose looks are CSS declarations."""

    name: str
    attributes: str
    looks: list[str]
    text: str = ""
    change_steps: int = 1  # how many steps a change to another look takes

    def svg(self, animation: Animation) -> str:
        """Return the element with its still look."""
        look = self.looks[animation.still]
        opening = f'id="{self.name}" {self.attributes} style="{look}"'
        if self.text:
            return f"<text {opening}>{escape(self.text)}</text>"
        return f"<rect {opening}/>"

    def rule(self, animation: Animation) -> str:
        """Return the rules of its animation; an empty text if it never changes."""
        if len(set(self.looks)) == 1:
            return ""
        stops = dict(self._stops())
        steps = animation.seconds / animation.step_seconds
        body = "".join(
            f"{100 * at / steps:.4g}%{{{look}}}" for at, look in stops.items()
        )
        name = self.name
        return f"@keyframes {name}{{{body}}}#{name}{{animation-name:{name}}}"

    def _stops(self) -> Iterator[tuple[int, str]]:
        """Yield the beginning and the end of each change, in steps."""
        last = len(self.looks)
        look, ended = self.looks[0], 0
        yield 0, look
        for number, now in enumerate(self.looks):
            if now != look:
                begun = max(number, ended)
                ended = min(begun + self.change_steps, last)
                yield begun, look
                yield ended, now
                look = now
        yield last, look


def look_of(opacity: float, move: str = "translateX(0)", **more: str) -> str:
    """Return CSS declarations.

    Give all looks of an element the same properties: CSS interpolates a property that
    some of them lack.
    """
    parts = {"opacity": f"{opacity:g}", "transform": move, **more}
    return ";".join(f"{name}:{value}" for name, value in parts.items())


def document(
    size: tuple[int, int],
    title: str,
    told: str,
    animation: Animation,
    rules: Iterable[str],
    fixed: Iterable[str],
    elements: Iterable[Element],
) -> str:
    """Return the file. ``told`` says in words what the picture shows."""
    width, height = size
    elements = list(elements)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' role="img" aria-labelledby="title told">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="told">{escape(told)}</desc>',
        "<style>",
        f"[id]{{animation:{animation.seconds:g}s infinite}}",
        *rules,
        *filter(None, (element.rule(animation) for element in elements)),
        "@media(prefers-reduced-motion:reduce){[id]{animation:none!important}}",
        "</style>",
        *fixed,
        *(element.svg(animation) for element in elements),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
