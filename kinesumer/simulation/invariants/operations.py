"""Rules for pauses and seeks, which operators order."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from kinesumer.simulation.invariants.leases import require_int

if TYPE_CHECKING:
    from kinesumer.model.rows import Row
    from kinesumer.ports import Write
    from kinesumer.simulation.invariants.base import Checker
    from kinesumer.simulation.machine import Machine
    from kinesumer.simulation.trace import ShardTrace


class Pauses:
    """Checks I14 at each claim, by sessions that began after a pause."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._began: dict[str, float] = {}
        """When each session was registered."""
        self._since: dict[str, float] = {}
        """When each pause began, by stream ARN; "" stands for all streams."""

    @property
    def is_any(self) -> bool:
        """Whether any stream, or the whole app, is paused."""
        return bool(self._since)

    def registered(self, session: str) -> None:
        """Record that a session began."""
        self._began[session] = self._checker.now

    def group_write(
        self, _write: Write, _before: Row | None, after: Row | None
    ) -> None:
        """Record the pauses in a row of the group or of a stream."""
        if after is None:
            return
        arn = str(after["sk"]).partition("#")[2]
        if after.get("paused") is True:
            self._since.setdefault(arn, self._checker.now)
        else:
            self._since.pop(arn, None)

    def check_claim(self, before: Row, session: str) -> None:
        """Check that a claimed shard isn't paused."""
        name = f"{before['sk']} is claimed by {session}"
        if before.get("paused") is True:
            self._checker.fail("I14", f"{name}, but paused")
        for arn in ("", str(before["pk"]).split("#", 2)[2]):
            since = self._since.get(arn)
            if since is not None and self._began.get(session, since) > since:
                self._checker.fail("I14", f"{name}, which began after its pause")


class Seeks:
    """Checks I1 and I4 for seeks, and records the order of seeks."""

    def __init__(self, checker: Checker) -> None:
        self.operators: set[Machine] = set()
        self._checker = checker
        self._numbers = count(1)

    def created(self, trace: ShardTrace, row: Row) -> None:
        """Record where a shard begins whose row an operator created."""
        writer = self._checker.writer
        if writer is not None and writer in self.operators:
            first, epoch = trace.first_of(row), require_int(row["epoch"])
            trace.seek(first, epoch, writer.name, next(self._numbers))

    def is_seek(self, write: Write) -> bool:
        """Return whether a write to a shard's row is a seek."""
        return "epoch" in write.set and "claim" in write.remove

    def seeked(self, trace: ShardTrace, before: Row, after: Row) -> None:
        """Check a write by which an operator moved a shard's position."""
        checker, epoch = self._checker, require_int(after["epoch"])
        operator = checker.writer.name if checker.writer else "an unknown machine"
        if checker.writer not in self.operators:
            checker.fail(
                "I1", f"{operator} seeks {trace.shard_id} and is not an operator"
            )
        if epoch != require_int(before["epoch"]) + 1:
            checker.fail("I4", f"{trace.shard_id}: epoch {epoch} is seeked out of turn")
        if after.get("owner") != before.get("owner"):
            checker.fail("I4", f"{trace.shard_id}: a seek changes its owner")
        if after["ended"]:
            checker.fail("I1", f"{trace.shard_id} is seeked and still has ended")
        place = next(self._numbers)
        if before["ended"]:
            trace.reopened, trace.ended_at = (operator, place), None
        trace.seek(trace.first_of(after), epoch, operator, place)
