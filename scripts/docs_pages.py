"""Write into the pages what comes from elsewhere, so that they read well on GitHub.

Run ``.venv/bin/python scripts/docs_pages.py`` after a change of an example, of a
command's options or of a docstring. It rewrites the blocks between two HTML comments::

    <!-- code: examples/blocking/consume.py:consume -->     a file, or a part of it
    <!-- commands -->                                       the help of all commands
    <!-- api: kinesumer.Record kinesumer.Batch -->          a table of public names
    <!-- incidents -->                                      the kinds of incidents
    <!-- end -->

A part of a file lies between the lines ``# docs: NAME`` and ``# docs: end``. The site
shows whole docstrings in place of a table of names: this module is also an extension of
Python-Markdown, which Zensical loads (``zensical.toml``).
"""

from __future__ import annotations

import json
import re
import textwrap
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import griffe
from markdown import Extension
from markdown.preprocessors import Preprocessor

from kinesumer.model.incidents import IncidentKind
from kinesumer.ops.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown import Markdown

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^(<!-- (code|commands|api|incidents)(?::\s([^>]+?))?\s-->)\n.*?^<!-- end -->$",
    re.M | re.S,
)
LANGUAGES = {
    "Dockerfile": "dockerfile",
    "config": "ini",
    ".ipynb": "python",
    ".py": "python",
    ".service": "ini",
}
HELP_WIDTH = 88
# Defaults that a table shows.
LITERAL = re.compile(r"['\d][^()]*|True|False|None|\(.*\)|[A-Z_]+")


def pages() -> list[Path]:
    """Return the files that may have blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def rendered(markdown: str) -> str:
    """Return a page with the current content of its blocks."""
    writers = {
        "code": _code,
        "commands": _commands,
        "api": _api,
        "incidents": _incidents,
    }

    def block(match: re.Match[str]) -> str:
        comment, kind, argument = match.groups(default="")
        return f"{comment}\n\n{writers[kind](argument)}\n\n<!-- end -->"

    return BLOCK.sub(block, markdown)


class DocstringDirectives(Preprocessor):
    """Replaces tables of names by mkdocstrings' directives."""

    def run(self, lines: list[str]) -> list[str]:
        return BLOCK.sub(self._block, "\n".join(lines)).split("\n")

    @staticmethod
    def _block(match: re.Match[str]) -> str:
        _, kind, argument = match.groups(default="")
        return _directives(argument) if kind == "api" else match[0]


class DocstringExtension(Extension):
    """Runs before mkdocstrings, which makes HTML of its directives."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(DocstringDirectives(md), "docstrings", 1000)


def makeExtension(**_: Any) -> Extension:
    """Return the extension. Python-Markdown asks for it by this name."""
    return DocstringExtension()


# --- code -----------------------------------------------------------------------------


def _code(argument: str) -> str:
    path, _, part = argument.partition(":")
    text = (ROOT / path).read_text()
    if part:
        lines = re.escape(part)
        found = re.search(rf"^# docs: {lines}\n(.*?)^# docs: end$", text, re.M | re.S)
        if found is None:
            raise ValueError(f"{path} has no part {part}: add # docs: {part}")
        text = found[1]
    suffix = Path(path).suffix or Path(path).name
    if suffix == ".ipynb":
        cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    language = LANGUAGES.get(suffix, suffix.removeprefix("."))
    return f"```{language}\n{text.strip()}\n```"


# --- commands -------------------------------------------------------------------------


def _commands(_: str) -> str:
    ctx = click.Context(cli, info_name="kinesumer", **cli.context_settings)
    return "\n\n".join(_sections(cli, ctx, ""))


def _sections(command: click.Command, ctx: click.Context, title: str) -> Iterator[str]:
    """Yield a section for a command and each of its subcommands."""
    formatter = click.HelpFormatter(width=HELP_WIDTH)
    command.format_help(ctx, formatter)
    yield f"## {title or 'kinesumer'}\n\n```text\n{formatter.getvalue().rstrip()}\n```"
    if isinstance(command, click.Group):
        for child in command.list_commands(ctx):
            found = command.get_command(ctx, child)
            assert found is not None
            below = click.Context(found, info_name=child, parent=ctx)
            yield from _sections(found, below, f"{title} {child}".strip())


def _incidents(_: str) -> str:
    rows = [f"| `{k.value}` | {k.meaning} | {k.remedy} |" for k in IncidentKind]
    head = "| kind | what it means | what to do |"
    return "\n".join([head, "| --- | --- | --- |", *rows])


# --- public names ---------------------------------------------------------------------


WITHOUT_HEADING = """
    options:
      show_root_heading: false
      show_root_toc_entry: false"""


def _directives(argument: str) -> str:
    return "\n\n".join(
        f"::: {path}{WITHOUT_HEADING if _found(path).is_module else ''}"
        for path in argument.split()
    )


def _api(argument: str) -> str:
    rows = chain(
        *(_rows(path.rpartition(".")[2], _found(path)) for path in argument.split())
    )
    return "\n".join(["| name | what it is |", "| --- | --- |", *rows])


@cache
def _package() -> griffe.Object | griffe.Alias:
    return griffe.load("kinesumer", search_paths=[ROOT], resolve_aliases=True)


def _found(path: str) -> griffe.Object | griffe.Alias:
    found: griffe.Object | griffe.Alias = _package()[path.removeprefix("kinesumer.")]
    return found


def _rows(name: str, item: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Yield a row for an object, and a row for each of its public members."""
    if item.is_module:
        for child, value in item.members.items():
            if not (value.is_alias or child.startswith("_")) and value.is_class:
                yield from _rows(child, value)
        return
    yield _row(name, item)
    if item.is_class:
        for member, value in item.all_members.items():
            is_named = value.is_function or value.is_attribute
            if is_named and not member.startswith("_"):
                yield _row(f"{name}.{member}", value)


def _row(name: str, item: griffe.Object | griffe.Alias) -> str:
    text = item.docstring.value if item.docstring else ""
    if item.is_function:
        name = f"{name}()"
    if item.is_attribute and "property" not in item.labels:
        text = text or (f"`{item.annotation}`" if item.annotation else "")
        if item.value is not None and LITERAL.fullmatch(str(item.value)):
            name = f"{name} = {item.value}"
    else:
        text = text.partition("\n\n")[0]
    return f"| `{name}` | {_cell(text)} |"


def _cell(text: str) -> str:
    """Return a docstring as one line of Markdown."""
    line = " ".join(textwrap.dedent(text).split()).replace("``", "`")
    return line.replace("|", "\\|")


def main() -> None:
    """Rewrite all pages, and print which ones changed."""
    for page in pages():
        before = page.read_text()
        after = rendered(before)
        if after != before:
            page.write_text(after)
            print(f"rewrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
