"""Every claim of the comparison names what shows it, and that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "comparison.md").read_text()
CLAIMS = (
    "Against the reports of others' users",
    "What comes with it",
    "Speed and cost",
)
REFERENCE = re.compile(r"`((?:tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?`")


def claims() -> Iterator[tuple[str, str]]:
    """Yield each claim, and the cell that names what shows it."""
    for title in CLAIMS:
        section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("|")]
        for row in rows[2:]:
            cells = [cell.strip() for cell in row.strip("|").split(" | ")]
            yield cells[0], cells[-1]


@pytest.mark.parametrize(("claim", "shown_by"), list(claims()))
def test_a_claim_names_what_shows_it(claim: str, shown_by: str) -> None:
    assert REFERENCE.search(shown_by), claim


REFERENCES = sorted(set(REFERENCE.findall(PAGE)))


@pytest.mark.parametrize(("file", "name"), REFERENCES)
def test_what_shows_a_claim_exists(file: str, name: str) -> None:
    path = ROOT / file
    assert path.is_file(), file
    if name:
        tree = ast.walk(ast.parse(path.read_text()))
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        assert name in {node.name for node in tree if isinstance(node, kinds)}
    elif file.startswith("benchmarks/"):
        assert 'if __name__ == "__main__"' in path.read_text() or "peers" in file


def test_figures_are_those_of_the_readme() -> None:
    """Both are from one run: a new one changes both."""
    readme = (ROOT / "README.md").read_text()
    speed = PAGE.partition("## Speed and cost")[2].partition("\n## ")[0]
    for figure in re.findall(r"\d+,000", speed.partition("a caught-up")[0]):
        assert figure in readme
