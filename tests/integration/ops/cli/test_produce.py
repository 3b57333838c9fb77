"""Test ``kinesumer produce`` with sample records, and what is shown while it runs."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

from kinesumer.testing import EmbeddedAws
from tests.support.cli import (
    COMMAND,
    CONSUME,
    Run,
    Starter,
    finished,
    lines,
)
from tests.support.clock import PATIENCE_SECONDS
from tests.support.terminal import Terminal


def consumed(start: Starter, limit: int) -> list[dict[str, str]]:
    """Return the records of the stream "orders", as ``kinesumer tail`` prints them."""
    tail = start("tail", "orders", "--start=TRIM_HORIZON", f"--limit={limit}")
    return [
        json.loads(line)
        for line in tail.communicate(timeout=PATIENCE_SECONDS)[0].splitlines()
    ]


def test_generated_orders_are_spread_over_the_shards_by_customer(
    aws: EmbeddedAws, run: Run, start: Starter
) -> None:
    aws.create_stream("orders", shards=4)
    result = run("produce", "orders", "--generate=5000/s", "--limit=200")
    assert result.exit_code == 0, result.stderr
    assert result.output.startswith("200 of 200 lines put as 200 records")
    records = consumed(start, 200)
    orders = [json.loads(record["data"]) for record in records]
    assert {order["order_id"] for order in orders} == set(range(1, 201))
    assert [order["customer"] for order in orders] == [
        record["partition_key"] for record in records
    ]
    assert len({record["shard_id"] for record in records}) == 4


def test_orders_are_generated_until_a_signal(aws: EmbeddedAws, start: Starter) -> None:
    aws.create_stream("orders")
    process = start("produce", "orders", "--generate=1000/s", "--json")
    while not aws.journal.latest or aws.journal.latest[-1].operation != "PutRecords":
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    report = json.loads(process.communicate(timeout=PATIENCE_SECONDS)[0])
    assert process.returncode == 0
    assert report["records"] == report["lines"] > 0


def test_lines_need_no_keys_for_a_stream_with_auto(
    aws: EmbeddedAws, run: Run, start: Starter, tmp_path: Path
) -> None:
    aws.create_stream("orders", 2, mode="ON_DEMAND", distribution="AUTO")
    path = tmp_path / "lines"
    path.write_text('{"data": "1"}\n{"data": "2", "partition_key": "k"}\n')
    assert run("produce", "orders", str(path), "--key=none").exit_code == 0
    assert run("produce", "orders", str(path), "--input=jsonl").exit_code == 0
    keys = [record["partition_key"] for record in consumed(start, 4)]
    assert sorted(keys, key=str) == [None, None, None, "k"]
    aws.change_stream("orders", distribution="USER_PARTITION_KEY")
    result = run("produce", "orders", str(path), "--input=jsonl")
    assert result.exit_code == 1
    expected = "not put: line 1: partition_key is null, but the stream distributes"
    assert result.stderr.startswith(expected)
    assert result.stdout.startswith("1 of 2 lines put as 1 record")


def test_consume_says_on_a_terminal_what_it_waits_for(
    aws: EmbeddedAws, start: Starter
) -> None:
    aws.create_table()
    aws.create_stream("orders", shards=2)
    with Terminal([*COMMAND, *CONSUME], subprocess.PIPE) as shown:
        piped = start("consume", "orders", "--app=b", "--start=TRIM_HORIZON")
        shown.until("waiting for records from orders… (client one, 2 shards)")
        aws.put("orders", b"{}", "key")
        for process in (shown.process, piped):
            [line] = lines(process, 1)
            assert json.loads(line)["data"] == "{}"
            process.send_signal(signal.SIGTERM)
        assert finished(piped)[1].startswith(b"leaving: ")
        shown.until("leaving: ")
        finished(shown.process)


def test_produce_counts_sample_records_on_a_terminal(aws: EmbeddedAws) -> None:
    aws.create_stream("orders")
    command = [*COMMAND, "produce", "orders", "--generate=100/s"]
    with Terminal(command, subprocess.PIPE) as shown:
        shown.until(" records made (Ctrl-C ends) … 1 s")
        shown.process.send_signal(signal.SIGINT)
        assert b" lines put as " in finished(shown.process)[0]
