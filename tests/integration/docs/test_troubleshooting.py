"""Whoever searches the troubleshooting page for what they see finds it."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kinesumer
from kinesumer import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
ERRORS = (ROOT / "docs" / "errors.md").read_text()
LEVELS = {"warning", "error", "exception", "critical"}
LOGGERS = {"logger", "log"}
NOT_OURS = {"demo", "local", "testing"}
"""What only trials and tests show."""
PLACEHOLDER = re.compile(r"%(?:\.?\d+)?[a-z]")


def logged() -> Iterator[tuple[str, str]]:
    """Yield where each warning or error is logged, and its text."""
    for file in sorted((ROOT / "kinesumer").rglob("*.py")):
        if NOT_OURS & set(file.relative_to(ROOT).parts):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr=level),
                    args=[ast.Constant(value=str(text)), *_],
                ) if name in LOGGERS and level in LEVELS:
                    yield f"{file.stem}:{node.lineno}", text


LOGGED = [pytest.param(text, id=where) for where, text in logged()]


def fixed_parts(text: str) -> list[str]:
    """Return what is the same in every such line, in pieces."""
    pieces = PLACEHOLDER.split(text.partition("\n")[0])
    return [piece.strip(" ():;,") for piece in pieces if piece.strip(" ():;,.…")]


def test_there_is_something_to_look_for() -> None:
    assert len(LOGGED) > 15


@pytest.mark.parametrize("text", LOGGED)
def test_every_warning_is_on_the_page(text: str) -> None:
    """A line that is nothing but a placeholder shows an error's own text."""
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    first = next((part for part in fixed_parts(text) if len(part) >= 8), "")
    assert any(first[:40] in row for row in rows), first


CLASSES = [
    name
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, errors.KinesumerError)
]


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_on_the_page(name: str) -> None:
    cells = [line.split("|")[1] for line in ERRORS.splitlines() if line.startswith("|")]
    assert any(f"`{name}`" in cell for cell in cells)


def test_no_error_is_on_the_page_that_there_is_not() -> None:
    named = set(re.findall(r"`(\w+Error)`", PAGE + ERRORS)) - set(dir(builtins))
    assert named <= set(CLASSES)
    assert {name for name in kinesumer.__all__ if name.endswith("Error")} <= named


def test_at_most_18_errors_are_exported_and_each_is_said_in_one_line() -> None:
    exported = {name for name in kinesumer.__all__ if name in CLASSES}
    table = ERRORS.partition("## Exported errors")[2].partition("\n`GroupBusy")[0]
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", table, re.MULTILINE)
    assert len(exported) <= 18
    assert sorted(rows) == sorted(exported)
