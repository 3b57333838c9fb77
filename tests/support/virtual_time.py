"""Run async tests that use ``world`` in virtual time. A conftest imports this:

from tests.support.virtual_time import pytest_pycollect_makeitem, world
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from random import Random
from typing import Any

import pytest

from kinesumer.testing.simulation.event_loop import VirtualLoop
from tests.support.world import World


@pytest.fixture
def world() -> World:
    """Return a world in virtual time."""
    return World(VirtualLoop(Random(0)))


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> None:
    """Run async tests with an argument ``world`` on the loop of that world."""
    is_async_test = name.startswith("test_") and inspect.iscoroutinefunction(obj)
    if is_async_test and "world" in inspect.signature(obj).parameters:
        setattr(collector.obj, name, _in_virtual_time(obj))


def _in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    @wraps(test)
    def run(**arguments: Any) -> None:
        loop = arguments["world"].loop
        loop.run(test(**arguments))
        assert not loop.failures

    return run
