"""The demo's judgement finds every kind of fault, and blames nothing wrongly."""

from __future__ import annotations

from kinesumer.demo.counts import Ledger, Processed, Produced
from kinesumer.demo.scenario import Event
from kinesumer.demo.settings import MAX_UNCOMMITTED
from kinesumer.demo.verdict import Verdict, judge

SHARD = (0, 0)
START = Event(kind="start", at=0.0, text="start a, b")
KILL = Event(kind="kill", at=10.0, text="kill a", client="a", places={SHARD})


class Run:
    """Records of one shard, put each tenth of a second, and what became of them."""

    def __init__(self) -> None:
        self.ledger = Ledger(1)
        self.events = [START]
        self.parents: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def put(self, count: int, *, first: int = 1, shard: int = 0) -> None:
        for number in range(first, first + count):
            at, place = number / 10, f"{number:010}"
            self.ledger.put(Produced(number, 0, shard, place, 0, at))

    def process(
        self,
        numbers: range | list[int],
        client: str = "a",
        *,
        epoch: int = 1,
        late: float = 0.2,
        shard: int = 0,
    ) -> None:
        for step, number in enumerate(numbers):
            at = number / 10 + late + step * 1e-6
            self.ledger.note(Processed(at, number, 0, shard, epoch, client))

    def verdict(self, faults: list[str] | None = None) -> Verdict:
        return judge(self.ledger, self.parents, self.events, faults or [])


def test_all_is_well() -> None:
    run = Run()
    run.put(200)
    run.process(range(1, 201))
    verdict = run.verdict()
    assert (verdict.produced, verdict.processed, verdict.broken) == (200, 200, [])


def test_a_lost_record_is_found() -> None:
    run = Run()
    run.put(10)
    run.process([1, 2, 3, 4, 5, 7, 8, 9, 10])
    verdict = run.verdict()
    assert verdict.lost == 1
    assert "1 records lost (first: [6])" in verdict.broken


def test_what_kinesis_may_not_have_taken_isnt_lost() -> None:
    run = Run()
    run.put(10)
    run.ledger.uncertain.add(11)
    run.process(range(1, 12))
    assert run.verdict().broken == []


def test_what_a_crash_repeats_is_expected() -> None:
    run = Run()
    run.events.append(KILL)
    run.put(200)
    run.process(range(1, 99))
    run.process(range(91, 201), "b", epoch=2, late=9.0)
    verdict = run.verdict()
    assert verdict.repeated_by_crash == {"a": 8}
    assert verdict.repeated_otherwise == 0
    assert verdict.broken == []


def test_a_crash_may_repeat_only_so_many() -> None:
    run = Run()
    count = MAX_UNCOMMITTED + 1
    run.put(count)
    run.events.append(Event(kind="kill", at=200.0, text="", client="a", places={SHARD}))
    run.process(range(1, count + 1))
    run.process(range(1, count + 1), "b", epoch=2, late=201.0)
    assert any("allowed 1,000" in text for text in run.verdict().broken)


def test_a_repetition_without_a_crash_is_a_fault() -> None:
    run = Run()
    run.put(10)
    run.process(range(1, 11))
    run.process([10], "b", epoch=2, late=0.5)
    verdict = run.verdict()
    assert verdict.repeated_otherwise == 1
    assert verdict.broken == ["1 records processed twice without a crash"]


def test_a_repetition_by_the_same_client_is_a_fault_though_it_is_killed_later() -> None:
    run = Run()
    run.events.append(KILL)
    run.put(10)
    run.process(range(1, 11))
    run.process([10], epoch=1, late=0.5)
    assert run.verdict().repeated_otherwise == 1


def test_order_within_a_shard() -> None:
    run = Run()
    run.put(3)
    run.process([1])
    run.process([3], late=0.2)
    run.process([2], late=0.5)
    assert run.verdict().out_of_order == 1


def test_children_come_after_their_parents() -> None:
    run = Run()
    run.parents = {(0, 1): [SHARD]}
    run.put(10)
    run.put(5, first=11, shard=1)
    run.process(range(1, 10))
    run.process(range(11, 16), "b", shard=1)
    run.process([10], late=1.0)
    assert run.verdict().out_of_order == 1


def test_a_former_owner_that_goes_on() -> None:
    run = Run()
    run.put(4)
    run.process([1, 2])
    run.process([3], "b", epoch=2)
    run.process([4], "a", epoch=1)
    assert run.verdict().zombies == 1


def test_what_nobody_produced() -> None:
    run = Run()
    run.put(1)
    run.process([1, 2])
    run.ledger.note(Processed(9.0, 1, 0, 7, 1, "a"))
    assert run.verdict().strangers == 2


def test_a_takeover_that_takes_too_long() -> None:
    run = Run()
    run.events.append(KILL)
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), "b", epoch=2, late=14.6)
    assert run.verdict().broken == ["kill a: a pause of 14.5 s, allowed 13.5"]


def test_a_leader_may_take_longer_to_replace() -> None:
    run = Run()
    leader = Event(kind="kill", at=10.0, text="kill a", client="a", was_leader=True)
    run.events.append(leader)
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), "b", epoch=2, late=14.6)
    assert run.verdict().broken == []


def test_a_hand_over_that_takes_too_long() -> None:
    run = Run()
    run.events.append(Event(kind="join", at=9.0, text="start b", client="b"))
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), "b", epoch=2, late=3.6)
    verdict = run.verdict()
    assert verdict.broken == [
        "start b: hand-overs after it: a pause of 3.5 s, allowed 3"
    ]


def test_a_crash_excuses_only_the_shards_of_who_was_killed() -> None:
    run = Run()
    run.events.append(
        Event(kind="kill", at=9.0, text="kill c", client="c", places={(0, 7)})
    )
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), "b", epoch=2, late=3.6)
    assert run.verdict().broken == [
        "kill c: hand-overs after it: a pause of 3.5 s, allowed 3"
    ]


def test_a_child_that_waits_too_long_for_its_parent() -> None:
    run = Run()
    run.events.append(Event(kind="split", at=0.9, text="split shard 0"))
    run.parents = {(0, 1): [SHARD]}
    run.put(10)
    run.put(5, first=11, shard=1)
    run.process(range(1, 11))
    run.process(range(11, 16), shard=1, late=4.6)
    assert run.verdict().broken == [
        "split shard 0: child after parents: a pause of 4.5 s, allowed 4"
    ]


def test_a_shard_that_stands_still_without_a_reason() -> None:
    run = Run()
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), late=4.6)
    assert run.verdict().broken == ["otherwise: a pause of 4.5 s, allowed 4"]


def test_no_record_waiting_is_no_pause() -> None:
    run = Run()
    run.put(10)
    run.put(10, first=901)
    run.process(range(1, 11))
    run.process(range(901, 911))
    assert run.verdict().broken == []


def test_what_was_found_on_the_way_counts_too() -> None:
    assert Run().verdict(["client-2 ended with status 1"]).broken == [
        "client-2 ended with status 1"
    ]
