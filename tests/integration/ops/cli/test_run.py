"""Test ``kinesumer run`` with real processes: one, several, and those that die."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinesumer.ops.cli.main import cli
from kinesumer.ops.cli.run import run as run_command
from kinesumer.testing import EmbeddedAws
from tests.support.cli import Process, Run, Starter, error_text, finished, lines
from tests.support.clock import wait_until
from tests.support.ports import free_port
from tests.support.promql import evaluate, is_of_client, panel_queries, read_scrape

pytestmark = pytest.mark.process

APP = """
import os
from collections.abc import AsyncIterator
from typing import Annotated

from kinesumer import App, Config, Depends, Record


async def open_pool() -> AsyncIterator[str]:
    yield "pool"
    print("closed", flush=True)


# A killed process is replaced when its lease is over.
QUICK = Config(
    heartbeat_interval_seconds=0.5,
    lease_duration_seconds=3.0,
    leader_interval_seconds=0.2,
    rebalance_delay_seconds=0.2,
)
app = App("billing", streams=["orders"], config=QUICK, start="TRIM_HORIZON")
VERSION = 1


@app.handler("orders")
async def on_order(record: Record, db: Annotated[str, Depends(open_pool)]) -> None:
    print(record.data.decode(), os.getpid(), record.fence.epoch, VERSION, flush=True)


async def main(client):
    await client.run("orders", print, batch=False, start="TRIM_HORIZON")


def loop(client):
    for record in client.consume("orders", start="TRIM_HORIZON"):
        print(record.data.decode(), os.getpid(), 0, VERSION, flush=True)


async def stuck(client):
    import signal
    import time

    print("stuck", os.getpid(), flush=True)
    while True:
        time.sleep(0.1)
"""
SHARDS = 4


@pytest.fixture
def app(
    aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> EmbeddedAws:
    """Write an application into the working directory, and create its stream."""
    aws.create_table()
    aws.create_stream("orders", SHARDS)
    (tmp_path / "shop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    # Each line is written at once then, so that the lines of processes don't mix.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return aws


class Seen:
    """What the processes of a run print about their records."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.counts: Counter[str] = Counter()
        # The ids of the processes that have had records.
        self.pids: set[int] = set()
        self.versions: set[str] = set()

    def read(self, count: int = 1) -> None:
        """Read the lines of so many records."""
        for line in lines(self._process, count):
            data, pid, _, version = line.decode().split()
            self.counts[data] += 1
            self.pids.add(int(pid))
            self.versions.add(version)


def put(aws: EmbeddedAws, first: int, stop: int) -> set[str]:
    """Put numbered records with many keys; return their data."""
    numbers = range(first, stop)
    for number in numbers:
        aws.put("orders", b"%d" % number, f"customer {number}")
    return {str(number) for number in numbers}


def stop(process: Process, number: signal.Signals = signal.SIGTERM) -> list[str]:
    """Stop a run, which must end well. Return the rest of its output."""
    process.send_signal(number)
    output, errors = finished(process)
    assert process.returncode == 0, errors
    return output.decode().splitlines()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:  # nothing listens yet
        return 0, ""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- one process ---


def test_an_app_runs_in_the_process_of_the_command_until_a_signal(
    app: EmbeddedAws, start: Starter
) -> None:
    put(app, 0, 10)
    process = start("run", "shop:app")
    seen = Seen(process)
    seen.read(10)
    assert seen.pids == {process.pid}
    assert stop(process, signal.SIGINT) == ["closed"]


def test_a_plain_function_gets_a_blocking_client(
    app: EmbeddedAws, start: Starter
) -> None:
    put(app, 0, 10)
    process = start("run", "shop:loop", "--app=billing", "--client-id=one")
    Seen(process).read(10)
    assert stop(process) == []


def test_the_ports_tell_of_a_single_process(app: EmbeddedAws, start: Starter) -> None:
    put(app, 0, 10)
    health, metrics = free_port(), free_port()
    ports = f"--health-port={health}", f"--metrics-port={metrics}"
    process = start("run", "shop:app", "--client-id=one", *ports)
    Seen(process).read(10)
    wait_until(lambda: get(health, "/ready")[0] == 200, "it is ready")
    found = json.loads(get(health, "/live")[1])
    assert [each["client_id"] for each in found["processes"]] == ["one"]
    wait_until(lambda: processed(metrics) == {"0": 10}, "all are counted")
    stop(process)


