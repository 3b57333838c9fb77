"""The demo's verdict names every kind of fault, and no correct behaviour."""

from __future__ import annotations

from kinesumer.demo.events import Event, Processed, Produced, RecordCounts
from kinesumer.demo.settings import MAX_UNCOMMITTED_RECORDS
from kinesumer.demo.verdict import Verdict, judge

SHARD = (0, 0)
START = Event(kind="start", at=0.0, text="start a, b")
KILL = Event(kind="kill", at=10.0, text="kill a", client="a", shards={SHARD})


class Run:
    """A run with one record in each tenth of a second, and their processing."""

    def __init__(self) -> None:
        self.counts = RecordCounts(1)
        self.events = [START]
        self.parents: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def put(self, count: int, *, first: int = 1, shard: int = 0) -> None:
        for number in range(first, first + count):
            at, position = number / 10, f"{number:010}"
            self.counts.add_produced(Produced(number, 0, shard, position, 0, at))

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
            self.counts.add_processed(Processed(at, number, 0, shard, epoch, client))

    def verdict(self, faults: list[str] | None = None) -> Verdict:
        return judge(self.counts, self.parents, self.events, faults or [])


def test_a_correct_run_has_no_faults() -> None:
    run = Run()
    run.put(200)
    run.process(range(1, 201))
    verdict = run.verdict()
    assert (verdict.produced, verdict.processed, verdict.faults) == (200, 200, [])


def test_a_lost_record_is_found() -> None:
    run = Run()
    run.put(10)
    run.process([1, 2, 3, 4, 5, 7, 8, 9, 10])
    verdict = run.verdict()
    assert verdict.lost == 1
    assert "1 records lost (first: [6])" in verdict.faults


def test_a_record_of_a_failed_request_is_not_lost() -> None:
    run = Run()
    run.put(10)
    run.counts.uncertain.add(11)
    run.process(range(1, 12))
    assert run.verdict().faults == []


def test_a_crash_may_repeat_records() -> None:
    run = Run()
    run.events.append(KILL)
    run.put(200)
    run.process(range(1, 99))
    run.process(range(91, 201), "b", epoch=2, late=9.0)
    verdict = run.verdict()
    assert verdict.repeated_by_crash == {"a": 8}
    assert verdict.repeated_otherwise == 0
    assert verdict.faults == []


def test_a_crash_repeats_at_most_the_uncommitted_records() -> None:
    run = Run()
    count = MAX_UNCOMMITTED_RECORDS + 1
    run.put(count)
    run.events.append(Event(kind="kill", at=200.0, text="", client="a", shards={SHARD}))
    run.process(range(1, count + 1))
    run.process(range(1, count + 1), "b", epoch=2, late=201.0)
    assert any("allowed 1,000" in text for text in run.verdict().faults)


def test_a_repeat_without_a_crash_is_a_fault() -> None:
    run = Run()
    run.put(10)
    run.process(range(1, 11))
    run.process([10], "b", epoch=2, late=0.5)
    verdict = run.verdict()
    assert verdict.repeated_otherwise == 1
    assert verdict.faults == ["1 records processed twice without a crash"]


def test_a_repeat_before_the_crash_is_a_fault() -> None:
    run = Run()
    run.events.append(KILL)
    run.put(10)
    run.process(range(1, 11))
    run.process([10], epoch=1, late=0.5)
    assert run.verdict().repeated_otherwise == 1


def test_records_out_of_order_are_found() -> None:
    run = Run()
    run.put(3)
    run.process([1])
    run.process([3], late=0.2)
    run.process([2], late=0.5)
    assert run.verdict().out_of_order == 1


def test_a_child_read_before_its_parent_ended_is_found() -> None:
    run = Run()
    run.parents = {(0, 1): [SHARD]}
    run.put(10)
    run.put(5, first=11, shard=1)
    run.process(range(1, 10))
    run.process(range(11, 16), "b", shard=1)
    run.process([10], late=1.0)
    assert run.verdict().out_of_order == 1


def test_records_processed_by_a_former_owner_are_found() -> None:
    run = Run()
    run.put(4)
    run.process([1, 2])
    run.process([3], "b", epoch=2)
    run.process([4], "a", epoch=1)
    assert run.verdict().by_former_owner == 1


def test_records_that_were_never_produced_are_found() -> None:
    run = Run()
    run.put(1)
    run.process([1, 2])
    run.counts.add_processed(Processed(9.0, 1, 0, 7, 1, "a"))
    assert run.verdict().never_produced == 2


def test_a_slow_takeover_is_a_fault() -> None:
    run = Run()
    run.events.append(KILL)
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), "b", epoch=2, late=14.6)
    assert run.verdict().faults == ["kill a: a pause of 14.5 s, allowed 13.5"]


def test_the_takeover_from_a_leader_may_take_longer() -> None:
    run = Run()
    leader = Event(kind="kill", at=10.0, text="kill a", client="a", was_leader=True)
    run.events.append(leader)
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), "b", epoch=2, late=14.6)
    assert run.verdict().faults == []


def test_a_slow_hand_over_is_a_fault() -> None:
    run = Run()
    run.events.append(Event(kind="join", at=9.0, text="start b", client="b"))
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), "b", epoch=2, late=3.6)
    verdict = run.verdict()
    assert verdict.faults == [
        "start b: hand-overs after it: a pause of 3.5 s, allowed 3"
    ]


def test_a_crash_excuses_pauses_of_the_killed_clients_shards_only() -> None:
    run = Run()
    run.events.append(
        Event(kind="kill", at=9.0, text="kill c", client="c", shards={(0, 7)})
    )
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), "b", epoch=2, late=3.6)
    assert run.verdict().faults == [
        "kill c: hand-overs after it: a pause of 3.5 s, allowed 3"
    ]


def test_a_slow_start_of_a_child_shard_is_a_fault() -> None:
    run = Run()
    run.events.append(Event(kind="split", at=0.9, text="split shard 0"))
    run.parents = {(0, 1): [SHARD]}
    run.put(10)
    run.put(5, first=11, shard=1)
    run.process(range(1, 11))
    run.process(range(11, 16), shard=1, late=4.6)
    assert run.verdict().faults == [
        "split shard 0: child after parents: a pause of 4.5 s, allowed 4"
    ]


def test_a_pause_without_a_cause_is_a_fault() -> None:
    run = Run()
    run.put(200)
    run.process(range(1, 99))
    run.process(range(99, 201), late=4.6)
    assert run.verdict().faults == ["otherwise: a pause of 4.5 s, allowed 4"]


def test_a_shard_without_waiting_records_has_no_pause() -> None:
    run = Run()
    run.put(10)
    run.put(10, first=901)
    run.process(range(1, 11))
    run.process(range(901, 911))
    assert run.verdict().faults == []


def test_faults_found_during_the_run_count() -> None:
    assert Run().verdict(["client-2 ended with status 1"]).faults == [
        "client-2 ended with status 1"
    ]
