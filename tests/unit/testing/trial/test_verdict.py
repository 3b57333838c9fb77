"""Test that the demo's verdict names each kind of fault, and accepts correct runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.testing.trial.events import (
    MAX_UNCOMMITTED_RECORDS,
    Event,
    RecordCounts,
)
from kinesumer.testing.trial.journal import Handled, Produced
from kinesumer.testing.trial.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterable

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
SHARD, CHILD, OTHER = (ShardKey(ARN, f"shardId-{n:012}") for n in (0, 1, 7))
START = Event(kind="start", at=0.0, text="start a, b")
KILL = Event(kind="kill", at=10.0, text="kill a", client="a", shards={SHARD})


def place(number: int) -> Position:
    return Position(f"{number}")


class Run:
    """A demo run that puts ten records a second, and the processing of the records."""

    def __init__(self, count: int = 0, *events: Event) -> None:
        self.counts = RecordCounts([ARN])
        self.events = [START, *events]
        self.parents: dict[ShardKey, list[ShardKey]] = {}
        self.put(count)

    def put(self, count: int, *, first: int = 1, shard: ShardKey = SHARD) -> None:
        for number in range(first, first + count):
            at, position = number / 10, place(number)
            self.counts.add_produced(
                Produced(number, shard.shard_id, shard, position, at)
            )

    def process(
        self,
        numbers: Iterable[int],
        client: str = "a",
        *,
        epoch: int = 1,
        late: float = 0.2,
        shard: ShardKey = SHARD,
    ) -> None:
        for step, number in enumerate(numbers):
            at = number / 10 + late + step * 1e-6
            key, position = shard.shard_id, place(number)
            self.add(Handled(client, number, key, shard, position, epoch, at, at))

    def add(self, handled: Handled) -> None:
        self.counts.add_processed(handled)

    def verdict(self, faults: list[str] | None = None) -> Verdict:
        return judge(self.counts, self.parents, self.events, faults or [])


def test_a_correct_run_has_no_faults() -> None:
    run = Run(200)
    run.process(range(1, 201))
    verdict = run.verdict()
    assert (verdict.produced, verdict.processed, verdict.faults) == (200, 200, [])


def test_a_lost_record_is_found() -> None:
    run = Run(10)
    run.process([1, 2, 3, 4, 5, 7, 8, 9, 10])
    verdict = run.verdict()
    assert verdict.lost == 1
    assert "1 records lost (first: [6])" in verdict.faults


def test_a_record_of_a_failed_request_is_not_lost() -> None:
    run = Run(10)
    run.counts.uncertain.add(11)
    run.process(range(1, 12))
    assert run.verdict().faults == []


def test_a_crash_may_repeat_records() -> None:
    run = Run(200, KILL)
    run.process(range(1, 99))
    run.process(range(91, 201), "b", epoch=2, late=9.0)
    verdict = run.verdict()
    assert verdict.repeated_by_crash == {"a": 8}
    assert verdict.repeated_otherwise == 0
    assert verdict.faults == []


def test_a_crash_repeats_at_most_the_uncommitted_records() -> None:
    count = MAX_UNCOMMITTED_RECORDS + 1
    kill = Event(kind="kill", at=200.0, text="", client="a", shards={SHARD})
    run = Run(count, kill)
    run.process(range(1, count + 1))
    run.process(range(1, count + 1), "b", epoch=2, late=201.0)
    assert any("allowed 1,000" in text for text in run.verdict().faults)


@pytest.mark.parametrize(
    ("events", "client", "epoch"),
    [
        pytest.param([], "b", 2, id="without a crash"),
        pytest.param([KILL], "a", 1, id="before the crash"),
    ],
)
def test_another_repeat_is_a_fault(
    events: list[Event], client: str, epoch: int
) -> None:
    run = Run(10, *events)
    run.process(range(1, 11))
    run.process([10], client, epoch=epoch, late=0.5)
    verdict = run.verdict()
    assert verdict.repeated_otherwise == 1
    assert "1 records processed twice without a crash" in verdict.faults


def test_records_out_of_order_are_found() -> None:
    run = Run(3)
    run.process([1])
    run.process([3], late=0.2)
    run.process([2], late=0.5)
    assert run.verdict().out_of_order == 1


def test_a_child_read_before_its_parent_ended_is_found() -> None:
    run = Run(10)
    run.parents = {CHILD: [SHARD]}
    run.put(5, first=11, shard=CHILD)
    run.process(range(1, 10))
    run.process(range(11, 16), "b", shard=CHILD)
    run.process([10], late=1.0)
    assert run.verdict().out_of_order == 1


def test_records_processed_by_a_former_owner_are_found() -> None:
    run = Run(4)
    run.process([1, 2])
    run.process([3], "b", epoch=2)
    run.process([4], "a", epoch=1)
    assert run.verdict().by_former_owner == 1


def test_records_that_were_never_produced_are_found() -> None:
    run = Run(1)
    run.process([1, 2])
    run.add(Handled("a", 1, "", OTHER, place(1), 1, 9.0, 9.0))
    assert run.verdict().never_produced == 2


# --- pauses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "late", "faults"),
    [
        pytest.param(
            KILL, 14.6, ["kill a: a pause of 14.5 s, allowed 13.5"], id="takeover"
        ),
        pytest.param(
            Event(kind="kill", at=10.0, text="kill a", client="a", was_leader=True),
            14.6,
            [],
            id="takeover from a leader",
        ),
        pytest.param(
            Event(kind="join", at=9.0, text="start b", client="b"),
            3.6,
            ["start b: hand-overs after it: a pause of 3.5 s, allowed 3"],
            id="hand-over",
        ),
        pytest.param(
            Event(kind="kill", at=9.0, text="kill c", client="c", shards={OTHER}),
            3.6,
            ["kill c: hand-overs after it: a pause of 3.5 s, allowed 3"],
            id="hand-over of a shard that the killed client didn't own",
        ),
    ],
)
def test_a_slow_change_of_the_owner_is_a_fault(
    event: Event, late: float, faults: list[str]
) -> None:
    run = Run(200, event)
    run.process(range(1, 99))
    run.process(range(99, 201), "b", epoch=2, late=late)
    assert run.verdict().faults == faults


def test_a_slow_start_of_a_child_shard_is_a_fault() -> None:
    run = Run(10, Event(kind="split", at=0.9, text="split shard 0"))
    run.parents = {CHILD: [SHARD]}
    run.put(5, first=11, shard=CHILD)
    run.process(range(1, 11))
    run.process(range(11, 16), shard=CHILD, late=4.6)
    assert run.verdict().faults == [
        "split shard 0: child after parents: a pause of 4.5 s, allowed 4"
    ]


def test_a_pause_without_a_cause_is_a_fault() -> None:
    run = Run(200)
    run.process(range(1, 99))
    run.process(range(99, 201), late=4.6)
    assert run.verdict().faults == ["otherwise: a pause of 4.5 s, allowed 4"]


def test_a_shard_without_waiting_records_has_no_pause() -> None:
    run = Run(10)
    run.put(10, first=901)
    run.process([*range(1, 11), *range(901, 911)])
    assert run.verdict().faults == []


def test_faults_found_during_the_run_count() -> None:
    faults = ["client-2 ended with status 1"]
    assert Run().verdict(faults).faults == faults
