"""Test that docs/errors.md lists every error, and counts the exported ones."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import kinesumer
from kinesumer import errors

PAGE = (Path(__file__).parents[3] / "docs" / "errors.md").read_text()
NAMES = {name for name, value in vars(errors).items() if inspect.isclass(value)}
ERRORS = {name for name in NAMES if name.endswith("Error")}
EXPORTED = ERRORS & set(kinesumer.__all__)


def test_the_page_lists_every_error() -> None:
    assert set(re.findall(r"`(\w+Error)`", PAGE)) >= ERRORS
    exported, _, _ = PAGE.partition("## Other errors")
    assert set(re.findall(r"^\| `(\w+)` \|", exported, re.MULTILINE)) >= EXPORTED


def test_the_page_counts_the_exported_errors() -> None:
    [count] = re.findall(r"exports the (\d+) errors", PAGE)
    assert int(count) == len(EXPORTED)
