"""Test the line that shows a command's progress on a terminal."""

from __future__ import annotations

import io
import sys
import threading
from types import SimpleNamespace

import pytest

from kinesumer.ops.cli import console
from kinesumer.ops.cli.console import progress

ERASE_LINE = "\x1b[2K"


class Terminal(io.StringIO):
    """Standard error on a terminal, which tells when it shows the second second."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self.shown = threading.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        if "… 2 s" in text:
            self.shown.set()
        return super().write(text)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each step last for two seconds from its beginning on."""
    times = iter([0.0])
    clock = SimpleNamespace(monotonic=lambda: next(times, 2.0))
    monkeypatch.setattr(console, "time", clock)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")


@pytest.mark.usefixtures("late")
def test_a_long_step_is_named_and_its_line_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(ValueError, match="no such app"):
        with progress(lambda: "reading shards"):
            assert terminal.shown.wait(30)
            assert "reading shards … 2 s" in terminal.getvalue()
            print("not put: line 3", file=sys.stderr)
            raise ValueError("no such app")
    assert "not put: line 3\n" in terminal.getvalue()
    assert terminal.getvalue().rstrip().endswith(ERASE_LINE)


@pytest.mark.parametrize(("is_terminal", "kind"), [(False, "xterm"), (True, "dumb")])
@pytest.mark.usefixtures("late")
def test_nothing_is_shown_in_a_file_or_on_a_dumb_terminal(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, kind: str
) -> None:
    terminal = Terminal(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", kind)
    with progress("reading shards"):
        pass
    assert terminal.getvalue() == ""