def processed(port: int) -> dict[str, float]:
    """Return how many records each process has, according to its metrics."""
    families = text_string_to_metric_families(get(port, "/metrics")[1])
    return {
        sample.labels["process"]: sample.value
        for family in families
        if family.name == "messaging_client_consumed_messages"
        for sample in family.samples
    }


def test_a_probe_is_answered_while_the_application_is_imported(
    app: EmbeddedAws, start: Starter, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(1e6)")
    one, two = free_port(), free_port()
    start("run", "slow:app", f"--health-port={one}")
    start("run", "slow:app", f"--health-port={two}", "--processes=2")
    wait_until(lambda: "it starts" in get(one, "/live")[1], "one process tells so")
    wait_until(lambda: "it starts" in get(two, "/live")[1], "two processes tell so")
    for port in (one, two):
        assert (get(port, "/live")[0], get(port, "/ready")[0]) == (200, 503)


# --- several processes ---


def test_two_processes_share_the_records_and_leave_at_a_signal(
    app: EmbeddedAws, start: Starter
) -> None:
    health, metrics = free_port(), free_port()
    ports = f"--health-port={health}", f"--metrics-port={metrics}"
    process = start("run", "shop:app", "--processes=2", "--client-id=c", *ports)
    wait_until(lambda: get(health, "/ready")[0] == 200, "both are ready")
    found = json.loads(get(health, "/ready")[1])["processes"]
    assert [each["client_id"] for each in found] == ["c-0", "c-1"]
    expected = put(app, 0, 100)
    seen = Seen(process)
    seen.read(100)
    assert seen.counts == Counter(expected)
    assert len(seen.pids) == 2
    wait_until(lambda: sum(processed(metrics).values()) == 100, "all are counted")
    assert min(processed(metrics).values()) > 0
    scrape = read_scrape(get(metrics, "/metrics")[1])
    of_clients = [query for query in panel_queries() if is_of_client(query)]
    assert of_clients
    assert all(evaluate(query, scrape) for query in of_clients)
    assert stop(process) == ["closed", "closed"]
    assert not any(map(is_alive, seen.pids))
    # All positions were stored: the next process goes on after them.
    later = put(app, 100, 110)
    process = start("run", "shop:app")
    seen = Seen(process)
    seen.read(10)
    assert seen.counts == Counter(later)
    stop(process)


def test_a_killed_process_starts_again_with_its_id(
    app: EmbeddedAws, start: Starter
) -> None:
    metrics = free_port()
    port = f"--metrics-port={metrics}"
    process = start("run", "shop:app", "--processes=2", "--client-id=c", port)
    seen = Seen(process)
    expected, number = set[str](), 0
    while len(seen.pids) < 2:
        expected |= put(app, number, number + 8)
        seen.read(8)
        number += 8
    killed = min(seen.pids)
    os.kill(killed, signal.SIGKILL)
    seen.pids.discard(killed)
    while len(seen.pids) < 2:
        expected |= put(app, number, number + 8)
        number += 8
        while expected - seen.counts.keys():
            seen.read()
    restarts = 'kinesumer_process_restarts_total{process="%d"} 1.0'
    text = get(metrics, "/metrics")[1]
    assert sum(restarts % number in text for number in range(2)) == 1
    process.send_signal(signal.SIGTERM)
    _, errors = finished(process)
    assert process.returncode == 0, errors
    assert b"was ended by SIGKILL; it starts again in 1 s" in errors


def test_processes_leave_when_their_supervisor_is_killed(
    app: EmbeddedAws, start: Starter
) -> None:
    process = start("run", "shop:app", "--processes=2")
    seen, number = Seen(process), 0
    while len(seen.pids) < 2:
        put(app, number, number + 8)
        seen.read(8)
        number += 8
    process.kill()
    assert lines(process, 2) == [b"closed\n"] * 2
    wait_until(lambda: not any(map(is_alive, seen.pids)), "both have ended")


def test_a_second_signal_kills_all_processes(app: EmbeddedAws, start: Starter) -> None:
    process = start("run", "shop:stuck", "--app=a", "--processes=2")
    pids = [int(line.split()[1]) for line in lines(process, 2)]
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while b"stopping: " not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGTERM)
    finished(process)
    assert process.returncode == 128 + signal.SIGINT
    assert not any(map(is_alive, pids))


