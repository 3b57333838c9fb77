"""What reports for people have in common: its width, and the text of others."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kinesumer.errors import shown

WIDE = 200
"""Columns where the output is no terminal: nothing is cut off in a file."""
NARROW = 140
"""Columns of a narrower terminal: it wraps lines, where names would be cut off."""


def console() -> Console:
    """Return where reports are printed."""
    there = Console()
    width = max(there.width, NARROW) if there.is_terminal else WIDE
    return Console(width=width)


def plain(text: str, style: str = "") -> Text:
    """Return text as it is: a name in brackets is no markup, an escape no escape."""
    return Text(shown(text), style=style)
