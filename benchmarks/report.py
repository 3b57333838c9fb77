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

    def at_least(self, what: str, value: float, aim: float, unit: str = "") -> None:
        """Add a figure with a minimum."""
        figure, wanted = f"{value:,.4g}{unit}", f"≥ {aim:,.4g}{unit}"
        if value >= 1000:
            figure, wanted = f"{value:,.0f}{unit}", f"≥ {aim:,.0f}{unit}"
        self.lines.append(Line(what, figure, wanted, value >= aim))

    def at_most(self, what: str, value: float, aim: float, unit: str = "") -> None:
        """Add a figure with a maximum."""
        figure, wanted = f"{value:,.4g}{unit}", f"≤ {aim:,.4g}{unit}"
        self.lines.append(Line(what, figure, wanted, value <= aim))

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
