"""Test what ``consume`` and ``produce`` show on a terminal while they run."""

from __future__ import annotations

import json
import signal
import subprocess

from kinesumer.testing import EmbeddedAws
from tests.integration.ops.cli.conftest import (
    COMMAND,
    CONSUME,
    Starter,
    finished,
    lines,
)
from tests.support.terminal import Terminal


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
