"""Causes mishaps, undoes each of them some time later, and replaces clients."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kinesumer.testing.trial.journal import now
from tests.system.process.client import Client
from tests.system.process.fleet import Fleet

QUIET_SECONDS = (0.3, 1.7)  # between two mishaps
MAX_SQUEEZE_SECONDS = 4.0
# Handlers take up to this long per record, so mishaps interrupt their batches.
SLOWEST_HANDLER = 0.01
# With this probability, the next mishap is of a kind that hasn't occurred yet, if there
# is such a kind.
NEW_SHARE = 0.8


class Mishap(NamedTuple):
    """A kind of fault, and how often a storm chooses it."""

    name: str
    # Causes the mishap. Returns the name of the victim, or None if the mishap wasn't
    # possible.
    strike: Callable[[Storm], str | None]
    weight: float = 1.0


class Storm:
    """Causes mishaps in a fleet, and keeps the planned number of clients running."""

    def __init__(
        self,
        fleet: Fleet,
        chance: random.Random,
        clients: int,
        streams: int,
        fan_out: str | None,
        say: Callable[[str], None],
    ) -> None:
        self.fleet, self.chance = fleet, chance
        self.streams = streams  # the number of streams outside of storms
        self.counts: Counter[str] = Counter()
        # Clients that ended without a mishap that explains their end.
        self.unexpected: list[str] = []
        self.removed: list[Any] = []  # streams that no client consumes for a while
        self._clients, self._fan_out, self._say = clients, fan_out, say
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._leaving: dict[Client, str | None] = {}
        self._over: set[Client] = set()
        self._names = (f"client-{number:03d}" for number in range(10_000))
        self._began = now()

    # --- in time ---------------------------------------------------------------------

    def blow(self, seconds: float, mishaps: Sequence[Mishap]) -> None:
        """Cause mishaps for some seconds, and then undo those that still last."""
        end = now() + seconds
        while now() < end:
            self._restore(now())
            self.supervise()
            mishap = self._choose(mishaps)
            whom = mishap.strike(self)
            if whom is not None:
                self.note(mishap.name, whom)
            self.fleet.pause(min(self.chance.uniform(*QUIET_SECONDS), end - now()))
        self.calm()

    def _choose(self, mishaps: Sequence[Mishap]) -> Mishap:
        # Prefer new kinds, so that a short run sees every kind. Choose other kinds now
        # and then, since a new kind may not be possible at the moment.
        new = [m for m in mishaps if m.name not in self.counts]
        if new and self.chance.random() < NEW_SHARE:
            return self.chance.choice(new)
        return self.chance.choices(mishaps, [m.weight for m in mishaps])[0]

    def calm(self) -> None:
        """Undo all mishaps, and wait until the planned number of clients runs."""
        self._restore(float("inf"))
        self.fleet.aws.clear_faults()
        for client in self.fleet.running:
            client.order(wall=0.0)
        # A client can die of memory pressure until the pressure ends.
        self.fleet.pause(MAX_SQUEEZE_SECONDS)
        self.fleet.until(self._is_complete, "all clients run")

    def later(self, undo: Callable[[], None]) -> None:
        """Schedule an undo, either before or after other clients notice the mishap."""
        leases = self.chance.choice(
            (self.chance.uniform(0.1, 1.0), self.chance.uniform(1.5, 4.0))
        )
        at = now() + leases * self.fleet.config["lease_duration_seconds"]
        self._undo.append((at, undo))

    def note(self, what: str, whom: str) -> None:
        self.counts[what] += 1
        self._say(f"{now() - self._began:7.1f} s  {what}: {whom}")

    def _restore(self, until: float) -> None:
        due = [undo for at, undo in self._undo if at <= until]
        self._undo = [(at, undo) for at, undo in self._undo if at > until]
        for undo in due:
            undo()

    # --- clients ---------------------------------------------------------------------

    def any(self) -> Client:
        if not (found := self.staying):
            return self.join()
        return self.chance.choice(found)

    @property
    def staying(self) -> list[Client]:
        return [c for c in self.fleet.running if c not in self._leaving]

    def join(self, client_id: str | None = None) -> Client:
        [client] = self.fleet.start(
            client_id or next(self._names),
            cabled=True,
            rejoins=True,
            delay=self.chance.uniform(0, SLOWEST_HANDLER),
        )
        return client

    def kill(self, victim: Client) -> float:
        at = victim.kill()
        self._over.add(victim)
        self._leaving.pop(victim, None)
        victim.close()
        return at

    def send_away(self, client: Client, successor: str | None = None) -> None:
        """Ask a client to leave. Its successor starts after it has left."""
        self._leaving[client] = successor
        client.leave()

    def fan_out_of(self, number: int) -> str | None:
        """Return the consumer of the stream with a number: every second has one."""
        return self._fan_out if number % 2 else None

    def consume(self, streams: list[Any]) -> None:
        self.fleet.streams = streams
        for client in self.fleet.running:
            client.order(consume=streams)

    def supervise(self) -> None:
        """Handle clients that have ended, and start the missing ones."""
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
            # These ends are expected. A client that leaves during an outage of the
            # store raises CommitTimeoutError. A client that doesn't handle signals yet
            # is killed by the signal.
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
