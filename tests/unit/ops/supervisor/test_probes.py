"""Test what the ports for probes and for Prometheus answer."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.ops.group.observation import ClientHealth
from kinesumer.ops.supervisor.metrics import Family
from kinesumer.ops.supervisor.probes import health_answers, metrics_answers, serving
from kinesumer.ops.supervisor.reports import Report

READY = ClientHealth(True, True, "up", "its heartbeat advances")
LEAVING = ClientHealth(True, False, "leaving", "its heartbeat advances")
UNKNOWN = ClientHealth(None, False, None, "its process starts")
STUCK = ClientHealth(False, False, "dead", "user code makes no progress")
HOST = "127.0.0.1"


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("healths", "live", "ready"),
    [
        ([READY], 200, 200),
        ([READY, READY], 200, 200),
        ([READY, LEAVING], 200, 503),
        ([READY, UNKNOWN], 200, 503),
        ([READY, STUCK], 503, 503),
    ],
)
def test_probes_succeed_only_if_all_processes_are_well(
    healths: list[ClientHealth], live: int, ready: int
) -> None:
    reports = [
        Report(number, f"billing-{number}", health)
        for number, health in enumerate(healths)
    ]
    answers = health_answers(lambda: reports)
    with serving(HOST, 0, "--health-port", answers) as url:
        assert get(f"{url}/live")[0] == live
        status, text = get(f"{url}/ready?verbose")
    assert status == ready
    found = json.loads(text)
    assert (found["alive"], found["ready"]) == (live == 200, ready == 200)
    assert found["processes"][0] == {
        "client_id": "billing-0",
        "alive": True,
        "ready": True,
        "state": "up",
        "why": "its heartbeat advances",
    }


def test_metrics_are_served_as_text_and_other_paths_are_named() -> None:
    up = Family("up", "gauge", "Up.", [("up", {}, 1.0)])
    reports = [Report(0, "one", READY, [up])]
    with serving(HOST, 0, "--metrics-port", metrics_answers(lambda: reports)) as url:
        assert get(f"{url}/metrics") == (
            200,
            '# HELP up Up.\n# TYPE up gauge\nup{process="0"} 1.0\n',
        )
        assert get(f"{url}/") == (404, "there is /metrics\n")


def test_a_connection_may_be_kept_and_a_broken_one_disturbs_nobody() -> None:
    answers = health_answers(lambda: [Report(0, "one", READY)])
    with serving(HOST, 0, "--health-port", answers) as url:
        connection = HTTPConnection(urlsplit(url).netloc)
        for _ in range(2):
            connection.request("GET", "/live")
            assert connection.getresponse().read()
        connection.close()
        assert get(f"{url}/live")[0] == 200


def test_a_port_in_use_is_refused_with_the_options() -> None:
    with serving(HOST, 0, "--health-port", {}) as url:
        port = urlsplit(url).port
        assert port is not None
        with (
            pytest.raises(
                ConfigurationError,
                match=r"in use; pass another --health-port or --host",
            ),
            serving(HOST, port, "--health-port", {}),
        ):
            pass
