"""Test that operators command a running fleet, also one with a record that kills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kinesumer.testing.trial.journal import Produced
from tests.system.process.client import DEATH_STATUS
from tests.system.process.fleet import Fleet, scenario


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


MAX_DEATHS = 5
RECORDS = 600


PATIENCE = 4  # of a fleet with many deaths, compared with others


class Supervisor:
    """Starts three processes, and starts each one again after its death."""

    def __init__(self, fleet: Fleet, **options: Any) -> None:
        self._fleet, self._options = fleet, options
        fleet.patience *= PATIENCE
        self._watched = fleet.start("a", "b", "c", **options)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for a condition, and replace the processes that die."""

        def look() -> bool:
            for client in list(self._watched):
                status = client.process.poll()
                if status is not None:
                    assert status in (DEATH_STATUS, -9), self._fleet.report()
                    self._watched.remove(client)
                    again = self._fleet.start(client.client_id, **self._options)
                    self._watched += again
            return holds()

        self._fleet.until(look, what)

    @property
    def deaths(self) -> list[str]:
        """The texts of the records at which processes died."""
        return texts(self._fleet, "dies")


def texts(fleet: Fleet, event: str) -> list[str]:
    return [e.text for c in fleet.clients for e in c.events if e.name == event]


def put(fleet: Fleet) -> tuple[str, Produced]:
    """Put records into a new stream; return its ARN and the deadly record."""
    arn = fleet.stream("orders", 4)
    fleet.producer.put(arn, RECORDS)
    return arn, fleet.producer.records[arn][RECORDS // 2]


def handled(fleet: Fleet) -> set[int]:
    return {h.number for h in fleet.handled()}


def goes_on(fleet: Fleet, **runs: Any) -> None:
    """Let a record kill processes whose target of dead letters takes it."""
    _, bad = put(fleet)
    supervisor = Supervisor(fleet, deadly=[bad.number], **runs)
    others = {*range(RECORDS)} - {bad.number}
    supervisor.until(lambda: handled(fleet) >= others, "all other records are handled")
    supervisor.until(lambda: texts(fleet, "dead letter") != [], "it is set aside")
    name = bad.data.decode()
    assert supervisor.deaths == [name] * len(supervisor.deaths)
    fleet.note(f"{len(supervisor.deaths)} deaths")
    assert len(supervisor.deaths) <= MAX_DEATHS
    fleet.pause(3)
    assert texts(fleet, "dead letter") == [name]
    fleet.leave()


@scenario
def test_its_shard_stops_until_a_seek_and_all_others_go_on(fleet: Fleet) -> None:
    arn, bad = put(fleet)
    supervisor = Supervisor(fleet, deadly=[bad.number])
    before = {
        p.number
        for p in fleet.producer.records[arn]
        if p.shard != bad.shard or p.position < bad.position
    }
    supervisor.until(lambda: handled(fleet) >= before, "all before it are handled")
    supervisor.until(
        lambda: fleet.look().shards[bad.shard].poison == bad.position, "it is named"
    )
    assert len(supervisor.deaths) <= MAX_DEATHS
    fleet.note(f"{len(supervisor.deaths)} deaths")
    fleet.leave()
    assert handled(fleet) == before

    # A restart of all processes kills none of them.
    supervisor = Supervisor(fleet, deadly=[bad.number])
    deaths = len(supervisor.deaths)
    fleet.settle("a", "b", "c")
    fleet.pause(2)
    assert handled(fleet) == before

    place = ("--stream", arn, "--shard", bad.shard.shard_id, "--to", bad.position.text)
    kinesumer(fleet, "seek", *place, "--yes")
    others = {*range(RECORDS)} - {bad.number}
    supervisor.until(lambda: handled(fleet) >= others, "the shard goes on")
    assert len(supervisor.deaths) == deaths
    assert not [e for e in texts(fleet, "failed") if e]
    fleet.leave()


@scenario
def test_it_becomes_a_dead_letter_of_handlers_in_threads(fleet: Fleet) -> None:
    goes_on(fleet, runs="thread", concurrency=4, delay=0.01)


@scenario
def test_it_becomes_a_dead_letter_of_the_blocking_client(fleet: Fleet) -> None:
    goes_on(fleet, blocking=True, runs="thread", delay=0.01)
