"""Test that the simulator finds shards that wait for more than one turn of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from random import Random

import pytest

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.core.turns import TURN_SECONDS
from kinesumer.model.records import Record
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.invariants.base import ViolationError
from kinesumer.testing.simulation.invariants.checker import InvariantChecker
from tests.support.world import hold, shard_row


class Client:
    """A client that owns three shards, and has read ten records of each."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(Random(0))
        self.machine = self.loop.machine("c1")
        self.checker = InvariantChecker(self.loop)
        self.shards = [hold(shard_row(f"shardId-{number:012}")) for number in range(3)]
        for owned in self.shards:
            owned.queued_records += 10
        self.checker.turns.begin(self.machine, lambda: self.shards)
        self._numbers = count()

    def serve(
        self, number: int, seconds: float = 0.0, *, fails: bool = False
    ) -> Record:
        """Give user code a record of a shard, and let it take some time."""
        owned = self.shards[number]
        record = self.record(owned)
        self.checker.turns.tried(self.machine, record)
        self.checker.turns.delivered(self.machine, record)
        self.checker.calls.busy(self.machine, owned.source.fence, 1)
        self.loop.real += seconds
        if fails:
            self.checker.turns.failed(self.machine, record)
        self.checker.calls.busy(self.machine, owned.source.fence, -1)
        return record

    def record(self, owned: OwnedShard) -> Record:
        return Record(str(next(self._numbers)), b"", source=owned.source)

    @property
    def violation(self) -> str:
        error = self.loop.halted
        assert error is None or isinstance(error, ViolationError)
        return "" if error is None else str(error)


@pytest.mark.parametrize(
    ("numbers", "seconds", "violation"),
    [
        # One shard's turn is too long.
        ((0, 0), 1, "shardId-000000000001 of orders waits"),
        ((0, 0, 0), 0.4 * TURN_SECONDS, ""),
        ((0, 0, 0, 0), 0.4 * TURN_SECONDS, "shardId-000000000001 of orders waits"),
        # One shard has two turns while another waits.
        ((0, 1, 2, 0, 1, 2), 1, ""),
        ((0, 1, 0), 1, "shardId-000000000002 of orders waits"),
    ],
)
def test_l15_each_shard_has_one_turn_while_another_waits(
    numbers: Sequence[int], seconds: float, violation: str
) -> None:
    client = Client()
    for number in numbers:
        client.serve(number, seconds)
    assert ("L15" in client.violation) == bool(violation)
    assert violation in client.violation


def test_l15_a_turn_is_one_batch_if_user_code_takes_batches() -> None:
    client = Client()
    client.checker.turns.most_seconds = 0.0
    client.serve(0, 0.001)
    client.serve(0)
    assert "L15" in client.violation


def alone(client: Client) -> None:
    """Let the other two shards wait for nothing."""
    for owned in client.shards[1:]:
        owned.revoke()


def all_received(client: Client) -> None:
    """Let user code get all records of the other two shards."""
    for number in [1, 2] * 10:
        client.serve(number)


def all_fail(client: Client) -> None:
    """Let user code fail at the other two shards."""
    for number in (1, 2):
        client.serve(number, fails=True)


def some_keys_fail(client: Client) -> None:
    """Let user code fail at a key of the other two shards, and handle another key."""
    all_fail(client)
    for number in (1, 2):
        client.serve(number)


def all_busy(client: Client) -> None:
    """Let user code work at records of the other two shards."""
    for owned in client.shards[1:]:
        client.checker.calls.busy(client.machine, owned.source.fence, 1)


@pytest.mark.parametrize(
    "prepare", [alone, all_received, all_fail, some_keys_fail, all_busy]
)
def test_a_shard_that_waits_for_something_else_is_no_violation(
    prepare: Callable[[Client], None],
) -> None:
    client = Client()
    prepare(client)
    client.serve(0, 1)
    client.serve(0, 1)
    assert not client.violation


def test_l15_a_shard_waits_again_when_its_failed_record_is_tried_again() -> None:
    client = Client()
    failed = client.serve(1, fails=True)
    client.checker.turns.tried(client.machine, failed)
    client.serve(2)
    client.serve(0, 1)
    client.serve(0, 1)
    assert "waits" in client.violation


def test_a_pause_of_the_whole_client_is_no_turn() -> None:
    client = Client()
    client.serve(0)
    client.loop.real += 60  # the lease lapses
    client.serve(0)
    assert not client.violation
    client.serve(0, 1)
    client.serve(0)
    assert "L15" in client.violation


def test_a_client_that_begins_anew_has_had_no_turns() -> None:
    client = Client()
    client.serve(0, 1)
    client.checker.turns.begin(client.machine, lambda: client.shards)
    client.serve(0, 1)
    assert not client.violation
