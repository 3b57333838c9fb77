"""Turn a run of the simulator into traces of its leaders, plans and sessions."""

from __future__ import annotations

from typing import NamedTuple

from kinesumer.model.rows import Row
from kinesumer.ports import Write, WriteResult
from kinesumer.testing.simulation.invariants.base import (
    SessionLeases,
    require_int,
    required_values,
)
from kinesumer.testing.simulation.machine import Machine
from kinesumer.testing.simulation.simulation import Simulation
from tests.system.model.traces import Recorder

LEASE_STEPS = ("REGISTER", "SEND", "STORE", "ANSWER", "LEAVE", "MARK")
# More than the plans of a run. ``plans.pml`` makes one number of a leader epoch and a
# plan's version.
VERSIONS = 1_000
PLAN_STEPS = ("REGISTER", "DIE", "PRUNE", "LEAD", "PUBLISH", "ASSIGN")


class PlanEvent(NamedTuple):
    """A step, and the leader's and a member's row after it."""

    kind: str
    of_client: int
    of_session: int
    at_epoch: int  # the leader epoch that the write's condition or plan names
    at_version: int  # the version of the plan that the write assigns
    leader: int
    epoch: int
    version: int
    session: int
    plan: int


class LeaseEvent(NamedTuple):
    """A step of a member, and the milliseconds since the event before."""

    kind: str
    ticks: int
    of_client: int
    of_session: int
    by: int  # the client that marks another one dead


class PlanRecorder(Recorder[PlanEvent]):
    """Records who leads, and the plans that members get."""

    model, steps = "plans", PLAN_STEPS

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self._leader: Row = {}
        self._members: dict[str, Row] = {}
        self._clients: list[str] = []
        sim.store.on_write.append(self._written)

    def _written(self, write: Write, before: Row | None, after: Row | None) -> None:
        kind = write.key.pk.partition("#")[0]
        if kind == "leader":
            assert after is not None
            self._leader = after
            if before is not None and _plan(before) == _plan(after):
                return  # a late copy changes nothing
            change = "LEAD" if "session" in write.set else "PUBLISH"
            leader = self._clients.index(str(after["client_id"]))
            self._add(change, leader, after["session"], _plan(after))
        elif kind == "member":
            client_id = write.key.sk
            if client_id not in self._clients:
                self._clients.append(client_id)
            self._members[client_id] = after or {}
            row = after or before or {}
            plan = _plan(row)
            if (step := _member_step(write, before, after)) is not None:
                self._add(step, self._clients.index(client_id), row["session"], plan)

    def _add(
        self, kind: str, client: int, session: object, plan: tuple[int, int]
    ) -> None:
        member = self._members.get(self._clients[client], {})
        epoch, version = _plan(self._leader)
        own_epoch, own_version = _plan(member)
        self.events.append(
            PlanEvent(
                kind,
                client,
                self._number(session),
                *plan,
                self._number(self._leader.get("session", "")),
                epoch,
                version,
                self._number(member.get("session", "")),
                own_epoch * VERSIONS + own_version,
            )
        )

    def _macros(self) -> dict[str, str]:
        return {
            "CLIENTS": str(len(self._clients)),
            "GHOSTS": "0",
            "VERSIONS": str(VERSIONS),
        }


def _plan(row: Row) -> tuple[int, int]:
    epoch, version = row.get("leader_epoch", 0), row.get("plan_version", 0)
    return require_int(epoch), require_int(version)


def _member_step(write: Write, before: Row | None, after: Row | None) -> str | None:
    """Return the step of a write to a member's row; None if the model has none."""
    if after is None:
        return "PRUNE"
    if write.replace:
        return "REGISTER"
    if after["dead"] is True:
        return "DIE" if before is None or before["dead"] is not True else None
    return "ASSIGN" if "plan_version" in write.set else None


class LeaseRecorder(Recorder[LeaseEvent]):
    """Records heartbeats and deaths."""

    model, steps = "leases", LEASE_STEPS

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self._at_ms = 0
        self._lease_ms = 0
        self._clients: list[str] = []
        self._machines: dict[Machine, int] = {}  # whose client they run
        self._is_finished = False
        sim.checker.leases = _HeardLeases(self)
        # Before the checker forgets the writer.
        sim.store.on_write.insert(0, self._written)

    def _written(self, write: Write, before: Row | None, after: Row | None) -> None:
        if write.key.pk.partition("#")[0] != "member" or after is None:
            return
        machine, client_id = self._checker.writer, write.key.sk
        assert machine is not None
        if write.replace:
            if client_id not in self._clients:
                self._clients.append(client_id)
            self._machines[machine] = self._clients.index(client_id)
            self._lease_ms = require_int(after["lease_ms"])
            self.add("REGISTER", client_id, after["session"])
        elif write.set.get("dead") is True and before and before["dead"] is not True:
            # A process that waits for the session of its own id is no client of the
            # model. All clients of a trace look at once: another one waited as long.
            other = int(self._clients[0] == client_id)
            by = self._machines.get(machine, other)
            kind = "LEAVE" if self._clients[by] == client_id else "MARK"
            self.add(kind, client_id, after["session"], by)
        elif before is not None and after["beat"] != before["beat"]:
            self.add("STORE", client_id, after["session"])

    def finish(self) -> None:
        """Record nothing more. A group at peace sends heartbeats, and no more."""
        self._is_finished = True

    def add(self, kind: str, client_id: str, session: object, by: int = 0) -> None:
        """Record a step of a client. ``by`` is the client that marks it dead."""
        if self._is_finished:
            return
        client, at_ms = self._clients.index(client_id), round(1000 * self._loop.real)
        ticks, self._at_ms = at_ms - self._at_ms, at_ms
        self.events.append(LeaseEvent(kind, ticks, client, self._number(session), by))

    def _macros(self) -> dict[str, str]:
        return {
            "CLIENTS": str(len(self._clients)),
            "FENCE": str(self._lease_ms),
            "TRUST": f"({self._lease_ms} * 3 / 4)",
        }


class _HeardLeases(SessionLeases):
    """Tells a recorder of the first attempts of heartbeats, and of their answers."""

    def __init__(self, recorder: LeaseRecorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._beats: dict[str, int] = {}

    def sent(self, machine: Machine, write: Write) -> None:
        super().sent(machine, write)
        if "beat" not in write.set or write.replace:
            return
        session = str(dict(required_values(write.condition))["session"])
        beat = require_int(write.set["beat"])
        if beat > self._beats.get(session, 0):
            self._beats[session] = beat
            self._recorder.add("SEND", write.key.sk, session)

    def answered(self, machine: Machine, write: Write, written: WriteResult) -> None:
        super().answered(machine, write, written)
        if written.applied and "beat" in write.set and not write.replace:
            row = written.row
            assert row is not None
            self._recorder.add("ANSWER", write.key.sk, row["session"])
