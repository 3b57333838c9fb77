"""A group of commands of which one needs no name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from typing import Any

HELP = ("-h", "--help")


class UnnamedCommand(click.Group):
    """Takes arguments that don't begin with a command's name for the unnamed one's."""

    def __init__(self, *args: Any, unnamed: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unnamed = unnamed

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the unnamed command's name before its arguments."""
        if not args or (args[0] not in self.commands and args[0] not in HELP):
            args = [self._unnamed, *args]
        return super().parse_args(ctx, args)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the unnamed command's options, since the group has none of its own."""
        unnamed = self.commands[self._unnamed]
        unnamed.format_options(click.Context(unnamed, parent=ctx), formatter)
        self.format_commands(ctx, formatter)
