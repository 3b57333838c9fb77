"""Test the line that shows a command's progress on a terminal."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace

import pytest

from kinesumer.ops.cli import console as module
from kinesumer.ops.cli.console import CLEAR_LINE, print_above, progress


class Terminal(io.StringIO):
    """Standard error on a terminal, which tells when it was written to."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self.written = asyncio.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


@pytest.fixture
def error(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    # pytest itself sets sys.stderr between a fixture and its test.
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=terminal))
    monkeypatch.setattr(module, "DELAY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


async def test_a_long_step_is_named_and_its_line_is_removed(error: Terminal) -> None:
    async with progress("reading shards"):
        await asyncio.wait_for(error.written.wait(), 30)
        assert error.getvalue().endswith("| reading shards … 0 s")
    assert error.getvalue().endswith(CLEAR_LINE)


async def test_the_line_is_removed_if_the_step_fails(error: Terminal) -> None:
    with pytest.raises(ValueError, match="no such app"):
        async with progress("reading shards"):
            await asyncio.wait_for(error.written.wait(), 30)
            raise ValueError("no such app")
    assert error.getvalue().endswith(CLEAR_LINE)


async def test_a_line_printed_meanwhile_replaces_the_progress(error: Terminal) -> None:
    counts = iter(range(1_000_000))
    async with progress(lambda: f"{next(counts)} records made"):
        await asyncio.wait_for(error.written.wait(), 30)
        assert error.getvalue().endswith("| 0 records made … 0 s")
        print_above("not put: line 3")
    assert f"0 s{CLEAR_LINE}not put: line 3\n" in error.getvalue()


async def test_the_line_fits_the_terminal(
    error: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    async with progress("reading shards of a fleet"):
        await asyncio.wait_for(error.written.wait(), 30)
        assert error.getvalue() == f"{CLEAR_LINE}| reading shards of"


async def test_a_short_step_shows_nothing(
    error: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELAY_SECONDS", 60.0)
    async with progress("reading shards"):
        await asyncio.sleep(0)
    assert error.getvalue() == ""


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_nothing_is_shown_in_a_file_or_on_a_dumb_terminal(
    error: Terminal, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    elsewhere = Terminal(is_terminal=is_terminal)
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=elsewhere))
    monkeypatch.setenv("TERM", "dumb" if is_terminal else "xterm")
    before = asyncio.all_tasks()
    async with progress("reading shards"):
        assert asyncio.all_tasks() == before
    assert elsewhere.getvalue() == ""
