"""Asks before something is changed."""

from __future__ import annotations

import sys

import click

from kinesumer.errors import ConfigurationError


def agreed(question: str, *, yes: bool) -> None:
    """Ask on the terminal, unless ``--yes`` was said; a no ends the command.

    Raises ConfigurationError if nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError("nobody can be asked here: say --yes to do it")
    click.confirm(question, abort=True, err=True)
