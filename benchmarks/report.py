"""Print tables of figures and their targets."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """One figure."""

    what: str
    figure: str
    aim: str = ""
    # None if there is no target, or if it cannot be checked here.
    met: bool | None = None


class Report:
    """Collects figures and prints them as one table."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lines: list[Line] = []

    def at_least(
        self, what: str, value: float, aim: float | None, unit: str = ""
    ) -> None:
        """Add a figure with a minimum. If ``aim`` is None, it has no target."""
        self._add(what, value, "≥", aim, unit)

    def at_most(
        self, what: str, value: float, aim: float | None, unit: str = ""
    ) -> None:
        """Add a figure with a maximum. If ``aim`` is None, it has no target."""
        self._add(what, value, "≤", aim, unit)

    def _add(
        self, what: str, value: float, sign: str, aim: float | None, unit: str
    ) -> None:
        form = ",.0f" if value >= 1000 else ",.4g"
        figure = f"{value:{form}}{unit}"
        if aim is None:
            self.note(what, figure)
            return
        met = value >= aim if sign == "≥" else value <= aim
        self.lines.append(Line(what, figure, f"{sign} {aim:{form}}{unit}", met))

    def note(self, what: str, figure: str) -> None:
        """Add a figure without a target."""
        self.lines.append(Line(what, figure))

    def print(self) -> None:
        """Print the table."""
        what = max(len(line.what) for line in self.lines)
        figure = max(len(line.figure) for line in self.lines)
        aim = max(len(line.aim) for line in self.lines)
        print(f"\n{self.title}")
        for line in self.lines:
            verdict = {True: "pass", False: "MISS", None: ""}[line.met]
            print(
                f"  {line.what:<{what}}  {line.figure:>{figure}}"
                f"  {line.aim:>{aim}}  {verdict}".rstrip()
            )


def percentile(values: list[float], share: float) -> float:
    """Return the percentile of values at a share from 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
