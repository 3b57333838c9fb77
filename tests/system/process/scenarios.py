"""Turns functions that operate a fleet into tests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from tests.system.process.fleet import Fleet

AT_ONCE = 4  # scenarios that run at the same time; they mostly wait

Scenario = Callable[["Fleet"], None]
Ahead = Callable[[Scenario], Future[list[str]]]


def scenario(play: Scenario) -> Callable[[Ahead], None]:
    """Return a test that waits for the result of a scenario."""

    def test(ahead: Ahead) -> None:
        for figure in ahead(play).result():
            print(figure)

    test.__name__ = play.__name__
    test.__module__ = play.__module__
    test.__doc__ = play.__doc__
    test.scenario = play  # type: ignore[attr-defined]
    marked: Callable[[Ahead], None] = pytest.mark.process(test)
    return marked
