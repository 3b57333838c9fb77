"""Run the tests of this directory in virtual time."""

from tests.support.world import pytest_pycollect_makeitem, world

__all__ = ["pytest_pycollect_makeitem", "world"]
