"""Test that the comparison describes each consumer, and the front page leads there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
FRONT_PAGE = (DOCS / "index.md").read_text()
ONE_BY_ONE = (
    (DOCS / "comparison.md")
    .read_text()
    .partition("## One by one\n")[2]
    .partition("\n## ")[0]
)
SECTIONS = dict(re.findall(r"^### (.+)\n\n((?:.|\n)+?)(?=^### |\Z)", ONE_BY_ONE, re.M))
# Services of AWS have no version.
WITHOUT_VERSION = {"Lambda"}


def anchor(title: str) -> str:
    """Return the anchor of a title, as GitHub and the site make it."""
    return re.sub(r"[^\w-]+", "-", title.lower())


@pytest.mark.parametrize("title", SECTIONS)
def test_a_consumer_has_a_source_a_version_and_both_lists(title: str) -> None:
    section = SECTIONS[title]
    introduction, has, lacks = re.split(
        r"^- \*\*(?:Has|Lacks)\*\* ", section, flags=re.M
    )
    assert re.search(r"\]\(https://", introduction.replace("\n", " "))
    assert title in WITHOUT_VERSION or re.search(r"\b\d+(\.\d+)*\b", introduction)
    assert has.strip()
    assert lacks.strip()


def test_the_front_page_says_why_not_to_use_each_consumer() -> None:
    table = FRONT_PAGE.partition("## Why not …?\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"\]\(comparison\.md#([\w-]+)\)", table))
    assert len(SECTIONS) >= 7
    assert {anchor(title) for title in SECTIONS} <= named


def test_a_first_day_has_five_pages() -> None:
    path = FRONT_PAGE.partition("## Your first day\n")[2].partition("\n## ")[0]
    pages = re.findall(r"^(\d)\. \[.+\]\(([\w-]+\.md)\): ", path, re.M)
    assert [number for number, _ in pages] == ["1", "2", "3", "4", "5"]
    assert len({page for _, page in pages}) == 5
    assert all((DOCS / page).exists() for _, page in pages)
