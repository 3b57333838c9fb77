"""``init``, ``consume``, ``status`` and ``local`` as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cli.conftest import COMMAND, TIMEOUT_SECONDS, finished, lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Process, Run

CONSUME = ["consume", "orders", "--app=a", "--start=TRIM_HORIZON"]

pytestmark = pytest.mark.process


def test_init_creates_the_table_and_then_verifies_it(
    aws: EmbeddedAws, run: Run
) -> None:
    first = json.loads(run("init", "--json").output)
    assert first == {
        "table": "kinesumer-state-store",
        "region": "us-east-1",
        "table_id": first["table_id"],
        "created": True,
    }
    assert json.loads(run("init", "--json").output) == {**first, "created": False}
    assert "exists and can be used" in run("init").output


def test_consume_writes_each_record_as_one_json_object(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
    orders.put(arn, b"\xff\x00", "binary", explicit_hash_key=0)
    process = start(*CONSUME)
    records = [json.loads(line) for line in lines(process, 11)]
    assert {r.get("data") for r in records} == {
        None,
        *(f"order {number}" for number in range(10)),
    }
    binary = next(r for r in records if "data" not in r)
    assert binary == {
        "stream": "orders",
        "stream_arn": arn,
        "shard_id": "shardId-000000000000",
        "sequence_number": binary["sequence_number"],
        "sub_sequence_number": None,
        "partition_key": "binary",
        "explicit_hash_key": None,
        "arrived_at": binary["arrived_at"],
        "epoch": 1,
        "data_base64": "/wA=",
    }


def test_the_text_format_writes_only_the_data(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    found = lines(start(*CONSUME, "--output=text"), 10)
    assert sorted(found) == sorted(b"order %d\n" % number for number in range(10))


def test_the_count_format_writes_the_number_of_records(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    process = start(*CONSUME, "--output=count")
    assert b" records, " in lines(process, 1)[0]
    process.send_signal(signal.SIGTERM)
    assert finished(process)[0].splitlines()[-1].startswith(b"10 records in ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_leaves_and_commits(
    orders: EmbeddedAws,
    start: Callable[..., Process],
    run: Run,
    number: signal.Signals,
) -> None:
    process = start(*CONSUME)
    lines(process, 10)
    process.send_signal(number)
    rest, errors = finished(process)
    assert (process.returncode, rest) == (0, b"")
    assert b"leaving" in errors
    left = json.loads(run("status", "--app=a", "--json").output)
    assert left["members"] == []
    assert left["streams"][0]["millis_behind_latest"] == 0
    assert all(shard["sequence_number"] for shard in left["streams"][0]["shards"])


def told_to_leave(start: Callable[..., Process], number: signal.Signals) -> Process:
    """Return a consuming process that leaves."""
    process = start(*CONSUME)
    lines(process, 10)
    process.send_signal(number)
    while b"leaving" not in error_line(process):
        pass
    return process


def test_the_second_signal_stops_at_once(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    process = told_to_leave(start, signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, errors = finished(process)
    assert process.returncode == 0
    assert b"stopping now" in errors


def test_a_signal_to_the_process_and_its_group_counts_once(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    process = told_to_leave(start, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    _, errors = finished(process)
    assert process.returncode == 0
    assert b"stopping now" not in errors


def test_a_closed_pipe_ends_the_command_quietly(orders: EmbeddedAws) -> None:
    command = " ".join([*COMMAND, *CONSUME])
    done = subprocess.run(
        f"{command} --output=text | head -n 1",
        shell=True,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    assert done.stdout.startswith(b"order ")
    assert done.stderr == b""


def test_a_closed_pipe_is_noticed_without_another_record(
    aws: EmbeddedAws, start: Callable[..., Process]
) -> None:
    aws.create_table()
    aws.create_stream("orders")
    aws.put("orders", b"the only one")
    process = start(*CONSUME)
    lines(process, 1)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(TIMEOUT_SECONDS) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_print_from_anywhere_is_harmless(orders: EmbeddedAws) -> None:
    """Prints of other code go to standard error, also those of C code."""
    program = (
        "import os, kinesumer.cli.record_output as f\n"
        "real = f.as_json\n"
        "def noisy(record):\n"
        "    print('from python'); os.write(1, b'from the system\\n')\n"
        "    return real(record)\n"
        "f.FORMATS['jsonl'] = lambda: f.LineFormat(noisy)\n"
        "from kinesumer.cli.main import main\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [COMMAND[0], "-c", program, *CONSUME],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    found = lines(process, 10)
    process.send_signal(signal.SIGTERM)
    rest, errors = finished(process)
    assert all(json.loads(line)["stream"] == "orders" for line in found)
    assert rest == b""
    assert errors.count(b"from python") == errors.count(b"from the system") == 10


def test_console_metrics_go_to_standard_error(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    process = start(*CONSUME, "--metrics-console", "--output=text")
    lines(process, 10)
    process.send_signal(signal.SIGTERM)
    rest, errors = finished(process)
    assert (process.returncode, rest) == (0, b"")
    assert b'"name": "kinesumer.records_processed"' in errors


def test_an_unreachable_collector_does_not_fail_consume(
    orders: EmbeddedAws,
    start: Callable[..., Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    process = start(*CONSUME, "--otlp", "--output=text")
    lines(process, 10)
    process.send_signal(signal.SIGTERM)
    _, errors = finished(process)
    assert process.returncode == 0
    assert b"Failed to export" in errors


def test_status_shows_clients_and_their_shards(
    orders: EmbeddedAws, start: Callable[..., Process], run: Run
) -> None:
    lines(start(*CONSUME, "--client-id=one", "--label=zone-a"), 10)
    found = json.loads(run("status", "--app=a", "--json").output)
    assert found["leader"] == "one"
    assert [m["client_id"] for m in found["members"]] == ["one"]
    assert found["members"][0]["stalled"] is False
    assert found["members"][0]["label"] == "zone-a"
    assert found["streams"][0]["retention_hours"] == 24
    assert found["streams"][0]["states"] == {"owned": 2}
    text = run("status", "--app=a").output
    assert "shardId-000000000001" in text
    assert "leader" in text


def test_status_shows_everything_but_the_lag_without_a_role(
    orders: EmbeddedAws, start: Callable[..., Process], run: Run
) -> None:
    account = "210987654321"
    arn = orders.create_stream("orders", account=account)
    role = orders.create_role("reader", account=account)
    orders.put(arn, b"x")
    arguments = ["--role", role.arn, "--app=b", "--start=TRIM_HORIZON"]
    lines(start("consume", arn, *arguments), 1)
    found = json.loads(run("status", "--app=b", "--json").output)
    stream = found["streams"][0]
    assert stream["states"] == {"owned": 1}
    assert "access denied: kinesis:DescribeStreamSummary" in stream["lag_problem"]
    assert any("lag unknown: access denied" in text for text in found["problems"])
    quiet = json.loads(run("status", "--app=b", "--json", "--no-lag").output)
    assert quiet["problems"] == []
    assert quiet["streams"][0]["millis_behind_latest"] is None


def test_status_shows_a_stalled_client(
    orders: EmbeddedAws, start: Callable[..., Process], run: Run
) -> None:
    process = start(*CONSUME, "--client-id=hung")
    lines(process, 10)
    process.send_signal(signal.SIGSTOP)
    try:
        found = json.loads(run("status", "--app=a", "--json").output)
    finally:
        process.send_signal(signal.SIGCONT)
    assert found["members"][0]["stalled"] is True
    assert any("hung looks stalled" in text for text in found["problems"])


def test_status_repeats_until_a_signal(
    orders: EmbeddedAws, start: Callable[..., Process], run: Run
) -> None:
    consumer = start(*CONSUME)
    lines(consumer, 10)
    watching = start("status", "--app=a", "--json", "--watch")
    first, second = (json.loads(line) for line in lines(watching, 2))
    assert first["members"][0]["heartbeat"] < second["members"][0]["heartbeat"]
    watching.send_signal(signal.SIGINT)
    _, errors = finished(watching)
    assert (watching.returncode, errors) == (130, b"")


def test_status_survives_an_outage_of_the_table(
    orders: EmbeddedAws, start: Callable[..., Process]
) -> None:
    consumer = start(*CONSUME)
    lines(consumer, 10)
    watching = start("status", "--app=a", "--json", "--watch")
    lines(watching, 1)
    orders.outage(4.0)
    assert b"; trying again" in error_line(watching)
    lines(watching, 1)


def test_local_prints_its_environment_and_serves(
    start: Callable[..., Process],
) -> None:
    process = start("local")
    settings = exports(process)
    assert settings["AWS_DEFAULT_REGION"] == "us-east-1"
    environment = {**os.environ, **settings}
    subprocess.run([*COMMAND, "init"], env=environment, check=True)
    url = settings["AWS_ENDPOINT_URL"] + "/_kinesumer/health"
    assert json.loads(urllib.request.urlopen(url).read()) == {"status": "ok"}
    process.send_signal(signal.SIGINT)
    assert finished(process)[1] == b""
    assert process.returncode == 0


def test_local_names_a_port_in_use(
    aws: EmbeddedAws, start: Callable[..., Process]
) -> None:
    process = start("local", f"--port={aws.port}")
    _, errors = finished(process)
    assert process.returncode != 0
    assert errors.startswith(b"error: 127.0.0.1:%d can't be served" % aws.port)


def error_line(process: Process) -> bytes:
    assert process.stderr is not None
    return process.stderr.readline()


def exports(process: Process) -> dict[str, str]:
    """Return the variables that the process prints for a shell."""
    settings: dict[str, Any] = {}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        line = lines(process, 1)[0].decode().strip()
        if line.startswith("unset"):
            return settings
        name, _, value = line.removeprefix("export ").partition("=")
        settings[name] = value
    raise AssertionError(f"no end of the settings: {settings}")
