"""One thing that a doctor found, and how bad it is."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(IntEnum):
    """How bad a finding is; its value is the command's exit status."""

    NOTE = 0
    """Good to know; nothing has to be done."""
    WARNING = 3
    """It works, but not well, or not for long."""
    CRITICAL = 4
    """Records aren't read, or are lost, or soon will be."""


class Finding(NamedTuple):
    """What was found, about what, and what to do."""

    check: str
    """The name of what was checked: permissions, clocks, …"""
    severity: Severity
    subject: str
    text: str
    advice: str


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the highest severity; that of a note if nothing was found."""
    return max((finding.severity for finding in findings), default=Severity.NOTE)


def abbreviate(names: Iterable[str], most: int = 3) -> str:
    """Return a few names, and how many more there are."""
    names = list(names)
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
