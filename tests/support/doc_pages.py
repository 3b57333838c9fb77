"""The pages of the documentation, their code blocks, and their command lines."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# Blocks that scripts/docs_pages.py writes. Tests of the examples run their code.
_WRITTEN = re.compile(r"^<!-- \w+.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A code block of a page."""

    page: str  # relative to the repository
    language: str
    text: str


def blocks(*languages: str) -> list[Block]:
    """Return the code blocks of all pages in some languages, without those of files."""
    return [
        Block(str(page.relative_to(ROOT)), language, textwrap.dedent(text))
        for page in PAGES
        for _, language, text in _BLOCK.findall(_WRITTEN.sub("", page.read_text()))
        if language in languages
    ]


def snippet(page: str, part: str) -> str:
    """Return the only Python block of a page that contains some text."""
    [found] = [
        block.text
        for block in blocks("python")
        if block.page == page and part in block.text
    ]
    return found


def named_parts(test_module: Path) -> set[tuple[str, str]]:
    """Return the pairs of a page and a text that a module has next to each other."""
    pairs = set()
    for node in ast.walk(ast.parse(test_module.read_text())):
        items = node.args if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Tuple):
            items = node.elts
        for pair in pairwise(items):
            match pair:
                case ast.Constant(value=str(page)), ast.Constant(value=str(part)):
                    pairs.add((page, part))
    return pairs


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each program that a console block starts.

    Comments and the variables before a program are left out.
    """
    for line in re.findall(r"^\$ ((?:.*\\\n)*.*)", text, re.MULTILINE):
        line = line.replace("\\\n", " ")
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, "|"]:
            if word == "|":
                yield words
                words = []
            elif words or not re.match(r"[A-Z_]+=", word):
                words.append(word)
