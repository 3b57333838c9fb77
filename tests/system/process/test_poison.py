"""Test that a record that kills each process that gets it doesn't stop a fleet."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.system.process.scenarios import scenario
from tests.system.process.test_control import kinesumer
from tests.system.process.worker import DEATH_STATUS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.testing.trial.journal import Produced
    from tests.system.process.fleet import Fleet

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


def put(fleet: Fleet, fan_out: str | None = None) -> tuple[str, Produced]:
    """Put records into a new stream; return its ARN and the deadly record."""
    arn = fleet.stream("orders", 4, fan_out)
    fleet.producer.put(arn, RECORDS)
    return arn, fleet.producer.records[arn][RECORDS // 2]


def handled(fleet: Fleet) -> set[int]:
    return {h.number for h in fleet.handled()}


def stops(fleet: Fleet, **runs: Any) -> tuple[str, Produced, set[int]]:
    """Let a record stop its shard. Return the numbers of the records before it."""
    arn, bad = put(fleet)
    supervisor = Supervisor(fleet, deadly=[bad.number], **runs)
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
    return arn, bad, before


def goes_on(fleet: Fleet, fan_out: str | None = None, **runs: Any) -> None:
    """Let a record kill processes whose target of dead letters takes it."""
    _, bad = put(fleet, fan_out)
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
    arn, bad, before = stops(fleet)
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
def test_it_becomes_a_dead_letter_of_async_handlers(fleet: Fleet) -> None:
    goes_on(fleet, runs="record", delay=0.01)


@scenario
def test_it_becomes_a_dead_letter_of_handlers_in_threads(fleet: Fleet) -> None:
    goes_on(fleet, runs="thread", concurrency=4, delay=0.01)


@scenario
def test_it_becomes_a_dead_letter_of_handlers_of_batches(fleet: Fleet) -> None:
    goes_on(fleet, runs="batch")


@scenario
def test_it_becomes_a_dead_letter_of_a_stream_read_by_fan_out(fleet: Fleet) -> None:
    goes_on(fleet, "poisoned", runs="record", delay=0.01)


@scenario
def test_it_becomes_a_dead_letter_of_the_blocking_client(fleet: Fleet) -> None:
    goes_on(fleet, blocking=True, runs="thread", delay=0.01)


@scenario
def test_it_stops_its_shard_in_a_blocking_loop_that_acks(fleet: Fleet) -> None:
    fleet.config["commit"] = "manual"
    stops(fleet, blocking=True)


@scenario
def test_random_kills_isolate_no_shard_with_traffic(fleet: Fleet) -> None:
    fleet.stream("orders", 4)
    draw = random.Random(1)
    supervisor = Supervisor(fleet)
    fleet.settle("a", "b", "c")
    fleet.produce(100)
    for _ in range(6):
        supervisor.until(lambda: len(fleet.running) == 3, "all run")
        fleet.pause(1 + 3 * draw.random())
        draw.choice(fleet.running).kill()
    supervisor.until(lambda: len(fleet.running) == 3, "all run")
    fleet.settle("a", "b", "c")
    seen = [row for s in fleet.watcher.history for row in s.shards.values()]
    assert not any(row.is_isolated for row in seen)
    fleet.finish(takeovers=6)
