"""Configure Hypothesis, garbage collection, logging and the recording of AWS calls."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Each run uses the same examples of Hypothesis, without time limits. To search for new
# examples: pytest --hypothesis-profile=search tests/unit tests/system/hostile
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", _patient, derandomize=True, database=None)
settings.register_profile("search", _patient, max_examples=1000)
# For scripts/check.
settings.register_profile("few", settings.get_profile("repeat"), max_examples=5)
settings.load_profile("repeat")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options to store this session's AWS calls, and to read stored calls."""
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
    """Let Ctrl-C interrupt tests, and record AWS calls if the option is set."""
    # If a shell runs this process in the background, it ignores SIGINT, and so would
    # all processes that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--write-calls"):
        # Imported only here, since some sessions with this file lack the embedded AWS.
        from tests.support.aws_calls import CallRecorder

        config.pluginmanager.register(CallRecorder(config))


def pytest_collection_finish() -> None:
    """Let garbage collections skip everything that was imported."""
    # Otherwise each collection would traverse the objects of all imported modules.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_runtest_setup() -> None:
    """Forget the terminal's size: readline writes it into the environment."""
    # Commands would then print as on that terminal, even if a test captures them.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Restore log levels, since commands that run in this process change them."""
    loggers = [logging.getLogger(name) for name in (None, "kinesumer")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture
def nobody_else_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the leader make its first plan without waiting for other clients."""
    monkeypatch.setattr("kinesumer.coordination.leader.FIRST_PLAN_DELAY_SECONDS", 0.0)
