"""Build the documentation site, and check its links and what its pages load."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

ROOT = Path(__file__).parents[3]
BASE = "http://site/"
# The attribute by which each element loads a resource.
LOADING = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
# The theme's script fetches a library from another host for elements of these classes.
FETCHING = {"glightbox", "mermaid", "pyodide"}
CSS_URL = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""")


class Page(HTMLParser):
    """The anchors of a page, its links, and the resources that it loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found.get("id", ""), found.get("name", "")}
        self.classes |= {*found.get("class", "").split()}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        is_loaded = tag != "link" or found.get("rel") not in ("next", "prev")
        if is_loaded and (url := found.get(LOADING.get(tag, ""))):
            self.loaded.add(url)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site strictly, in a copy of its sources."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "kinesumer").symlink_to(ROOT / "kinesumer")
    done = subprocess.run(
        [Path(sys.executable).parent / "zensical", "build", "--strict"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """Return the pages by URL."""
    return {
        urljoin(BASE, str(file.relative_to(site)).removesuffix("index.html")): Page(
            file.read_text()
        )
        for file in site.rglob("*.html")
        if file.name != "404.html"
    }


def is_local(url: str) -> bool:
    return urlsplit(url).hostname == urlsplit(BASE).hostname


def test_every_link_leads_to_a_page_and_to_an_anchor(
    site: Path, pages: dict[str, Page]
) -> None:
    broken = defaultdict(list)
    for url, page in pages.items():
        for link in page.links:
            target, anchor = urldefrag(urljoin(url, link))
            if not is_local(target):
                assert urlsplit(target).scheme in ("https", "mailto"), (url, link)
            elif target in pages:
                if unquote(anchor) not in pages[target].anchors | {""}:
                    broken[url].append(link)
            elif not (site / unquote(urlsplit(target).path).lstrip("/")).is_file():
                broken[url].append(link)
    assert broken == {}


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("exactly once", "fencing/"),
        ("exactly once", "guarantees/"),
        ("replay", "control/#kinesumer-seek"),
        ("rewind", "control/#kinesumer-seek"),
        ("rewind", "glossary/"),
    ],
)
def test_the_search_finds_common_words(site: Path, words: str, page: str) -> None:
    """The index has a section of this page with the words that users search for."""
    sections = json.loads((site / "search.json").read_text())["items"]
    texts = [
        f"{one['title']} {one['text']}".lower()
        for one in sections
        if one["location"].startswith(page)
    ]
    assert any(words in text for text in texts), texts


def test_the_readme_installs_what_the_site_needs() -> None:
    """The group docs of pyproject.toml is what `scripts/test` builds the site with."""
    readme = (ROOT / "README.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [one.partition(">")[0] for one in project["dependency-groups"]["docs"]]
    [command] = re.findall(r"pip install (.+)\n\$ PYTHONPATH=scripts zensical", readme)
    assert shlex.split(command) == needed


def test_what_pages_load_is_part_of_the_site(
    site: Path, pages: dict[str, Page]
) -> None:
    """No browser asks another host, for fonts for example."""
    for url, page in pages.items():
        assert page.classes & FETCHING == set(), url
        for each in page.loaded:
            target = urljoin(url, each)
            assert is_local(target), (url, each)
            assert (site / unquote(urlsplit(target).path).lstrip("/")).exists(), each
    for sheet in site.rglob("*.css"):
        for each in CSS_URL.findall(sheet.read_text()):
            assert each.startswith(("data:", "#")) or "//" not in each, (sheet, each)


def test_the_reference_has_whole_docstrings(pages: dict[str, Page]) -> None:
    anchors = pages[f"{BASE}reference/"].anchors
    assert {"kinesumer.Kinesumer", "kinesumer.Kinesumer.consume"} <= anchors


def test_pages_can_be_dark(site: Path) -> None:
    assert 'data-md-color-scheme="slate"' in (site / "index.html").read_text()


def test_every_page_can_be_searched(site: Path, pages: dict[str, Page]) -> None:
    index = (site / "search.json").read_text()
    for url in pages:
        path = url.removeprefix(BASE)
        assert f'"{path}' in index, path


def test_the_front_page_leads_to_every_page(pages: dict[str, Page]) -> None:
    found = {urldefrag(urljoin(BASE, link))[0] for link in pages[BASE].links}
    # Without the navigation, which is on every page.
    text = (ROOT / "docs" / "index.md").read_text()
    named = set(re.findall(r"\]\(([\w-]+)\.md", text))
    assert {file.stem for file in (ROOT / "docs").glob("*.md")} - named == {"index"}
    assert found >= {f"{BASE}{name}/" for name in named}


def navigation(entries: Any) -> Iterator[str]:
    """Yield the files of a navigation."""
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else navigation(value)


def test_every_page_is_in_the_navigation() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    pages = ROOT / "docs"
    names = [str(file.relative_to(pages)) for file in pages.rglob("*.md")]
    assert sorted(navigation(project["nav"])) == sorted(names)
