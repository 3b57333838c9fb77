"""Test ``kinesumer dashboard``, ``metrics`` and ``local`` as processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from typing import IO, Any

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.cli import Run, Starter, error_text, finished, lines

pytestmark = pytest.mark.process


# --- dashboard ------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--allow-changes", "--browse-records"])
def test_dashboard_serves_until_a_signal(
    aws: EmbeddedAws, start: Starter, option: str
) -> None:
    aws.create_table()
    process = start("dashboard", "--app=a", option)
    (line,) = lines(process, 1)
    link = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)#token=[\w-]{43}\n", line.decode())
    assert link is not None
    url = link[1]
    assert "<title>kinesumer</title>" in scrape(url)
    with urllib.request.urlopen(f"{url}states") as answer:
        assert answer.readline() == b"retry: 1000\n"
        answer.readline()
        assert answer.readline().startswith(b'data: {"info":{"app":"a"')
        process.send_signal(signal.SIGINT)
        assert finished(process) == (b"", b"")
    assert process.returncode == 0


def test_a_dashboard_that_starts_in_an_outage_shows_it_and_recovers(
    aws: EmbeddedAws, start: Starter
) -> None:
    aws.create_table()
    outage = aws.fault("refuse", service="dynamodb")
    url = lines(start("dashboard", "--app=a"), 1)[0].decode().strip()
    with urllib.request.urlopen(f"{url}states") as answer:
        trouble = next_state(answer)["trouble"]
        assert trouble.startswith("dynamodb:Query on table kinesumer-state-store: ")
        assert trouble.endswith("; check the endpoint, the region and the network")
        assert aws.url in trouble
        aws.clear_faults(outage)
        while next_state(answer)["trouble"] is not None:
            pass


def next_state(answer: IO[bytes]) -> dict[str, Any]:
    """Return the next state that the dashboard sends to its page."""
    while not (line := answer.readline()).startswith(b"data: "):
        assert line, "the states ended"
    state: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    return state


# --- metrics --------------------------------------------------------------------------


def test_metrics_that_start_in_an_outage_say_that_the_app_is_down(
    aws: EmbeddedAws, start: Starter
) -> None:
    aws.create_table()
    aws.fault("refuse", service="dynamodb")
    process = start("metrics", "--app=a", "--listen=127.0.0.1:0")
    url = lines(process, 1)[0].decode().split()[-1]
    assert 'kinesumer_group_up{app="a"} 0.0' in scrape(url)


def scrape(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def test_scrapes_are_served_from_one_read_until_a_signal(
    aws: EmbeddedAws, start: Starter
) -> None:
    aws.create_table()
    process = start("metrics", "--app=a", "--listen=127.0.0.1:0", "--every=3600")
    url = lines(process, 1)[0].decode().split()[-1]
    for _ in range(20):
        text = scrape(url)
    assert 'kinesumer_group_reads_total{app="a"} 1.0' in text
    assert "# TYPE kinesumer_group_lag_seconds gauge" in text
    process.send_signal(signal.SIGTERM)
    assert finished(process)[1] == b""
    assert process.returncode == 0


def test_a_new_app_has_no_members(aws: EmbeddedAws, run: Run) -> None:
    aws.create_table()
    result = run("metrics", "--app", "new", "--app", "other", "--once")
    assert 'kinesumer_group_members{app="new",state="up"} 0.0' in result.output
    assert 'kinesumer_group_up{app="other"} 1.0' in result.output


# --- the embedded AWS, and ports in use -----------------------------------------------


def test_local_prints_its_environment_and_serves(
    start: Starter, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start("local")
    while not (line := lines(process, 1)[0].decode().strip()).startswith("unset"):
        name, _, value = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value)
    assert os.environ["AWS_DEFAULT_REGION"] == "us-east-1"
    assert run("init").exit_code == 0
    url = os.environ["AWS_ENDPOINT_URL"] + "/_kinesumer/health"
    assert json.loads(scrape(url)) == {"status": "ok"}
    process.send_signal(signal.SIGINT)
    assert finished(process)[1] == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("dashboard --app=a --port={}", "give another --port"),
        ("metrics --app=a --listen=127.0.0.1:{}", "can't listen on --listen 127.0.0.1"),
        ("local --port={}", "can't listen on 127.0.0.1"),
    ],
)
def test_a_port_in_use_is_wrong_use(
    aws: EmbeddedAws, run: Run, arguments: str, problem: str
) -> None:
    aws.create_table()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run(*arguments.format(port).split())
    assert problem in error_text(result, 2)
    assert port in result.stderr
