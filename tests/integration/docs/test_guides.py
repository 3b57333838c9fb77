"""Commands and guides know of each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kinesumer.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
DOCS = sorted((ROOT / "docs").glob("*.md"))
COMMAND = r"(?:\$ |`)kinesumer ([a-z]+)"
NAMED = [
    pytest.param(name, id=f"{file.stem}:{name}")
    for file in (*DOCS, ROOT / "README.md", ROOT / "observability" / "alerts.yaml")
    for name in sorted(
        set(re.findall(r"(?:\$ |`)kinesumer ([a-z]+)", file.read_text()))
    )
]


@pytest.mark.parametrize("name", NAMED)
def test_commands_that_the_guides_name_exist(name: str) -> None:
    assert name in COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_a_guide(name: str) -> None:
    """Not only in the list that is made of its help."""
    guides = " ".join(file.read_text() for file in DOCS)
    assert f"kinesumer {name}" in guides
