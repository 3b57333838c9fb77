"""Examples that can be repeated, log levels, and the option to record AWS calls."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# The same examples on each run, on machines of any speed. To look for new ones:
# pytest --hypothesis-profile=search tests/unit tests/system/hostile
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", _patient, derandomize=True, database=None)
settings.register_profile("search", _patient, max_examples=1000)
settings.load_profile("repeat")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let sessions store their AWS calls, and one session judge the calls of all."""
    group = parser.getgroup("kinesumer")
    group.addoption("--write-calls", metavar="FILE", help="store the calls of AWS")
    group.addoption(
        "--read-calls",
        metavar="FILE",
        action="append",
        default=[],
        help="calls of AWS that another session stored; repeatable",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Record calls of AWS if asked to."""
    if config.getoption("--write-calls"):
        # Here, because not every session that uses this file has the embedded AWS.
        from tests.support.aws_calls import CallRecorder

        config.pluginmanager.register(CallRecorder(config))


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Put log levels back: commands that run in this process set their own."""
    loggers = [logging.getLogger(name) for name in (None, "kinesumer")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)
