"""Everything at once: what no scenario thought of."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from tests.process.scenarios import scenario
from tests.process.test_reshards import merge_last_two, split_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.cable import State
    from tests.process.fleet import Client, Fleet

SECONDS = float(os.environ.get("KINESUMER_CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("KINESUMER_CHAOS_SEED", "1"))
CLIENTS = 3


class Chaos:
    """Does one thing after the other to a fleet, and undoes it some time later."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.log: list[str] = []
        self._fleet, self._chance = fleet, random.Random(seed)
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._names = iter(f"client-{number:03d}" for number in range(1000))
        self._mishaps = [
            self._kill,
            self._freeze,
            self._replace,
            self._reshard,
            self._cut_off,
            self._break_aws,
            self._block,
        ]

    def run(self, seconds: float) -> None:
        """Go on for this long, then undo what is still to be undone."""
        for _ in range(CLIENTS):
            self._join()
        for second in range(round(seconds)):
            self._restore(second)
            if second > 3 and self._chance.random() < 0.7:
                self._chance.choice(self._mishaps)(second)
            self._fleet.pause(self._chance.uniform(0.5, 1.5))
        self._restore(float("inf"))

    def _restore(self, until: float) -> None:
        due = [undo for at, undo in self._undo if at <= until]
        self._undo = [(at, undo) for at, undo in self._undo if at > until]
        for undo in due:
            undo()

    def _later(self, second: int, undo: Callable[[], None]) -> None:
        lease = self._fleet.config["lease_seconds"]
        self._undo.append((second + self._chance.uniform(0.2, 2.5) * lease, undo))

    def _any(self) -> Client:
        if not self._fleet.running:
            self._join()
        return self._chance.choice(self._fleet.running)

    def _note(self, what: str, whom: str) -> None:
        self.log.append(f"{what} {whom}")

    # --- mishaps ---------------------------------------------------------------------

    def _join(self, client_id: str | None = None) -> None:
        self._fleet.start(client_id or next(self._names), cabled=True)

    def _kill(self, second: int) -> None:
        victim = self._any()
        self._note("kill", victim.client_id)
        victim.kill()
        same = self._chance.random() < 0.5
        self._later(second, lambda: self._join(victim.client_id if same else None))

    def _freeze(self, second: int) -> None:
        victim = self._any()
        self._note("freeze", victim.client_id)
        victim.freeze()
        self._later(second, victim.thaw)

    def _replace(self, second: int) -> None:
        victim = self._any()
        self._note("replace", victim.client_id)
        victim.leave()
        self._join()

    def _reshard(self, second: int) -> None:
        arn = self._chance.choice(self._fleet.arns)
        few = len(self._fleet.aws.open_shards(arn)) < 5
        self._note("split" if few else "merge", arn.rpartition("/")[2])
        (split_first if few else merge_last_two)(self._fleet, arn)

    def _cut_off(self, second: int) -> None:
        victim = self._any()
        service = self._chance.choice(("dynamodb", "kinesis"))
        ways: tuple[State, ...] = ("cut", "silent", "one-way")
        way = self._chance.choice(ways)
        self._note(f"{way} {service}", victim.client_id)
        victim.cables[service].set(way)
        self._later(second, lambda: victim.cables[service].set("whole"))

    def _break_aws(self, second: int) -> None:
        kind = self._chance.choice(("refuse", "drop", "error", "throttle"))
        which = self._chance.choice(("dynamodb", "kinesis"))
        mine = {"dynamodb": self._fleet.table, "kinesis": self._fleet.arns[0]}
        self._note(kind, which)
        number = self._fleet.aws.fault(
            kind,  # type: ignore[arg-type]
            service=which,
            resource=mine[which],
            probability=self._chance.choice((0.2, 0.6, 1.0)),
        )
        self._later(second, lambda: self._fleet.aws.clear_faults(number))

    def _block(self, second: int) -> None:
        victim = self._any()
        self._note("block", victim.client_id)
        victim.order(block=self._chance.uniform(0.5, 8))


@scenario
def test_whatever_happens_nothing_is_lost(fleet: Fleet) -> None:
    fleet.stream("orders", 2)
    fleet.stream("payments", 3)
    fleet.produce(60)
    chaos = Chaos(fleet, SEED)
    chaos.run(SECONDS)
    fleet.note(f"seed {SEED}: {', '.join(chaos.log)}")
    fleet.drain()
    fleet.until(
        lambda: set(fleet.look().live) == {c.client_id for c in fleet.running},
        "whoever runs is a member",
    )
    fleet.settle(*{c.client_id for c in fleet.running})
    fleet.leave()

    failures = [client.failure for client in fleet.clients if client.failure]
    # Who leaves while the store is down says so; nothing else ends a client.
    assert all(failure.startswith("TimeoutError: ") for failure in failures)
    fleet.note(f"repeated: {fleet.verdict().duplicates} of {len(fleet.handled())}")
