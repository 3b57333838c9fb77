"""Test that public names are documented, and that all names in the guides exist."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import click

from kinesumer.ops.cli.main import COMMANDS, cli
from kinesumer.telemetry import conventions, instruments, otel

ROOT = Path(__file__).parents[3]
DOCS = sorted((ROOT / "docs").glob("*.md"))
# The packages whose public names are all checked. Others are documented in part.
PUBLIC = (
    "kinesumer",
    "kinesumer.blocking",
    "kinesumer.dead_letters",
    "kinesumer.handlers",
    "kinesumer.kclpy",
    "kinesumer.testing",
)
API = re.compile(r"^<!-- api:\s([^>]+?)\s-->", re.MULTILINE)
TEXTS = {file.name: file.read_text() for file in DOCS}
# The paths that the reference describes.
DOCUMENTED = {
    path
    for text in TEXTS.values()
    for names in API.findall(text)
    for path in names.split()
}


def imported(path: str) -> object:
    """Return a module, or an object in a module."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        found: object = getattr(importlib.import_module(module), name)
        return found


def test_every_public_name_is_in_the_reference() -> None:
    """The reference may name the object, its package or its whole module."""
    known = [imported(path) for path in DOCUMENTED]
    missing = []
    for package in PUBLIC:
        for name in importlib.import_module(package).__all__:
            value = imported(f"{package}.{name}")
            homes = {f"{package}.{name}", getattr(value, "__module__", "")}
            if not (homes & DOCUMENTED or any(one is value for one in known)):
                missing.append(f"{package}.{name}")
    assert missing == []


def test_what_the_reference_describes_exists() -> None:
    for path in DOCUMENTED:
        assert imported(path).__doc__ or isinstance(imported(path), tuple), path


def _is_name(value: object) -> bool:
    """Return whether a constant is the name of an attribute or a metric."""
    prefixes = ("messaging.", "cloud.", "error.")
    return isinstance(value, str) and value.startswith(prefixes)


OWN = [
    *instruments.COUNTERS,
    *instruments.STREAM_GAUGES,
    *instruments.CLIENT_GAUGES,
    *instruments.PRODUCER_GAUGES,
    *instruments.INCIDENT_GAUGES,
    *otel.SPANS,
    *(f"{name}.duration" for name in instruments.DURATIONS),
    *("kind", "service", "shards"),
]
METRICS = [
    *(f"kinesumer.{name}" for name in OWN),
    *(text for text in vars(conventions).values() if _is_name(text)),
]


def test_the_guide_names_every_metric_span_and_attribute_of_clients() -> None:
    text = TEXTS["monitoring.md"]
    assert [name for name in METRICS if f"`{name}`" not in text] == []


def commands(
    group: click.Group, above: str = ""
) -> Iterator[tuple[str, click.Command]]:
    """Yield every command under its full name."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        yield f"{above}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{above}{name} ")


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = TEXTS["commands.md"]
    for name, command in commands(cli):
        pattern = rf"^## {name}$\n+```text\n(.*?)\n```$"
        (section,) = re.findall(pattern, page, re.M | re.S)
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert max(parameter.opts, key=len) in section, name


def test_pages_show_the_present_examples_commands_and_docstrings() -> None:
    with mock.patch.object(sys, "path", [str(ROOT / "scripts"), *sys.path]):
        docs_pages = importlib.import_module("docs_pages")
    old = [
        page.name
        for page in docs_pages.pages()
        if docs_pages.rendered(page.read_text()) != page.read_text()
    ]
    assert old == [], "run: .venv/bin/python scripts/docs_pages.py"


# Syntax that only the site's generator understands: GitHub would show it as it is.
ONLY_THE_SITE = re.compile(
    r"^ *(?:!!!|\?\?\?|===|:::|-+8<-+|``` *\{|\{[:#.])", re.MULTILINE
)


def test_pages_are_plain_markdown_which_github_shows_too() -> None:
    for file in (*DOCS, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))):
        assert ONLY_THE_SITE.findall(file.read_text()) == [], file


def test_the_guides_name_every_command_and_no_other() -> None:
    """The list of commands, made from the help texts, doesn't count as a guide."""
    for file in (*DOCS, ROOT / "README.md", ROOT / "observability" / "alerts.yaml"):
        named = set(re.findall(r"(?:\$ |`)kinesumer ([a-z][a-z-]*)", file.read_text()))
        assert named <= {name.split()[0] for name in COMMANDS}, file
    guides = " ".join(text for name, text in TEXTS.items() if name != "commands.md")
    assert [name for name in COMMANDS if f"kinesumer {name}" not in guides] == []


COMPARISON = TEXTS["comparison.md"]
CLAIMS = (
    "Against the reports of others' users",
    "What comes with it",
    "Speed and cost",
)
SHOWN_BY = re.compile(r"`((?:tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?`")


def claims() -> Iterator[tuple[str, str]]:
    """Yield each claim of the table, and the cell that names the claim's evidence."""
    for title in CLAIMS:
        section = COMPARISON.partition(f"## {title}\n")[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("|")]
        for row in rows[2:]:
            cells = [cell.strip() for cell in row.strip("|").split(" | ")]
            yield cells[0], cells[-1]


def test_a_claim_names_what_shows_it() -> None:
    found = list(claims())
    assert found
    assert [claim for claim, evidence in found if not SHOWN_BY.search(evidence)] == []


def test_what_shows_a_claim_exists() -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for file, name in sorted(set(SHOWN_BY.findall(COMPARISON))):
        text = (ROOT / file).read_text()
        if name:
            nodes = ast.walk(ast.parse(text))
            assert name in {n.name for n in nodes if isinstance(n, kinds)}, name
        elif file.startswith("benchmarks/"):
            assert 'if __name__ == "__main__"' in text or "peers" in file


def test_figures_are_those_of_the_readme() -> None:
    """The comparison must quote the same run of the benchmarks as the README."""
    readme = (ROOT / "README.md").read_text()
    speed = COMPARISON.partition("## Speed and cost")[2].partition("\n## ")[0]
    for figure in re.findall(r"\d+,000", speed.partition("a caught-up")[0]):
        assert figure in readme


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_links_between_files_of_the_repository_lead_to_files() -> None:
    """The links of the site's pages, with their anchors, are checked as it is built."""
    for file in ROOT.glob("*.md"):
        for link in LINK.findall(file.read_text()):
            assert (ROOT / link).exists(), (file.name, link)
