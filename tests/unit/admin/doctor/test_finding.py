"""Findings and severities; a healthy app has no findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.admin.doctor.finding import Finding, Severity, abbreviate, worst
from kinesumer.admin.doctor.runner import APP_CHECK_FUNCTIONS
from tests.support.doctor import seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesumer.admin.doctor.observation import AppObservation


@pytest.mark.parametrize("check", APP_CHECK_FUNCTIONS, ids=lambda check: check.__name__)
def test_a_healthy_app_has_no_findings(
    check: Callable[[AppObservation], Iterator[Finding]],
) -> None:
    assert list(check(seen())) == []


def test_the_worst_finding_decides() -> None:
    note = Finding("x", Severity.NOTE, "", "", "")
    assert worst([]) == 0
    assert worst([note]) == 0
    assert worst([note, note._replace(severity=Severity.WARNING)]) == 3
    assert worst([note._replace(severity=Severity.CRITICAL), note]) == 4


def test_many_names_are_abbreviated() -> None:
    assert abbreviate(["a", "b"]) == "a, b"
    assert abbreviate("abcde") == "a, b, c and 2 more"
