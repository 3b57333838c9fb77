"""Run the tests that use a world in virtual time."""

from tests.support.world import pytest_pycollect_makeitem, world

__all__ = ["pytest_pycollect_makeitem", "world"]
