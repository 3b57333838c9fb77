"""Test the output to terminals without colours or Unicode, and to pipes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from kinesumer.ops.cli.terminal_view.band import ASCII, Glyphs
from kinesumer.ops.cli.terminal_view.screen import glyphs_for, open_screen
from tests.unit.ops.cli.terminal_view.test_drawing import CALM

if TYPE_CHECKING:
    import pytest


def console(encoding: str = "utf-8", **more: object) -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Console(file=file, force_terminal=True, **more)  # type: ignore[arg-type]


def test_letters_replace_missing_colours() -> None:
    assert glyphs_for(console(color_system="256")) == Glyphs()
    assert glyphs_for(console(color_system="256", no_color=True)).fill
    assert glyphs_for(console(color_system=None)).fill


def test_an_ascii_terminal_gets_digits_and_bars() -> None:
    assert glyphs_for(console(encoding="ascii", color_system="256")) == ASCII


def drawn(capsys: pytest.CaptureFixture[str]) -> str:
    with open_screen(lambda: None) as show:
        show(CALM)
        show(CALM)
    return capsys.readouterr().out


def test_a_pipe_gets_one_picture_after_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert drawn(capsys).count("▏aaaaaaaaa") == 2


def test_a_dumb_terminal_gets_no_escape_sequences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    text = drawn(capsys)
    assert (text.count("|aaaaaaaaa"), "\x1b" in text) == (2, False)
