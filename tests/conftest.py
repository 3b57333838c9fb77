"""What every test has: a record of AWS calls, and examples that can be repeated."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from kinesumer.local.request_log import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesumer.local.faults import Call

JUDGED_LAST = "test_policies.py"

# The same examples on each run, on machines of any speed. To look for new ones:
# pytest --hypothesis-profile=search tests/unit tests/system/hostile
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", _patient, derandomize=True, database=None)
settings.register_profile("search", _patient, max_examples=1000)
settings.load_profile("repeat")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the parts of the suite that run side by side be judged together."""
    group = parser.getgroup("kinesumer")
    group.addoption("--write-calls", metavar="FILE", help="store what AWS was asked")
    group.addoption(
        "--read-calls",
        metavar="FILE",
        action="append",
        default=[],
        help="what AWS was asked by other parts of the suite",
    )


class AwsCall(NamedTuple):
    """An action on a resource, and the ARN of who asked for it."""

    action: str
    resource: str
    caller: str


@pytest.fixture(scope="session", autouse=True)
def aws_calls(pytestconfig: pytest.Config) -> Iterator[set[AwsCall]]:
    """Collect what kinesumer's own clients ask of any embedded AWS in this process.

    They name the library in their user agent; what tests themselves ask doesn't count.
    """
    calls: set[AwsCall] = set()
    for name in pytestconfig.getoption("--read-calls"):
        calls |= {AwsCall(*call) for call in json.loads(Path(name).read_text())}
    add = Journal.add

    def recording(journal: Journal, call: Call, **outcome: Any) -> None:
        if "kinesumer/" in call.user_agent:
            calls.add(AwsCall(call.action, call.resource, call.caller))
        add(journal, call, **outcome)

    with mock.patch.object(Journal, "add", recording):
        yield calls
    if written := pytestconfig.getoption("--write-calls"):
        Path(written).write_text(json.dumps(sorted(calls)))


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Put log levels back: commands that run in this process set their own."""
    loggers = [logging.getLogger(name) for name in (None, "kinesumer")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the test of the policies when all the others have made their calls."""
    items.sort(key=lambda item: item.path.name == JUDGED_LAST)
