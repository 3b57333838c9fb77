"""What is public is in the reference, and what the guides name exists."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import click
import pytest

from kinesumer.cli.main import cli
from kinesumer.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PUBLIC = (
    "kinesumer",
    "kinesumer.blocking",
    "kinesumer.dead_letters",
    "kinesumer.handlers",
    "kinesumer.local",
)
"""Packages that users import from; others name their public parts one by one."""
DIRECTIVE = re.compile(r"^::: ([\w.]+)", re.MULTILINE)


def documented() -> set[str]:
    """Return the paths that the reference describes, or the guide that it names."""
    return {path for page in DOCS for path in DIRECTIVE.findall(page.read_text())}


def public() -> Iterator[str]:
    for package in PUBLIC:
        for name in importlib.import_module(package).__all__:
            yield f"{package}.{name}"


@pytest.mark.parametrize("path", sorted(public()))
def test_every_public_name_is_in_the_reference(path: str) -> None:
    """By its own name, by that of another public package, or with its whole module."""
    value = imported(path)
    home = f"{getattr(value, '__module__', '')}"
    known = documented()
    same = [p for p in known if "." in p and same_object(p, value)]
    assert path in known or home in known or same


@pytest.mark.parametrize("path", sorted(documented()))
def test_what_the_reference_describes_exists(path: str) -> None:
    assert imported(path).__doc__ or isinstance(imported(path), tuple)


def same_object(path: str, value: object) -> bool:
    return imported(path) is value


def imported(path: str) -> object:
    """Return a module, or what one has under a name."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        found: object = getattr(importlib.import_module(module), name)
        return found


METRICS = [
    value
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str)
]


@pytest.mark.parametrize("name", METRICS)
def test_the_guide_names_every_metric_span_and_attribute_of_clients(name: str) -> None:
    if name != names.SHARDS:
        assert f"`{name}`" in (ROOT / "docs" / "monitoring.md").read_text()


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


ALL = dict(commands(cli))


@pytest.fixture(scope="module")
def page() -> str:
    """The page of commands as mkdocs makes it."""
    with mock.patch.object(sys, "path", [str(ROOT / "scripts"), *sys.path]):
        hooks = importlib.import_module("docs_hooks")
    made: str = hooks.on_page_markdown((ROOT / "docs" / "commands.md").read_text())
    return made


@pytest.mark.parametrize("name", ALL)
def test_the_page_of_commands_has_every_command_and_option(
    name: str, page: str
) -> None:
    (section,) = re.findall(rf"^## {name}$\n+```text\n(.*?)\n```$", page, re.M | re.S)
    for parameter in ALL[name].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert max(parameter.opts, key=len) in section


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert {file.name for file in DOCS} == set(re.findall(r"([\w-]+\.md)", text))
