"""``kinesumer status --watch`` in all kinds of terminals, beside a live fleet."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from kinesumer.cli.terminal_view.glyphs import ASCII, Glyphs
from kinesumer.cli.terminal_view.screen import glyphs_for
from tests.integration.cli.conftest import (
    COMMAND,
    TIMEOUT_SECONDS,
    error_text,
    finished,
    lines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process, Run

CONSUME = ["consume", "orders", "--app=a", "--start=TRIM_HORIZON", "--client-id=one"]
WATCH = [*COMMAND, "status", "--app=a", "--watch"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """The command in a pseudo-terminal."""

    def __init__(self, columns: int, rows: int, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        self._resize(columns, rows)
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.process = subprocess.Popen(
            WATCH,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
        self.text = ""

    def until(self, words: str, *, after: int = 0) -> str:
        """Read until the text appears; return the output since ``after``."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while words not in self.text[after:]:
            assert time.monotonic() < deadline, self.text
            self.text += os.read(self._ours, 65536).decode(errors="replace")
        return self.text[after:]

    def resize(self, columns: int, rows: int) -> None:
        self._resize(columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def _resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def ended(self) -> int:
        """Wait for the end of the command; return its exit status."""
        return self.process.wait(TIMEOUT_SECONDS)

    @property
    def is_as_it_was(self) -> bool:
        return termios.tcgetattr(self._theirs) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Create terminals. Their commands end with the test."""
    with contextlib.ExitStack() as opened:

        def make(columns: int, rows: int, **environment: str) -> Terminal:
            made = Terminal(columns, rows, **environment)
            opened.callback(made.close)
            return made

        yield make


@pytest.mark.process
def test_a_live_fleet_is_drawn_in_every_kind_of_terminal(
    aws: EmbeddedAws,
    start: Callable[..., Process],
    terminal: Callable[..., Terminal],
) -> None:
    aws.create_table()
    aws.create_stream("orders", 2)
    aws.put("orders", b"the first")
    lines(start(*CONSUME), 1)

    coloured = terminal(80, 20)
    drawn = coloured.until("plan")
    assert "\x1b[?1049h" in drawn, "the terminal's own lines come back at the end"
    assert "\x1b[48;5;" in drawn or ";48;5;" in drawn
    place = len(coloured.text)
    coloured.resize(50, 12)
    redrawn = ESCAPES.sub("", coloured.until("<6h", after=place))
    # The end of a picture that was still being drawn may come before.
    assert max(map(len, redrawn.splitlines()[-8:])) <= 50
    coloured.press(b"q")
    coloured.until("\x1b[?1049l")
    assert coloured.ended() == 0
    assert coloured.is_as_it_was

    plain = terminal(80, 20, NO_COLOR="1")
    assert "▏aaaaaaaaa" in ESCAPES.sub("", plain.until("plan"))
    assert ";5;" not in plain.text
    plain.process.send_signal(signal.SIGINT)
    assert plain.ended() == 130
    assert plain.is_as_it_was

    dumb = terminal(80, 20, TERM="dumb")
    assert "|aaaaaaaaa" in dumb.until("more")
    assert "\x1b" not in dumb.text
    dumb.process.send_signal(signal.SIGINT)
    assert dumb.ended() == 130

    piped = start("status", "--app=a", "--watch", "--no-lag")
    assert b"".join(lines(piped, 6)).count("▏aaaa".encode()) == 2
    piped.send_signal(signal.SIGINT)
    assert finished(piped)[1] == b""


def test_an_unknown_app_is_an_error_without_a_picture(
    aws: EmbeddedAws, run: Run
) -> None:
    aws.create_table()
    result = run("status", "--app", "a", "--watch")
    assert result.exit_code == 1
    assert "knows no app 'a'" in error_text(result)


def console(encoding: str = "utf-8", **more: object) -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(file=file, force_terminal=True, **more)  # type: ignore[arg-type]


def test_letters_replace_missing_colours() -> None:
    assert glyphs_for(console(color_system="256")) == Glyphs()
    assert glyphs_for(console(color_system="256", no_color=True)).fill
    assert glyphs_for(console(color_system=None)).fill


def test_an_ascii_terminal_gets_digits_and_bars() -> None:
    assert glyphs_for(console(encoding="ascii", color_system="256")) == ASCII
