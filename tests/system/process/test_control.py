"""Test that operators can seek, pause and drain while processes consume."""

from __future__ import annotations

from collections import Counter

from tests.system.process.fleet import Fleet
from tests.system.process.scenarios import scenario


def kinesumer(fleet: Fleet, *arguments: str) -> str:
    place = ("--app", fleet.app, "--table", fleet.table)
    status, output = fleet.command(*arguments, *place)
    assert status == 0, f"{output}\n{fleet.report()}"
    return output


def times(fleet: Fleet) -> Counter[int]:
    return Counter(handled.number for handled in fleet.handled())


def numbers(fleet: Fleet, arn: str) -> set[int]:
    return {produced.number for produced in fleet.producer.records[arn]}


@scenario
def test_a_seek_back_repeats_all_after_it_and_nothing_else_in_a_running_fleet(
    fleet: Fleet,
) -> None:
    arn = fleet.stream("orders", 4)
    fleet.started("a", "b", "c")
    fleet.produce(200)
    fleet.pause(1)
    fleet.aws.split(arn, fleet.aws.open_shards(arn)[0])
    *_, left, right = fleet.aws.open_shards(arn)
    fleet.aws.merge(arn, left, right)
    fleet.pause(1)
    fleet.drain()
    fleet.settle("a", "b", "c")
    every = numbers(fleet, arn)

    told = kinesumer(fleet, "seek", "--all", "--to=TRIM_HORIZON", "--yes")
    assert "3 of them ended and read again" in told
    assert "moved 7 shards" in told
    fleet.until(lambda: times(fleet).total() >= 2 * len(every), "all comes again")
    fleet.pause(1)
    assert times(fleet) == dict.fromkeys(every, 2)

    # A seek to a position of one shard repeats its later records, and no others.
    produced = [p for p in fleet.producer.records[arn] if p.shard.shard_id[-1] == "6"]
    middle = produced[len(produced) // 2].position
    place = f"{middle.sequence_number}" + (
        "" if middle.sub_sequence_number is None else f":{middle.sub_sequence_number}"
    )
    shard = ("--stream", arn, "--shard", produced[0].shard.shard_id)
    kinesumer(fleet, "seek", *shard, "--to", place, "--yes")
    later = {p.number for p in produced if p.position > middle}
    assert later
    wanted = {number: 2 + (number in later) for number in every}
    fleet.until(lambda: times(fleet).total() >= sum(wanted.values()), "they come again")
    fleet.pause(0.5)
    assert times(fleet) == wanted
    fleet.leave()


@scenario
def test_a_pause_outlives_a_restart_and_a_drained_client_empties_in_seconds(
    fleet: Fleet,
) -> None:
    arn = fleet.stream("orders", 4)
    fleet.started("a", "b", "c")
    fleet.produce()
    fleet.pause(0.5)
    told = kinesumer(fleet, "pause", "--all", "--reason=night work")
    assert told == "all streams are paused: night work\nno client consumes it\n"
    fleet.leave()
    handled = times(fleet)
    fleet.start("a", "b", "c")
    fleet.until(lambda: set(fleet.look().live) == {"a", "b", "c"}, "all are back")
    fleet.pause(2)
    assert times(fleet) == handled

    kinesumer(fleet, "resume", "--all")
    fleet.settle("a", "b", "c")
    fleet.catch_up()
    told = kinesumer(fleet, "drain", "b")
    assert told == "b is drained\nit consumes nothing\n"
    assert not fleet.owned("b")
    fleet.drain()
    assert len(fleet.owned("a")) == len(fleet.owned("c")) == 2
    kinesumer(fleet, "drain", "b", "--undo")
    fleet.until(lambda: fleet.owned("b"), "b has shards again")
    fleet.leave()
    assert set(times(fleet)) == numbers(fleet, arn)
    fleet.finish()
