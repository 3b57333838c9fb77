"""Test that a record that kills each process that gets it doesn't stop a fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinesumer.testing.trial.journal import Produced
from tests.system.process.fleet import Fleet
from tests.system.process.scenarios import scenario
from tests.system.process.test_control import kinesumer
from tests.system.process.worker import DEATH_STATUS

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
    name = f"{bad.number} {bad.key}"
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
