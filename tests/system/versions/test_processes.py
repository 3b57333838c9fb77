"""Test that clients of another version and of this one are one group.

``scripts/versions`` installs the other version, and names its command.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kinesumer.testing import EmbeddedAws, background
from tests.system.process.producer import Producer

OWN = Path(sys.executable).with_name("kinesumer")
OTHER = os.environ.get("KINESUMER_OTHER_VERSION")
pytestmark = pytest.mark.skipif(
    OTHER is None, reason="scripts/versions names the other version's command"
)
RECORDS_PER_SECOND = 200
WAIT_SECONDS = 60.0  # a client starts, leaves or is replaced within this time


class Delivered(NamedTuple):
    """A record that a client has written."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int | None


class Client:
    """A process of ``kinesumer consume``, whose output is a file."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process, self.output = process, output

    def delivered(self) -> list[Delivered]:
        """Return the records so far. A killed process may leave half a line."""
        lines = self.output.read_bytes().split(b"\n")[:-1]
        read = map(json.loads, lines)
        return [
            Delivered(r["shard_id"], r["sequence_number"], r.get("sub_sequence_number"))
            for r in read
        ]

    def leave(self) -> None:
        """Stop the process by SIGTERM, and check that it reports success."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_SECONDS) == 0


class Fleet:
    """Clients of both versions, and the records that they should write."""

    def __init__(self, aws: EmbeddedAws, directory: Path) -> None:
        self._aws, self._directory = aws, directory
        self._arn = aws.create_stream("orders", 4)
        self.producer = Producer(aws)
        self.clients: list[Client] = []

    def produce(self) -> None:
        """Put records from now on."""
        self.producer.start([self._arn], RECORDS_PER_SECOND)

    def start(self, command: Path | str) -> Client:
        """Start a client of a version, and wait until it has written a record."""
        name = f"client-{len(self.clients)}"
        output = self._directory / f"{name}.jsonl"
        arguments = ["consume", "orders", "--app", "billing", "--client-id", name]
        # PYTHONPATH would lead the other version to this one's modules.
        environment = {**os.environ, **self._aws.environment(), "PYTHONPATH": ""}
        log = output.with_suffix(".log")
        with output.open("wb") as records, log.open("wb") as errors:
            process = subprocess.Popen(
                [command, *arguments, "--start", "TRIM_HORIZON"],
                stdin=subprocess.DEVNULL,
                stdout=records,
                stderr=errors,
                env=environment,
            )
        client = Client(process, output)
        self.clients.append(client)

        def has_begun() -> bool:
            assert process.poll() is None, log.read_text()
            return bool(client.delivered())

        until(has_begun, f"{name} has written a record")
        return client

    def delivered(self) -> Counter[Delivered]:
        """Return how often each record was written."""
        return Counter(one for client in self.clients for one in client.delivered())

    def finish(self) -> Counter[Delivered]:
        """Stop to put, and wait until each record was written. Return how often."""
        self.producer.stop()
        put = {
            Delivered(record.shard.shard_id, *record.position)
            for record in self.producer.records[self._arn]
        }
        until(lambda: not put - self.delivered().keys(), "all records are written")
        for client in self.clients:
            if client.process.poll() is None:
                client.leave()
        delivered = self.delivered()
        assert delivered.keys() == put
        return delivered

    def check_order(self) -> None:
        """Check that each client has written the records of each shard in order."""
        for client in self.clients:
            last: dict[str, tuple[int, int]] = {}
            for shard_id, number, sub_number in client.delivered():
                place = int(number), sub_number or 0
                assert place > last.get(shard_id, (-1, -1))
                last[shard_id] = place

    def close(self) -> None:
        """Stop the producer, and kill what still runs."""
        self.producer.stop()
        for client in self.clients:
            client.process.kill()
            client.process.wait()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not in {WAIT_SECONDS:g} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Return a fleet without clients."""
    with background(EmbeddedAws()) as aws:
        fleet = Fleet(aws, tmp_path)
        try:
            fleet.produce()
            yield fleet
        finally:
            fleet.close()


DIRECTIONS = pytest.mark.parametrize(
    ("before", "after"), [(OTHER, OWN), (OWN, OTHER)], ids=["upgrade", "downgrade"]
)


@DIRECTIONS
def test_a_rolling_deploy_loses_and_repeats_nothing(
    fleet: Fleet, before: Path, after: Path
) -> None:
    for client in [fleet.start(before) for _ in range(3)]:
        fleet.start(after)
        client.leave()
    assert set(fleet.finish().values()) == {1}
    fleet.check_order()


@DIRECTIONS
def test_a_version_takes_over_from_a_killed_client_of_the_other(
    fleet: Fleet, before: Path, after: Path
) -> None:
    killed, _ = fleet.start(before), fleet.start(after)
    killed.process.kill()
    until(lambda: killed.process.poll() is not None, "the client is dead")
    fleet.finish()
    fleet.check_order()
