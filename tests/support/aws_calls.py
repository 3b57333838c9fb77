"""Record the calls of kinesumer's own clients to the embedded AWS."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from kinesumer.testing.embedded_aws.faults import Call
from kinesumer.testing.embedded_aws.state import RequestLog


class AwsCall(NamedTuple):
    """An action on a resource, and the ARN of its caller."""

    action: str
    resource: str
    caller: str


def read_calls(files: Iterable[str]) -> set[AwsCall]:
    """Return the calls that several test sessions have stored in files."""
    return {
        AwsCall(*call) for file in files for call in json.loads(Path(file).read_text())
    }


class CallRecorder:
    """A pytest plugin that records the calls of a session and stores them at its end.

    Only kinesumer's clients name the library in their user agent, so calls of the tests
    are left out. Workers of pytest-xdist send their calls to the controller.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._calls: set[AwsCall] = set()
        self._worker_output = getattr(config, "workeroutput", None)
        self._file = Path(config.getoption("--write-calls"))
        self._add = RequestLog.add
        self._patch = mock.patch.object(RequestLog, "add", self._record())

    def pytest_sessionstart(self) -> None:
        self._patch.start()

    def pytest_sessionfinish(self) -> None:
        """Store the recorded calls, or send them to the controller."""
        self._patch.stop()
        text = json.dumps(sorted(self._calls))
        if self._worker_output is not None:
            # Send JSON, since execnet can't send the lone surrogates of hostile names.
            self._worker_output["aws_calls"] = text
        else:
            self._file.write_text(text)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the calls that a worker of pytest-xdist has sent."""
        text = getattr(node, "workeroutput", {}).get("aws_calls", "[]")
        self._calls.update(AwsCall(*call) for call in json.loads(text))

    def _record(self) -> Any:
        def add(journal: RequestLog, call: Call, **outcome: Any) -> None:
            if "kinesumer/" in call.user_agent:
                self._calls.add(AwsCall(call.action, call.resource, call.caller))
            self._add(journal, call, **outcome)

        return add
