"""Test what ``consume`` and ``tail`` write, and how they end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support import lease_table
from tests.support.cli import (
    COMMAND,
    CONSUME,
    Process,
    Run,
    Starter,
    consuming,
    finished,
    lines,
    report,
)
from tests.support.clock import PATIENCE_SECONDS
from tests.support.lease_table import (
    LEASES,
    go_checkpoint,
    go_client,
    go_shard_cache,
    lease,
    put,
)

TAIL = ("tail", "orders", "--start=TRIM_HORIZON")
EACH = pytest.mark.parametrize("command", [CONSUME, TAIL], ids=["consume", "tail"])
DATA = sorted(b"order %d\n" % number for number in range(10))

pytestmark = pytest.mark.process


def stop(process: Process) -> tuple[bytes, bytes]:
    """Stop a process gracefully. Return the rest of its output and errors."""
    process.send_signal(signal.SIGTERM)
    rest = finished(process)
    assert process.returncode == 0, rest
    return rest


def close_output(process: Process) -> None:
    """Close a process's standard output. Check that it ends without an error text."""
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.wait(PATIENCE_SECONDS), process.stderr.read()) == (0, b"")


def errors_until(process: Process, text: bytes) -> bytes:
    """Return a process's errors up to the first line that has this text."""
    assert process.stderr is not None
    errors = b""
    while text not in errors:
        line = process.stderr.readline()
        assert line, errors
        errors += line
    return errors


# --- formats --------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "epoch"), [(CONSUME, 1), (TAIL, 0)])
def test_each_record_is_one_json_object_until_a_signal_ends_the_command(
    orders: EmbeddedAws, start: Starter, command: tuple[str, ...], epoch: int
) -> None:
    arn = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
    orders.put(arn, b"\xff\x00", "binary", explicit_hash_key=0)
    process = start(*command)
    records = [json.loads(line) for line in lines(process, 11)]
    binary = next(r for r in records if "data" not in r)
    assert {r["data"] for r in records if r is not binary} == {
        f"order {number}" for number in range(10)
    }
    assert binary == {
        "stream": "orders",
        "stream_arn": arn,
        "shard_id": "shardId-000000000000",
        "sequence_number": binary["sequence_number"],
        "sub_sequence_number": None,
        "partition_key": "binary",
        "explicit_hash_key": None,
        "arrived_at": binary["arrived_at"],
        "epoch": epoch,
        "data_base64": "/wA=",
    }
    rest, errors = stop(process)
    assert (rest, bool(errors)) == (b"", command is CONSUME)


def test_a_print_from_anywhere_is_harmless(orders: EmbeddedAws) -> None:
    """Output of other code, even C code and metrics, goes to standard error."""
    program = (
        "import os, kinesumer.ops.cli.record_output as f\n"
        "real = f.as_json\n"
        "def noisy(record):\n"
        "    print('from python'); os.write(1, b'from the system\\n')\n"
        "    return real(record)\n"
        "f.FORMATS['jsonl'] = lambda: f.LineFormat(noisy)\n"
        "from kinesumer.ops.cli.main import main\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [COMMAND[0], "-c", program, *CONSUME, "--metrics-console"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    found = lines(process, 10)
    rest, errors = stop(process)
    assert all(json.loads(line)["stream"] == "orders" for line in found)
    assert rest == b""
    assert errors.count(b"from python") == errors.count(b"from the system") == 10
    assert b'"name": "messaging.client.consumed.messages"' in errors


# --- the end --------------------------------------------------------------------------


def test_the_first_signal_leaves_and_commits_and_its_copy_soon_after_is_ignored(
    orders: EmbeddedAws, start: Starter, run: Run
) -> None:
    """`timeout` signals a process and its group, so the signal arrives twice."""
    process = start(*CONSUME, "--output=count")
    assert b" records, " in lines(process, 1)[0]
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)  # two pending signals would arrive as one
    rest, errors = finished(process)
    assert process.returncode == 0
    assert rest.splitlines()[-1].startswith(b"10 records in ")
    assert (b"leaving" in errors, b"stopping now" in errors) == (True, False)
    left = report(run("status", "--app=a", "--json"))
    assert left["members"] == []
    assert left["streams"][0]["millis_behind_latest"] == 0
    assert all(shard["sequence_number"] for shard in left["streams"][0]["shards"])


