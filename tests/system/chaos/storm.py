"""One mishap after the other, each undone some time later, and clients replaced."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.system.process.client import Client
    from tests.system.process.fleet import AnyFleet

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)

QUIET_SECONDS = (0.3, 1.7)
"""Between two mishaps."""
SLOWEST_HANDLER = 0.01
"""Seconds for a record: a fleet at work is caught in the middle of its batches."""


class Mishap(NamedTuple):
    """Something that goes wrong."""

    name: str
    strike: Callable[[Storm], str | None]
    """Returns to whom it happened, or None if it couldn't."""
    weight: float = 1.0


class Storm:
    """What happens to a fleet."""

    def __init__(
        self,
        fleet: AnyFleet[Any],
        chance: random.Random,
        clients: int,
        streams: int,
        say: Callable[[str], None],
    ) -> None:
        self.fleet, self.chance = fleet, chance
        self.streams = streams
        """How many there are outside of storms."""
        self.counts: Counter[str] = Counter()
        self.unexpected: list[str] = []
        """Clients that ended by themselves, without a reason of ours."""
        self.removed: list[Any] = []
        """Streams that nobody consumes for a while."""
        self._clients, self._say = clients, say
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._leaving: dict[Client, str | None] = {}
        self._over: set[Client] = set()
        self._names = (f"client-{number:03d}" for number in range(10_000))
        self._began = now()

    # --- in time ---------------------------------------------------------------------

    def blow(self, seconds: float, mishaps: Sequence[Mishap]) -> None:
        """Let mishaps happen for so long, then undo what is still to be undone."""
        end = now() + seconds
        weights = [mishap.weight for mishap in mishaps]
        while now() < end:
            self._restore(now())
            self.supervise()
            [mishap] = self.chance.choices(mishaps, weights)
            whom = mishap.strike(self)
            if whom is not None:
                self.note(mishap.name, whom)
            self.fleet.pause(min(self.chance.uniform(*QUIET_SECONDS), end - now()))
        self.calm()

    def calm(self) -> None:
        """Undo everything, and wait until as many clients run as should."""
        self._restore(float("inf"))
        self.fleet.aws.clear_faults()
        for client in self.fleet.running:
            client.order(wall=0.0)
        self.fleet.until(self._is_complete, "all clients run")

    def later(self, undo: Callable[[], None]) -> None:
        """Undo something some time before others notice, or some time after."""
        leases = self.chance.choice(
            (self.chance.uniform(0.1, 1.0), self.chance.uniform(1.5, 4.0))
        )
        at = now() + leases * self.fleet.config["lease_duration_seconds"]
        self._undo.append((at, undo))

    def note(self, what: str, whom: str) -> None:
        """Count a mishap and say so."""
        self.counts[what] += 1
        self._say(f"{now() - self._began:7.1f} s  {what}: {whom}")

    def _restore(self, until: float) -> None:
        due = [undo for at, undo in self._undo if at <= until]
        self._undo = [(at, undo) for at, undo in self._undo if at > until]
        for undo in due:
            undo()

    # --- clients ---------------------------------------------------------------------

    def any(self) -> Client:
        """Return a client that isn't on its way out."""
        if not (found := self.staying):
            return self.join()
        return self.chance.choice(found)

    @property
    def staying(self) -> list[Client]:
        """The clients that run and weren't told to leave."""
        return [c for c in self.fleet.running if c not in self._leaving]

    def join(self, client_id: str | None = None) -> Client:
        """Start a client, under an old id or a new one."""
        [client] = self.fleet.start(
            client_id or next(self._names),
            cabled=True,
            rejoins=True,
            delay=self.chance.uniform(0, SLOWEST_HANDLER),
        )
        return client

    def kill(self, victim: Client) -> float:
        """Kill a client; return when."""
        at = victim.kill()
        self._over.add(victim)
        self._leaving.pop(victim, None)
        victim.close()
        return at

    def send_away(self, client: Client, successor: str | None = None) -> None:
        """Ask a client to leave; once it has, its successor starts."""
        self._leaving[client] = successor
        client.leave()

    def consume(self, streams: list[Any]) -> None:
        """Let every client consume these streams from now on."""
        self.fleet.streams = streams
        for client in self.fleet.running:
            client.order(consume=[stream.arn for stream in streams])

    def supervise(self) -> None:
        """Follow up on clients that have ended; start what is missing."""
        for client in self.fleet.clients:
            if client not in self._over and client.process.poll() is not None:
                self._over.add(client)
                self._ended(client)
                client.close()
        pending = sum(successor is not None for successor in self._leaving.values())
        for _ in range(self._clients - 1 - len(self.staying) - pending):
            self.join()

    def _ended(self, client: Client) -> None:
        failure, status = client.failure, client.process.returncode
        if client in self._leaving:
            successor = self._leaving.pop(client)
            if successor is not None:
                self.join(successor)
            # Who leaves while the store is down says so; who is asked before it can
            # listen dies of the signal.
            if status in (0, 3, -15) or failure.startswith("CommitTimeoutError: "):
                return
        if client.has("squeezed"):
            self.note("died of memory pressure", f"{client.client_id} {failure}")
            return
        self.unexpected.append(f"{client.client_id}: {status} {failure} {client.log}")

    def _is_complete(self) -> bool:
        self.supervise()
        for _ in range(self._clients - len(self.staying)):
            self.join()
        return not self._leaving
