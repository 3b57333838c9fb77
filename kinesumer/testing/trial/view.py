"""Show the progress of a trial as a picture in a terminal or as lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from kinesumer.ops.cli.tables import status_picture
from kinesumer.ops.group.status import GroupReport
from kinesumer.runtime.text import MAX_NAMED


class View(NamedTuple):
    """The state of a run."""

    seconds: float
    of_seconds: float
    phase: str
    produced: int
    processed: int
    per_second: float
    behind: Sequence[int]  # how many records of each stream are not processed yet
    group: GroupReport


def progress_text(view: View) -> str:
    """Return how many records were produced and processed, and how many are left."""
    return (
        f"produced {view.produced:,}, processed {view.processed:,} "
        f"({view.per_second:.0f}/s), behind {' + '.join(map(str, view.behind))}"
    )


class Plain:
    """Prints lines, for logs and for terminals without cursor control."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._next = 0.0

    def event(self, seconds: float, text: str) -> None:
        """Print an event as one line."""
        self._write(f"{seconds:6.1f} s  * {text}")

    def update(self, view: View) -> None:
        """Print the current state in one line, but only every five seconds."""
        if view.seconds < self._next:
            return
        self._next = view.seconds + 5
        clients = ", ".join(
            f"{c.client_id}{' (leader)' if c.leader else ''} {c.shards} shards"
            for c in view.group.members
        )
        self._write(f"{view.seconds:6.1f} s    {progress_text(view)}; {clients}")

    def close(self) -> None:
        """Do nothing, since printed lines need no cleanup."""


class Picture:
    """Draws the state of a run over the previous drawing in the terminal."""

    def __init__(self) -> None:
        self._events: list[tuple[float, str]] = []
        self._view: View | None = None
        self._live = Live(
            console=Console(),
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def event(self, seconds: float, text: str) -> None:
        """Add an event to the list."""
        self._events.append((seconds, text))
        self._draw()

    def update(self, view: View) -> None:
        """Draw the current state."""
        self._view = view
        self._draw()

    def close(self) -> None:
        """Leave the last picture on the terminal."""
        self._live.stop()

    def _draw(self) -> None:
        view = self._view
        if view is None:
            return
        about = f"{view.seconds:5.1f} s of {view.of_seconds:g} s, {view.phase}"
        head = Text(f"{about}: {progress_text(view)}", "bold")
        latest = self._events[-MAX_NAMED:]
        events = [Text(f"{at:6.1f} s  {text}") for at, text in latest]
        picture = Group(head, status_picture(view.group), "", *events)
        self._live.update(picture, refresh=True)
