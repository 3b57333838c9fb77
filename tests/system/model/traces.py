"""Turn a run of the simulator into traces for the models of ``schema/model``."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kinesumer.model.rows import Row
from kinesumer.ports import Write
from kinesumer.testing.simulation.invariants.base import (
    ShardTrace,
    require_int,
    required_values,
)
from kinesumer.testing.simulation.simulation import Simulation
from tests.system.model.checker import DIRECTORY

# The steps of a trace beside the requests that ``shards.pml`` names.
SHARD_STEPS = ("CREATE", "SEEK", "SOUGHT", "PAUSE", "RESUME", "DIE", "DELIVER")
E = TypeVar("E", bound=Any)  # a NamedTuple, whose fields are arrays of the model


class Recorder(Generic[E]):
    """Records the events of a simulation from its start."""

    model: str  # whose clients the trace replaces
    steps: tuple[str, ...]

    def __init__(self, sim: Simulation) -> None:
        self.events: list[E] = []
        self._checker = sim.checker
        self._loop = sim.loop
        self._sessions: list[str] = [""]

    def _number(self, session: object) -> int:
        if session not in self._sessions:
            self._sessions.append(str(session))
        return self._sessions.index(str(session))

    def changed(self, kind: str, change: Callable[[E], E]) -> str:
        """Return the model with the first event of a kind changed."""
        events = list(self.events)
        index = next(n for n, event in enumerate(events) if event.kind == kind)
        events[index] = change(events[index])
        return self.replacing(events)

    def replacing(self, events: Sequence[E] = ()) -> str:
        """Return the model with events, by default the run's, in place of clients."""
        events = events or self.events
        macros = {
            "TRACE": "1",
            "MISTAKE": "0",
            "SESSIONS": str(len(self._sessions)),
            "EVENTS": str(len(events)),
            **self._macros(),
        }
        lines = [f"#define {name} {value}" for name, value in macros.items()]
        lines.append((DIRECTORY / f"{self.model}.pml").read_text())
        lines.append(f"mtype = {{{', '.join(self.steps)}}};")
        lines.append(
            f"mtype kind[EVENTS] = {{{', '.join(event.kind for event in events)}}};"
        )
        fields: tuple[str, ...] = events[0]._fields
        for field in fields[1:]:
            values = ", ".join(str(int(getattr(event, field))) for event in events)
            lines.append(f"int {field}[EVENTS] = {{{values}}};")
        return "\n".join([*lines, (DIRECTORY / f"{self.model}_trace.pml").read_text()])

    def _macros(self) -> dict[str, str]:
        raise NotImplementedError


class ShardEvent(NamedTuple):
    """A step, and the shard's row after it. The fields are the arrays of the model."""

    kind: str
    of_shard: int
    of_session: int
    at_epoch: int  # the epoch that the write's condition names
    of_owner: int  # the owner that a claim replaces
    done_at: int  # how many records of the shard user code has done
    owner: int
    epoch: int
    position: int
    is_ended: bool
    is_ready: bool


class ShardRecorder(Recorder[ShardEvent]):
    """Records what happens to the shards of one stream."""

    model, steps = "shards", SHARD_STEPS

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self._shards: list[ShardTrace] = []
        self._times: list[float] = []
        sim.store.on_write.append(self._written)

    def finish(self) -> None:
        """Insert the first delivery of each owner, at the end of the run."""
        deliveries = [
            (ownership.started_at, number, ownership.epoch, ownership.session)
            for number, trace in enumerate(self._shards)
            for ownership in trace.ownerships.values()
            if ownership.started_at is not None
        ]
        for at, shard, epoch, session in sorted(deliveries):
            index = bisect_right(self._times, at)
            before = self.events[:index]
            last = next(e for e in reversed(before) if e.of_shard == shard)
            if last.epoch == epoch:  # else a seek has come, which the owner didn't see
                number = self._number(session)
                event = last._replace(
                    kind="DELIVER", of_session=number, at_epoch=epoch, of_owner=0
                )
                self._times.insert(index, at)
                self.events.insert(index, event)

    def sought(self) -> None:
        """Record that a seek has reached all shards."""
        self._add("SOUGHT", self._shards[0], "")

    def _written(self, write: Write, before: Row | None, after: Row | None) -> None:
        kind = write.key.pk.partition("#")[0]
        has_died = kind == "member" and write.set.get("dead") is True
        if has_died and before is not None and self._shards:
            self._add("DIE", self._shards[0], str(before["session"]))
        if kind != "shard" or after is None:
            return
        shard_id = write.key.sk.partition("/")[2]
        arn = write.key.pk.split("#", 2)[2]
        trace = self._checker.shards[arn, shard_id]
        if before is None:
            self._shards.append(trace)
            self._add("CREATE", trace, "")
        elif self._checker.seeks.is_seek(write):
            self._add("SEEK", trace, "")
        elif (step := _kind(write)) is not None:
            required = dict(required_values(write.condition))
            owner = str(required.get("owner", ""))
            # A claim names the owner that it replaces, the others their own session.
            session = str(after["owner"]) if step == "CLAIM" else owner
            replaced = owner if step == "CLAIM" and before.get("owner") else ""
            self._add(
                step,
                trace,
                session,
                at_epoch=require_int(required.get("epoch", 0)),
                replaced=replaced,
            )

    def _add(
        self,
        kind: str,
        trace: ShardTrace,
        session: str,
        *,
        at_epoch: int = 0,
        replaced: str = "",
    ) -> None:
        row = trace.row
        assert row is not None
        self._times.append(self._loop.real)
        self.events.append(
            ShardEvent(
                kind,
                self._shards.index(trace),
                self._number(session),
                at_epoch,
                self._number(replaced),
                trace.done_until,
                self._number(str(row.get("owner", ""))),
                require_int(row["epoch"]),
                trace.first_of(row),
                bool(row["ended"]),
                bool(row["ready"]),
            )
        )

    def _macros(self) -> dict[str, str]:
        ids = [trace.shard_id for trace in self._shards]
        parents = [
            f"(s != {index} || row[{ids.index(parent)}].ended)"
            for index, trace in enumerate(self._shards)
            for parent in trace.parents
            if parent in ids
        ]
        lengths = [f"s == {n} -> {len(t.log)} : (" for n, t in enumerate(self._shards)]
        return {
            "SHARDS": str(len(ids)),
            "PARENTS_ENDED(s)": f"({' && '.join(parents) or 'true'})",
            "RECORDS_OF(s)": f"({''.join(lengths)}0{')' * len(lengths)})",
        }


def _kind(write: Write) -> str | None:
    """Return the step of a write to a shard's row; None if the model has none."""
    if "epoch" in write.set:
        return "CLAIM"
    if write.set.get("ended") is True:
        return "END"
    if "owner" in write.remove:
        return "RELEASE"
    if "sequence_number" in write.set:
        return "COMMIT"
    if write.set == {"ready": True}:
        return "READY"
    if "paused" in write.set:
        return "PAUSE"
    return "RESUME" if "paused" in write.remove else None
