"""Findings of the doctor, and their severities."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(IntEnum):
    """The severity of a finding; its value is the command's exit status."""

    NOTE = 0
    """Good to know; nothing has to be done."""
    WARNING = 3
    """The app works, but not well, or not for long."""
    CRITICAL = 4
    """Records aren't read, or are lost, or soon will be."""


class Finding(NamedTuple):
    """A problem, its subject, and what to do."""

    check: str
    """The name of the check, such as permissions or clocks."""
    severity: Severity
    subject: str
    text: str
    advice: str


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the highest severity; NOTE if there are no findings."""
    return max((finding.severity for finding in findings), default=Severity.NOTE)


def abbreviate(names: Iterable[str], limit: int = 3) -> str:
    """Return the first names, and how many more there are."""
    names = list(names)
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")