def test_an_application_that_cannot_start_ends_the_supervisor_with_its_status(
    app: EmbeddedAws, start: Starter
) -> None:
    process = start("run", "shop:missing", "--processes=2", "--log-format=json")
    _, errors = finished(process)
    assert process.returncode == 2
    found = [json.loads(line) for line in errors.splitlines()]
    assert {line["level"] for line in found} == {"INFO", "WARNING", "CRITICAL", "ERROR"}
    assert found[-1]["message"].endswith("can't be started: the application ends")
    texts = [line for line in found if line["level"] == "CRITICAL"]
    assert texts[0]["message"].startswith("module shop has no attribute missing")
    assert texts[0]["process"] in (0, 1)


# --- reload ---


def test_a_changed_file_starts_the_application_again(
    app: EmbeddedAws, start: Starter, tmp_path: Path
) -> None:
    put(app, 0, 5)
    process = start("run", "shop:app", "--reload")
    seen = Seen(process)
    seen.read(5)
    (tmp_path / "shop.py").write_text("mistake = ")
    assert lines(process, 1) == [b"closed\n"]
    assert process.stderr is not None
    while b"ended with status 2" not in process.stderr.readline():
        pass
    (tmp_path / "shop.py").write_text(APP.replace("VERSION = 1", "VERSION = 'two'"))
    put(app, 5, 10)
    seen.read(5)
    assert seen.counts == Counter(map(str, range(10)))
    assert seen.versions == {"1", "two"}
    assert stop(process) == ["closed"]


# --- options ---


def test_every_option_can_be_given_by_the_environment() -> None:
    without = {
        option.name
        for option in [*run_command.params, *cli.params]
        if not (getattr(option, "hidden", False) or option.envvar)
    }
    # The SDKs of AWS read the region. The target is an argument.
    assert without == {"target", "region", "debug", "version"}


def test_options_of_the_environment_are_not_passed_on_to_the_processes(
    app: EmbeddedAws, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = free_port()
    for name, value in {
        "PROCESSES": "2",
        "HEALTH_PORT": str(health),
        "APP": "audit",
        "CLIENT_ID": "c",
        "LOG_FORMAT": "json",
    }.items():
        monkeypatch.setenv(f"KINESUMER_{name}", value)
    process = start("run", "shop:app")
    wait_until(lambda: get(health, "/ready")[0] == 200, "both are ready")
    found = json.loads(get(health, "/ready")[1])["processes"]
    assert [each["client_id"] for each in found] == ["c-0", "c-1"]
    process.send_signal(signal.SIGTERM)
    _, errors = finished(process)
    assert process.returncode == 0, errors
    assert all(json.loads(line) for line in errors.splitlines())


def test_an_error_of_the_application_is_told_with_its_traceback(
    app: EmbeddedAws, start: Starter, tmp_path: Path
) -> None:
    (tmp_path / "failing.py").write_text("async def main(client): 1 / 0")
    process = start("run", "failing:main", "--app=a")
    _, errors = finished(process)
    assert process.returncode == 1
    assert b"the application has ended with an error" in errors
    assert errors.endswith(b"ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "pass MODULE:ATTRIBUTE, such as app:app"),
        (("shop:main",), "pass --app, or set KINESUMER_APP"),
        (("shop:app", "--client-id=a#b"), "--client-id='a#b' contains '#'"),
        (("shop:app", "--health-port=1", "--host=192.0.2.1"), "pass another --health"),
    ],
)
def test_wrong_use(
    app: EmbeddedAws, run: Run, arguments: tuple[str, ...], said: str
) -> None:
    assert said in error_text(run("run", *arguments), 2)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_metrics_without_their_extra_are_refused_before_anything_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    without = "kinesumer.ops.supervisor.metrics.find_spec"
    monkeypatch.setattr(without, lambda name: None)
    result = run("run", "shop:app", "--metrics-port=0", f"--processes={processes}")
    assert error_text(result, 2).endswith("pip install 'kinesumer[otel]'")


@pytest.mark.parametrize(
    "option",
    ["--processes=0", "--processes=257", "--health-port=65536", "--log-format=xml"],
)
def test_options_out_of_range_are_refused(run: Run, option: str) -> None:
    result = run("run", "shop:app", option)
    assert result.exit_code == 2
    assert "Invalid value for" in result.stderr
