"""Test that a pause is found with its cause, and judged by the bound of the cause."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.testing.trial import oracle
from kinesumer.testing.trial.journal import Handled, Produced
from kinesumer.testing.trial.verdict import Event, judge_pauses

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
SHARD, CHILD, OTHER = (ShardKey(ARN, f"shardId-{n:012}") for n in (0, 1, 7))
START = Event(kind="start", at=0.0, text="start a, b")
KILL = Event(kind="kill", at=10.0, text="kill a", client="a", shards={SHARD})


class Run:
    """A run that puts ten records a second, and the processing of the records."""

    def __init__(self, count: int, *events: Event) -> None:
        self.produced: list[Produced] = []
        self.handled: list[Handled] = []
        self.events = [START, *events]
        self.parents: dict[ShardKey, list[ShardKey]] = {}
        self.put(count)

    def put(self, count: int, *, first: int = 1, shard: ShardKey = SHARD) -> None:
        self.produced += [
            Produced(number, "key", shard, Position(f"{number}"), number / 10)
            for number in range(first, first + count)
        ]

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
            at, position = number / 10 + late + step * 1e-6, Position(f"{number}")
            self.handled.append(Handled(client, number, shard, position, epoch, at, at))

    def faults(self) -> list[str]:
        run = oracle.Run(self.produced, self.handled, {}, self.parents)
        lines = judge_pauses(run, self.events)
        return [f"{x.what.strip()}: {x.measured}" for x in lines if not x.is_kept]


@pytest.mark.parametrize(
    ("event", "late", "faults"),
    [
        pytest.param(KILL, 14.6, ["kill a: 14.50 s"], id="takeover"),
        pytest.param(
            Event(kind="kill", at=10.0, text="kill a", client="a", was_leader=True),
            14.6,
            [],
            id="takeover from a leader",
        ),
        pytest.param(
            Event(kind="join", at=9.0, text="start b", client="b"),
            3.6,
            ["start b: hand-overs after it: 3.50 s"],
            id="hand-over",
        ),
        pytest.param(
            Event(kind="kill", at=9.0, text="kill c", client="c", shards={OTHER}),
            3.6,
            ["kill c: hand-overs after it: 3.50 s"],
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
    assert run.faults() == faults


def test_a_slow_start_of_a_child_shard_is_a_fault() -> None:
    run = Run(10, Event(kind="split", at=0.9, text="split shard 0"))
    run.parents = {CHILD: [SHARD]}
    run.put(5, first=11, shard=CHILD)
    run.process(range(1, 11))
    run.process(range(11, 16), shard=CHILD, late=4.6)
    assert run.faults() == ["split shard 0: child after parents: 4.50 s"]


def test_a_slow_start_of_a_tables_shard_is_a_fault_unless_a_kill_explains_it() -> None:
    table = "arn:aws:dynamodb:us-east-1:000000000000:table/orders/stream/2026"
    parent, child = ShardKey(table, "shard-0"), ShardKey(table, "shard-1")
    kill = Event(kind="kill", at=0.9, text="kill a", client="a", shards={parent})
    for events, faults in [
        ([], ["roll-overs of tables: child after parents: 4.50 s"]),
        ([kill], []),
    ]:
        run = Run(0, *events)
        run.parents = {child: [parent]}
        run.put(10, shard=parent)
        run.put(5, first=11, shard=child)
        run.process(range(1, 11), shard=parent)
        run.process(range(11, 16), shard=child, late=4.6)
        assert run.faults() == faults


def test_a_pause_without_a_cause_is_a_fault() -> None:
    run = Run(200)
    run.process(range(1, 99))
    run.process(range(99, 201), late=4.6)
    assert run.faults() == ["otherwise: 4.50 s"]


def test_a_shard_without_waiting_records_has_no_pause() -> None:
    run = Run(10)
    run.put(10, first=901)
    run.process([*range(1, 11), *range(901, 911)])
    assert run.faults() == []
