"""Test that the picture of moving ranges is what its script draws, for all readers."""

from __future__ import annotations

import importlib
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.support.served_page import browser

__all__ = ["browser"]  # a fixture

ROOT = Path(__file__).parents[3]
PICTURE = ROOT / "docs" / "img" / "range-moves.svg"
MAX_BYTES = 40_000  # as much as a small photo: the front page waits for it


def structure(svg: str) -> list[object]:
    """Return the elements with their names and texts, and the names of animations.

    Times and places are left out: a change of the engine may move them a little.
    """
    elements = [
        (one.tag, one.get("id"), one.get("class"), (one.text or "").strip())
        for one in ET.fromstring(svg).iter()
        if not one.tag.endswith("style")
    ]
    return [*elements, *re.findall(r"@keyframes ([\w-]+)", svg)]


@pytest.mark.slow
def test_the_picture_has_what_its_script_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    script = importlib.import_module("range_moves")
    drawn = script.picture(script.frames())
    assert structure(PICTURE.read_text()) == structure(drawn), (
        "run: PYTHONPATH=. .venv/bin/python scripts/range_moves.py"
    )


def test_the_picture_shows_a_join_a_split_a_death_and_a_stop() -> None:
    """The names of elements tell what the dashboard showed."""
    names = {one.get("id") for one in ET.fromstring(PICTURE.read_text()).iter()}
    assert {"c-joining", "b-silent", "c-leaving"} <= names
    assert {"shard-0-1", "shard-0-6", "shard-0-7"} <= names
    assert {"range-a-0", "range-b-1", "range-c-1"} <= names


def test_the_picture_is_small_and_loads_nothing() -> None:
    svg = PICTURE.read_text()
    assert len(svg.encode()) < MAX_BYTES
    [namespace] = re.findall(r"https?://[^\"]+", svg)
    assert namespace == "http://www.w3.org/2000/svg"
    assert not re.search(r"<script|href|@import|url\(", svg)


@pytest.mark.asyncio(loop_scope="package")
@pytest.mark.parametrize("still", [True, False])
async def test_the_picture_stands_still_for_readers_who_prefer_that(
    browser: Browser, still: bool
) -> None:
    context = await browser.new_context(
        reduced_motion="reduce" if still else "no-preference"
    )
    try:
        page = await context.new_page()
        await page.goto(PICTURE.as_uri())
        seconds = await page.evaluate(
            "[...new Set(document.getAnimations().map("
            "(one) => one.effect.getTiming().duration / 1000))]"
        )
        assert seconds == ([] if still else [30])
    finally:
        await context.close()
