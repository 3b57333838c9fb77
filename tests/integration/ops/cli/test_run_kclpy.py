"""Test ``kinesumer run --kclpy`` with a program for amazon_kclpy, in real processes."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.cli import Process, Run, Starter, error_text, finished, lines

pytestmark = pytest.mark.process

# It knows nothing of kinesumer: it is written as amazon_kclpy's guide shows it.
PROGRAM = """
import os
import sys
import time

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class RecordProcessor(processor.RecordProcessorBase):
    def __init__(self):
        self._shard = None

    def say(self, text):
        # One write for a line, since the threads of several shards write.
        os.write(1, f"{self._shard[-1]} {os.getpid()} {text}\\n".encode())

    def initialize(self, initialize_input):
        self._shard = initialize_input.shard_id

    def process_records(self, process_records_input):
        for record in process_records_input.records:
            self.say(record.binary_data.decode())
        last = process_records_input.records[-1]
        self.checkpoint(
            process_records_input.checkpointer,
            last.sequence_number,
            last.sub_sequence_number,
        )

    def checkpoint(self, checkpointer, sequence_number=None, sub_sequence_number=None):
        for _ in range(5):
            try:
                checkpointer.checkpoint(sequence_number, sub_sequence_number)
                return
            except kcl.CheckpointError as error:
                if error.value == "ShutdownException":
                    return
                time.sleep(0.2)

    def lease_lost(self, lease_lost_input):
        pass

    def shard_ended(self, shard_ended_input):
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(self, shutdown_requested_input):
        self.checkpoint(shutdown_requested_input.checkpointer)


if __name__ == "__main__":
    kcl_process = kcl.KCLProcess(RecordProcessor())
    kcl_process.run()
"""
PROPERTIES = """
# The program that the daemon starts.
executableName = app.py
streamName = orders
applicationName = billing
AWSCredentialsProvider = DefaultAWSCredentialsProviderChain
processingLanguage = python/3.11
initialPositionInStream = TRIM_HORIZON
regionName = us-east-1
failoverTimeMillis = 3000
maxRecords = 100
kinesumer.leader_interval_seconds = 0.2
kinesumer.rebalance_delay_seconds = 0.2
"""
SHARDS = 4
RUN = ("run", "--kclpy", "app:RecordProcessor", "--properties", "app.properties")


@pytest.fixture
def program(
    aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> EmbeddedAws:
    """Write the program and its properties into the working directory."""
    aws.create_table()
    aws.create_stream("orders", SHARDS)
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "app.properties").write_text(PROPERTIES)
    monkeypatch.chdir(tmp_path)
    return aws


class Seen:
    """What the processors of a run print."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.counts: Counter[str] = Counter()
        self.pids: dict[str, int] = {}
        """The last process of each shard."""

    def read_all(self, expected: set[str]) -> None:
        """Read lines until each of these records was there."""
        while expected - self.counts.keys():
            [line] = lines(self._process, 1)
            shard, pid, data = line.decode().split()
            self.counts[data] += 1
            self.pids[shard] = int(pid)


def put(aws: EmbeddedAws, first: int, stop: int) -> set[str]:
    """Put numbered records with many keys; return their data."""
    for number in range(first, stop):
        aws.put("orders", b"%d" % number, f"customer {number}")
    return {str(number) for number in range(first, stop)}


def stop(process: Process) -> None:
    """Stop a run, which must end well and have no more output."""
    process.send_signal(signal.SIGTERM)
    output, errors = finished(process)
    assert (process.returncode, output) == (0, b""), errors


def test_a_program_for_the_package_runs_unchanged_and_goes_on_where_it_stopped(
    program: EmbeddedAws, start: Starter
) -> None:
    first = put(program, 0, 20)
    process = start(*RUN)
    seen = Seen(process)
    seen.read_all(first)
    assert set(seen.pids.values()) == {process.pid}
    [shard, *_] = program.open_shards("orders")
    program.split("orders", shard)
    more = put(program, 20, 40)
    seen.read_all(more)
    stop(process)
    assert seen.counts == dict.fromkeys(first | more, 1)
    last = put(program, 40, 50)
    process = start(*RUN)
    again = Seen(process)
    again.read_all(last)
    stop(process)
    assert again.counts == dict.fromkeys(last, 1)


def test_several_processes_share_the_shards_and_replace_a_killed_one(
    program: EmbeddedAws, start: Starter
) -> None:
    process = start(*RUN, "--processes=2")
    seen = Seen(process)
    sent, number = set[str](), 0
    while len(set(seen.pids.values())) < 2:
        sent |= put(program, number, number + 20)
        number += 20
        seen.read_all(sent)
        time.sleep(0.1)
    killed = seen.pids["0"]
    os.kill(killed, signal.SIGKILL)
    sent |= put(program, number, number + 40)
    seen.read_all(sent)
    assert seen.pids["0"] != killed
    stop(process)


def test_wrong_properties_are_named_before_anything_runs(
    program: EmbeddedAws, run: Run, tmp_path: Path
) -> None:
    with (tmp_path / "app.properties").open("a") as file:
        file.write("metricsLevel = NONE\ntableName = leases\nmaxRecord = 5\n")
    for processes in (1, 2):
        error = error_text(run(*RUN, f"--processes={processes}"), 2)
        assert error.startswith(
            "error: correct app.properties: metricsLevel is refused"
        )
        for part in ("use --metrics-port", "kinesumer import kcl", "correct the name"):
            assert part in error


@pytest.mark.parametrize("options", [["--kclpy"], ["--properties=app.properties"]])
def test_both_options_are_needed(
    program: EmbeddedAws, run: Run, options: list[str]
) -> None:
    error = error_text(run("run", "app:RecordProcessor", *options), 2)
    assert "pass both --kclpy and --properties FILE, or neither" in error
