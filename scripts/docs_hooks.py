"""What mkdocs writes into pages: the reference of commands, out of their own help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kinesumer.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "<!-- commands -->"
WIDTH = 88


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the mark by the help of every command; mkdocs calls it for each page."""
    if MARK not in markdown:
        return markdown
    return markdown.replace(MARK, "\n\n".join(sections()))


def sections() -> Iterator[str]:
    """Yield a section for the command and each of its subcommands."""
    yield from _section(cli, click.Context(cli, info_name="kinesumer"), "")


def _section(command: click.Command, ctx: click.Context, title: str) -> Iterator[str]:
    formatter = click.HelpFormatter(width=WIDTH)
    command.format_help(ctx, formatter)
    name = title or "kinesumer"
    yield f"## {name}\n\n```text\n{formatter.getvalue().rstrip()}\n```"
    if isinstance(command, click.Group):
        for child in command.list_commands(ctx):
            found = command.get_command(ctx, child)
            assert found is not None
            below = click.Context(found, info_name=child, parent=ctx)
            yield from _section(found, below, f"{title} {child}".strip())
