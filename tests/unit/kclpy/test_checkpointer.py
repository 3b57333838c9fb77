"""Test which checkpoints are stored and which are refused, as with the KCL."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from kinesumer.errors import KinesumerError
from kinesumer.kclpy import Checkpointer, CheckpointError
from kinesumer.kclpy.checkpointer import Phase, closed_checkpointer
from kinesumer.model.positions import Position


class Desk:
    """A checkpointer, and the positions that it stores."""

    def __init__(self, initial: Position | None = None) -> None:
        self.stored: list[str] = []
        self.errors: list[str] = []
        """The names of the errors with which the next stores fail."""
        self.checkpointer = Checkpointer(self.store, initial)

    def store(self, position: Position) -> None:
        if self.errors:
            raise CheckpointError(self.errors.pop(0))
        self.stored.append(position.text)

    def refused(self, *arguments: Any) -> str:
        """Return the name of the error of a checkpoint."""
        with pytest.raises(CheckpointError) as found:
            self.checkpointer.checkpoint(*arguments)
        return found.value.value


@pytest.fixture
def desk() -> Desk:
    """Return a checkpointer after 10/2 whose processor got records up to 20/3."""
    desk = Desk(Position("10", 2))
    desk.checkpointer.delivering(Position("20", 3))
    return desk


def test_without_a_number_the_last_record_is_stored(desk: Desk) -> None:
    desk.checkpointer.checkpoint()
    desk.checkpointer.delivering(Position("30"))
    desk.checkpointer.checkpoint()
    assert desk.stored == ["20:3", "30:0"]


@pytest.mark.parametrize(
    ("arguments", "stored"),
    [
        (("15", 1), "15:1"),
        ((15, 1), "15:1"),
        (("0015", 1), "15:1"),
        (("15",), "15:0"),
        (("20", 3), "20:3"),
        (("10", 3), "10:3"),
    ],
)
def test_a_record_between_the_last_checkpoint_and_the_last_record_is_stored(
    desk: Desk, arguments: Any, stored: str
) -> None:
    desk.checkpointer.checkpoint(*arguments)
    assert desk.stored == [stored]


@pytest.mark.parametrize(
    "arguments",
    [("10", 1), ("9",), ("20", 4), ("21",), ("x",), ("-1",), ("1.5",), ("15", -1)],
)
def test_other_records_are_an_illegal_argument(desk: Desk, arguments: Any) -> None:
    assert desk.refused(*arguments) == "IllegalArgumentException"
    assert desk.stored == []


def test_the_reason_of_an_illegal_argument_is_the_cause(desk: Desk) -> None:
    with pytest.raises(CheckpointError) as found:
        desk.checkpointer.checkpoint("21")
    assert "21/0 is not between the last checkpoint (10/2)" in str(
        found.value.__cause__
    )


def test_checkpoints_do_not_go_back(desk: Desk) -> None:
    desk.checkpointer.checkpoint("15", 1)
    assert desk.refused("15", 0) == "IllegalArgumentException"
    desk.checkpointer.checkpoint("15", 1)  # nothing new, which is no error
    assert desk.stored == ["15:1"]


def test_a_checkpoint_that_failed_can_be_repeated(desk: Desk) -> None:
    desk.errors = ["ThrottlingException"]
    assert desk.refused() == "ThrottlingException"
    desk.checkpointer.checkpoint()
    assert desk.stored == ["20:3"]


def test_before_the_first_record_there_is_nothing_to_store() -> None:
    desk = Desk()
    desk.checkpointer.checkpoint()
    assert desk.stored == []
    assert desk.refused("1") == "IllegalArgumentException"


def test_a_closed_checkpointer_refuses_all_checkpoints(desk: Desk) -> None:
    prepared = desk.checkpointer.prepare_checkpoint()
    desk.checkpointer.close()
    assert desk.refused() == desk.refused("15") == "ShutdownException"
    for refused in (prepared.checkpoint, desk.checkpointer.prepare_checkpoint):
        with pytest.raises(CheckpointError, match="ShutdownException"):
            refused()
    with pytest.raises(CheckpointError, match="ShutdownException"):
        closed_checkpointer().checkpoint()
    assert desk.stored == []


# --- calls during a checkpoint --------------------------------------------------------


class Slow:
    """A checkpointer whose store waits until the test lets it go on."""

    def __init__(self) -> None:
        self._begun, self._go_on = Event(), Event()
        self.stored: list[str] = []
        self.checkpointer = Checkpointer(self._store, None)
        self.checkpointer.delivering(Position("20"))

    def _store(self, position: Position) -> None:
        self._begun.set()
        assert self._go_on.wait(60)
        self.stored.append(position.text)

    def checkpoint_during(self, call: Callable[[], object]) -> None:
        """Call a function of the event loop while a thread stores a checkpoint.

        The store waits for the event loop, so the call must not wait for the store.
        """
        with ThreadPoolExecutor(2) as threads:
            checkpoint = threads.submit(self.checkpointer.checkpoint)
            assert self._begun.wait(60)
            try:
                threads.submit(call).result(5)
            finally:
                self._go_on.set()
            checkpoint.result(60)


def test_a_shard_is_lost_while_a_thread_checkpoints() -> None:
    slow = Slow()
    slow.checkpoint_during(slow.checkpointer.close)
    assert slow.checkpointer.phase is Phase.CLOSED


def test_records_are_delivered_while_a_thread_checkpoints() -> None:
    slow = Slow()
    slow.checkpoint_during(lambda: slow.checkpointer.delivering(Position("30")))
    slow.checkpointer.checkpoint()
    assert slow.stored == ["20:0", "30:0"]


def test_a_checkpoint_from_before_the_end_is_none_of_the_end() -> None:
    slow = Slow()
    slow.checkpoint_during(slow.checkpointer.shard_ended)
    phases = [slow.checkpointer.phase]
    slow.checkpointer.checkpoint()
    assert slow.stored == ["20:0"]
    phases.append(slow.checkpointer.phase)
    assert phases == [Phase.SHARD_ENDED, Phase.END_STORED]


# --- the end of a shard ---------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("20", 3)])
def test_a_checkpoint_of_the_last_record_is_one_of_the_end(
    desk: Desk, arguments: Any
) -> None:
    desk.checkpointer.shard_ended()
    desk.checkpointer.checkpoint(*arguments)
    assert desk.stored == ["20:3"]
    assert desk.checkpointer.phase is Phase.END_STORED


def test_the_end_can_be_checkpointed_if_the_last_record_was_before(desk: Desk) -> None:
    desk.checkpointer.checkpoint()
    desk.checkpointer.shard_ended()
    desk.checkpointer.checkpoint()
    assert desk.stored == ["20:3"]
    assert desk.checkpointer.phase is Phase.END_STORED


def test_a_shard_without_records_can_be_ended() -> None:
    desk = Desk()
    desk.checkpointer.shard_ended()
    desk.checkpointer.checkpoint()
    assert desk.checkpointer.phase is Phase.END_STORED


def test_an_earlier_record_or_a_failure_does_not_end_the_shard(desk: Desk) -> None:
    desk.checkpointer.shard_ended()
    desk.checkpointer.checkpoint("15")
    desk.errors = ["ThrottlingException"]
    assert desk.refused() == "ThrottlingException"
    assert desk.checkpointer.phase is Phase.SHARD_ENDED


# --- prepared checkpoints -------------------------------------------------------------


def test_a_prepared_checkpoint_is_stored_when_it_is_made(desk: Desk) -> None:
    prepared = desk.checkpointer.prepare_checkpoint("15", 1)
    latest = desk.checkpointer.prepare_checkpoint()
    assert (prepared.sequence_number, prepared.sub_sequence_number) == ("15", 1)
    assert (latest.sequence_number, latest.sub_sequence_number) == ("20", 3)
    assert desk.stored == []
    prepared.checkpoint()
    desk.checkpointer.delivering(Position("30"))
    latest.checkpoint()
    assert desk.stored == ["15:1", "20:3"]


def test_a_prepared_checkpoint_before_a_stored_one_is_refused(desk: Desk) -> None:
    prepared = desk.checkpointer.prepare_checkpoint("15", 1)
    desk.checkpointer.checkpoint()
    with pytest.raises(CheckpointError, match="IllegalArgumentException"):
        prepared.checkpoint()


def test_only_what_could_be_stored_can_be_prepared(desk: Desk) -> None:
    with pytest.raises(CheckpointError, match="IllegalArgumentException"):
        desk.checkpointer.prepare_checkpoint("21")


def test_a_checkpoint_prepared_before_the_first_record_stores_nothing() -> None:
    desk = Desk()
    prepared = desk.checkpointer.prepare_checkpoint()
    assert (prepared.sequence_number, prepared.sub_sequence_number) == (None, 0)
    prepared.checkpoint()
    assert desk.stored == []


def test_the_error_looks_like_that_of_amazon_kclpy() -> None:
    error = CheckpointError("ThrottlingException")
    assert str(error) == "'ThrottlingException'"
    assert isinstance(error, KinesumerError)
    assert pickle.loads(pickle.dumps(error)).value == "ThrottlingException"