def test_another_signal_stops_at_once(orders: EmbeddedAws, start: Starter) -> None:
    process = consuming(start, "--start=2020-01-01T00:00:00Z")
    process.send_signal(signal.SIGINT)
    errors_until(process, b"leaving")
    assert b"stopping now" in stop(process)[1]


@EACH
def test_an_output_that_is_closed_before_the_first_record_ends_the_command(
    orders: EmbeddedAws, start: Starter, command: tuple[str, ...]
) -> None:
    close_output(start(*command))


def test_consume_releases_its_shards_when_its_output_is_closed(
    orders: EmbeddedAws, run: Run
) -> None:
    """The next check of the output comes while the client stops."""
    program = (
        "import asyncio, kinesumer, kinesumer.ops.cli.record_output as f\n"
        "check, end = f.Output.check, kinesumer.Kinesumer.__aexit__\n"
        "async def slow(self, *error):\n"
        "    f.Output.check = check\n"
        "    await asyncio.sleep(0.5)\n"
        "    await end(self, *error)\n"
        "f.TICK_SECONDS, f.Output.check = 0.05, lambda self: None\n"
        "kinesumer.Kinesumer.__aexit__ = slow\n"
        "from kinesumer.ops.cli.main import main\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [COMMAND[0], "-c", program, *CONSUME], stdout=subprocess.PIPE
    )
    lines(process, 10)
    assert process.stdout is not None
    process.stdout.close()
    orders.put("orders", b"one more", "key")
    assert process.wait(PATIENCE_SECONDS) == 0
    assert report(run("status", "--app=a", "--json"))["members"] == []


