"""Test that the troubleshooting page contains every warning and error."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import kinesumer
from kinesumer import errors

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
ERRORS = (ROOT / "docs" / "errors.md").read_text()
LEVELS = {"warning", "error", "exception", "critical"}
LOGGERS = {"logger", "log"}
# Users see the messages of these packages only in trials and tests.
NOT_OURS = {"demo", "local", "testing"}
PLACEHOLDER = re.compile(r"%(?:\.?\d+)?[a-z]")


def logged() -> Iterator[str]:
    """Yield the text of each warning and error that is logged."""
    for file in (ROOT / "kinesumer").rglob("*.py"):
        if NOT_OURS & set(file.relative_to(ROOT).parts):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr=level),
                    args=[ast.Constant(value=str(text)), *_],
                ) if name in LOGGERS and level in LEVELS:
                    yield text


def fixed_parts(text: str) -> list[str]:
    """Return the constant parts of a message."""
    pieces = PLACEHOLDER.split(text.partition("\n")[0])
    return [piece.strip(" ():;,") for piece in pieces if piece.strip(" ():;,.…")]


def test_every_warning_is_on_the_page() -> None:
    """A message without constant parts is skipped: it only shows an error's text."""
    texts = list(logged())
    assert len(texts) > 15
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    for text in texts:
        first = next((part for part in fixed_parts(text) if len(part) >= 8), "")
        assert any(first[:40] in row for row in rows), first


CLASSES = [
    name
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, errors.KinesumerError)
]


def test_no_error_is_on_the_page_that_there_is_not() -> None:
    named = set(re.findall(r"`(\w+Error)`", PAGE + ERRORS)) - set(dir(builtins))
    assert named <= set(CLASSES)
    assert {name for name in kinesumer.__all__ if name.endswith("Error")} <= named


def test_at_most_21_errors_are_exported_and_each_is_said_in_one_line() -> None:
    exported = {name for name in kinesumer.__all__ if name in CLASSES}
    table = ERRORS.partition("## Exported errors")[2].partition("\n`GroupBusy")[0]
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", table, re.MULTILINE)
    assert len(exported) <= 21
    assert sorted(rows) == sorted(exported)
