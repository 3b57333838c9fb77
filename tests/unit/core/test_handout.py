"""Test how a batch is handed out in parts, and who has them."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Any, cast

import pytest

from kinesumer.core.delivery import Wait
from kinesumer.core.handout import Handout, Loop
from kinesumer.model.records import Record
from tests.support.delivery_machine import EACH_BYTES, driver, one
from tests.support.world import batch_of


def test_user_code_is_busy_from_the_record_to_the_next_request() -> None:
    given, owned = one(1)
    loop, given.now = Loop("records"), 5.0
    since = [given.delivery.busy_since]
    given.whole(loop)
    since.append(given.delivery.busy_since)
    given.now = 7.0
    assert given.ask(loop) is Wait.BATCH
    assert [*since, given.delivery.busy_since] == [None, 5.0, None]
    assert owned.load.handler_seconds == 2


def test_a_cancelled_request_counts_as_left_until_the_next_one() -> None:
    given = driver()
    given.delivery.cancelled(3.0)
    since = [given.delivery.left_since]
    given.ask(Loop("records"))
    assert [*since, given.delivery.left_since] == [3.0, None]


def test_records_are_in_hand_or_wait() -> None:
    given, owned = one(1, 2)
    assert not given.delivery.has_records(owned, waiting=True)
    handout = given.handout(Loop("records"))
    assert len(handout.batch) == 2
    assert not given.delivery.has_records(owned, waiting=False)
    assert given.delivery.has_records(owned, waiting=True)
    handout.one_by_one()
    assert given.delivery.has_records(owned, waiting=False)


def test_a_record_counted_before_it_was_taken_back_is_not_waited_for() -> None:
    given, owned = one(1, 2)
    handout = given.handout(Loop("records"))
    next(handout.one_by_one())
    given.done(owned)
    assert not owned.is_idle
    handout.keep_back()
    assert owned.is_idle


def test_a_batch_cut_at_a_record_leaves_the_records_from_there() -> None:
    given, owned = one(1, 2, 3)
    loop = Loop("batches")
    handout = given.handout(loop)
    batch = handout.whole(0.0)
    handout.keep_back(batch, 3)  # nothing is left
    handout.keep_back(batch, 1)
    assert given.done(owned) == 0
    assert given.whole(loop) == [2, 3]
    assert given.done(owned) == 1


def test_an_illegal_step_names_both_phases() -> None:
    given, _ = one(1)
    handout = given.handout(Loop("records"))
    with pytest.raises(RuntimeError, match="no step leads from WAITING to ABANDONED"):
        handout.abandon()


def test_loops_of_one_task_share_what_it_has() -> None:
    a, b = Loop("records", "task"), Loop("batches", "task")
    assert a.is_of_holder_of(b)
    assert not a.is_of_holder_of(Loop("records", "other"))
    assert not a.is_of_holder_of(None)


def test_a_loop_outlives_the_helper_task_of_a_timeout() -> None:
    loop = Loop("records", "task")
    loop.runs_in = "helper"
    assert loop.holder == "helper"
    assert not loop.ended("helper")
    assert not loop.ended("stranger")
    assert [loop.holder, loop.ended("task")] == ["task", True]


def test_a_left_loop_frees_its_bytes_and_another_gets_the_rest() -> None:
    given, owned = one(1, 2, 3, auto=False)
    loop = Loop("records", "a")
    next(given.handout(loop, "a").one_by_one())
    given.delivery.left(loop, 2.0)
    given.carry_out()
    assert (given.freed, given.delivery.left_since) == (EACH_BYTES, 2.0)
    assert given.whole(Loop("batches", "b"), "b") == [2, 3]
    given.done(owned)
    assert not owned.is_idle  # task a has its record until it asks again or ends
    given.delivery.left(Loop("batches", "c"), 3.0)  # has nothing
    given.delivery.ended("a", 3.0, lambda: None)
    given.ask(Loop("batches", "b"), "b")
    assert given.freed == given.put_bytes


def test_a_left_loop_has_its_last_record_until_the_next_request() -> None:
    given, owned = one(1)
    loop = Loop("records")
    given.whole(loop)
    given.delivery.left(loop, 2.0)
    assert (given.done(owned), owned.is_idle, given.freed) == (0, False, 0)
    given.ask(loop)
    assert given.done(owned) == 1


def test_bytes_of_a_whole_batch_in_hand_are_freed_when_its_loop_is_left() -> None:
    given, _ = one(1, 2, auto=False)
    loop = Loop("batches", "a")
    given.whole(loop, "a")
    given.delivery.left(loop, 2.0)
    given.carry_out()
    assert given.freed == 2 * EACH_BYTES


class CountingIterator(Iterator[Record]):
    """The iterator of a list, which counts the records that it makes."""

    def __init__(self, records: list[Record]) -> None:
        self._records = iter(records)
        self.made = 0

    def __next__(self) -> Record:
        record = next(self._records)
        self.made += 1
        return record

    def __length_hint__(self) -> int:
        return length_hint(self._records)

    def __setstate__(self, index: int) -> None:
        cast("Any", self._records).__setstate__(index)


def test_records_that_a_loop_does_not_get_are_not_made() -> None:
    _, owned = one()
    for leave in (Handout.end, Handout.one_by_one):
        handout = Handout(batch_of(owned, 1, 2, 3, 4), range(4))
        handout.one_by_one()
        records = handout.ahead = CountingIterator([*handout.batch.records])
        next(records), next(records)
        handout.passed(0.0)
        leave(handout)
        assert (next(records, None), records.made) == (None, 2)
