"""Findings of the doctor, and their severities."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(IntEnum):
    """The severity of a finding; its value is the command's exit status."""

    NOTE = 0  # no action is required
    WARNING = 3  # the app works, but not well, or may soon fail
    CRITICAL = 4  # records are unread or lost, or soon will be


class Finding(NamedTuple):
    """A problem, its subject, and what to do."""

    check: str
    severity: Severity
    subject: str
    text: str
    advice: str


class Check(str):
    """A named check, which creates findings."""

    __slots__ = ()

    def note(self, subject: str, text: str, advice: str) -> Finding:
        """Return a finding that requires no action."""
        return Finding(self, Severity.NOTE, subject, text, advice)

    def warning(self, subject: str, text: str, advice: str) -> Finding:
        """Return a finding about a part that doesn't work well."""
        return Finding(self, Severity.WARNING, subject, text, advice)

    def critical(self, subject: str, text: str, advice: str) -> Finding:
        """Return a finding about unread or lost records."""
        return Finding(self, Severity.CRITICAL, subject, text, advice)


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the highest severity; NOTE if there are no findings."""
    return max((finding.severity for finding in findings), default=Severity.NOTE)