def test_consume_ends_at_its_limit_and_the_next_start_continues(
    orders: EmbeddedAws, start: Starter
) -> None:
    counts = []
    for limit in (3, 7):
        output, _ = finished(start(*CONSUME, f"--limit={limit}", "--output=text"))
        counts.append(output.splitlines())
    assert [len(found) for found in counts] == [3, 7]
    assert sorted(counts[0] + counts[1]) == [line.rstrip() for line in DATA]


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ([TAIL[2], "--limit=3", "--output=text"], "order \\d\n" * 3),
        (["--seconds=0.2", "--output=count"], r"0 records in 0\.\d s\n"),
    ],
)
def test_tail_ends_at_its_limit_or_after_its_seconds(
    orders: EmbeddedAws,
    run: Run,
    capfd: pytest.CaptureFixture[str],
    options: list[str],
    output: str,
) -> None:
    result = run("tail", "orders", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(output, capfd.readouterr().out)


def test_an_unreachable_collector_does_not_fail_consume(
    orders: EmbeddedAws, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert b"Failed to export" in stop(consuming(start, "--otlp"))[1]


# --- streams of other accounts --------------------------------------------------------


@pytest.fixture
def payments(orders: EmbeddedAws) -> tuple[str, ...]:
    """Create another account's stream. Return its ARN and the options to read it."""
    account = "210987654321"
    arn = orders.create_stream("payments", account=account)
    role = orders.create_role("reader", account=account, external_id="agreed")
    orders.put(arn, b"before", "key")
    options = (f"--role=payments={role.arn}", "--external-id=agreed", "--output=text")
    return arn, *options


@EACH
def test_reading_until_now_ends_with_the_records_of_all_shards(
    orders: EmbeddedAws,
    run: Run,
    capfd: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    orders.split("orders", orders.open_shards("orders")[0])
    orders.put("orders", b"after the split", explicit_hash_key=0)
    result = run(*command, "--until=now", "--output=text")
    assert result.exit_code == 0, result.output
    assert len(capfd.readouterr().out.splitlines()) == 11
    assert run(*command, "--until=tomorrow").exit_code == 2


def test_tail_follows_a_split_with_a_role_until_its_output_is_closed(
    orders: EmbeddedAws, start: Starter, payments: tuple[str, ...]
) -> None:
    arn = payments[0]
    process = start("tail", *payments, TAIL[2])
    assert lines(process, 1) == [b"before\n"]
    orders.split(arn, orders.open_shards(arn)[0])
    orders.put(arn, b"after", "key")
    assert lines(process, 1) == [b"after\n"]
    close_output(process)


def test_consume_takes_a_role_for_each_stream_until_its_output_is_closed(
    start: Starter, payments: tuple[str, ...]
) -> None:
    process = start(*CONSUME, *payments)
    assert sorted(lines(process, 11)) == [b"before\n", *DATA]
    close_output(process)


# --- after Kinesumer for Go -----------------------------------------------------------

S0, LOW, HIGH = (f"shardId-00000000000{number}" for number in range(3))
MINUTES_AGO = 600.0
CONTINUE = ("consume", "orders", "--app=billing")


@pytest.fixture
def table(aws: EmbeddedAws) -> EmbeddedAws:
    """Create the table and the stream that Go clients used."""
    aws.create_table()
    aws.create_stream("orders")
    return aws


def test_a_client_continues_from_a_stopped_go_fleet(
    table: EmbeddedAws, start: Starter
) -> None:
    numbers = [table.put("orders", text.encode())[1] for text in "abc"]
    table.split("orders", S0)
    then = time.time() - MINUTES_AGO
    first = table.put("orders", b"d", explicit_hash_key=0)[1]
    put(
        table,
        go_client("billing", "host-7kQxZt", then),
        go_shard_cache("billing", "orders", LOW, HIGH),
        # The Go client left the parent unfinished, and then began at the child's tip.
        go_checkpoint("billing", "orders", S0, numbers[1], then),
        go_checkpoint("billing", "orders", LOW, first, then),
        go_checkpoint("another", "orders", HIGH, "9", then),
    )
    table.put("orders", b"e", explicit_hash_key=0)
    table.put("orders", b"f", explicit_hash_key=1 << 127)
    process = start(*CONTINUE, "--start=LATEST")
    found = [json.loads(line) for line in lines(process, 3)]
    assert found[0]["data"] == "c"
    assert {record["data"] for record in found} == {"c", "e", "f"}


@pytest.fixture
def closed(aws: EmbeddedAws) -> str:
    """Split the only shard, put a record after it, and return its ending number."""
    aws.create_table()
    aws.create_stream("orders")
    aws.put("orders", b"parent's")
    aws.split("orders", S0)
    aws.put("orders", b"child's")
    [stream] = aws._state.kinesis.streams.values()
    number = stream.shards[S0].shard.ending_sequence_number
    assert number is not None
    return number


def test_a_seek_to_the_ending_number_lets_the_children_be_read(
    closed: str, aws: EmbeddedAws, run: Run, start: Starter
) -> None:
    lease_table.create(aws, lease(S0, "TRIM_HORIZON"))
    kcl = ("kcl", LEASES, "--stream=orders", "--look=0")
    assert run("import", *kcl, "--app=a", "--yes").exit_code == 0
    shard = ("--stream=orders", f"--shard={S0}")
    moved = run("seek", "--app=a", *shard, "--to", closed, "--yes")
    assert moved.exit_code == 0, moved.output
    [stream] = report(run("verify", "--app=a", "--json"))["streams"]
    verdicts = {shard["shard_id"]: shard["verdict"] for shard in stream["shards"]}
    assert verdicts[S0] == "at the end"
    assert b"child's" in lines(start(*CONSUME), 1)[0]


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "--app=a", "--verbose"),
        ("seek", "--app=a", "--all", "--to=TRIM_HORIZON", "--dry-run"),
        ("tail", "orders", "--start=TRIM_HORIZON", "--limit=10", "--output=count"),
    ],
    ids=lambda command: command[0],
)
def test_commands_report_the_same_if_no_answer_has_an_iterator(
    stopped_app: EmbeddedAws, run: Run, command: tuple[str, ...]
) -> None:
    expected = run(*command)
    assert expected.exit_code == 0, expected.output
    stopped_app.fault("no_iterator", operation="GetRecords")
    found = run(*command)
    assert (found.exit_code, found.stdout) == (0, expected.stdout)
