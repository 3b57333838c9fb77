"""The state store of a replayed client until its recording begins."""

from __future__ import annotations

from collections.abc import Iterable

from kinesumer.model.rows import Key, Row
from kinesumer.model.streams import Interval
from kinesumer.ports import Compare, Write
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.memory_store import MemoryStore
from kinesumer.testing.simulation.replay.ports import row_of
from kinesumer.testing.simulation.replay.recorded_run import RecordedRun
from kinesumer.wire import rows

# What a plan writes into a member's row.
PLAN = ("range", "index", "clients", "leader_epoch", "plan_version", "keeps")
# The client registers before it learns its range, as every client does.
PLAN_AT_SECONDS = 0.05


class EarlierStore:
    """The rows that the client knew when its recording began.

    A client that starts with its old session finds its member row, and claims again
    what it owned, so that sessions and epochs are those of the recording.
    """

    def __init__(self, run: RecordedRun, loop: VirtualLoop) -> None:
        self.store: MemoryStore = MemoryStore(loop.services)
        self.sessions: list[str] = []  # the session that the client had, if any
        if run.known is None:
            return
        found = {Key(*key): row_of(row, {}) for key, row in run.known.rows.items()}
        key = rows.member_key(run.app, run.client_id)
        own = found.get(key)
        if own is not None and own.get("dead") is False:
            self.sessions.append(str(own["session"]))
            plan = {name: own.pop(name) for name in PLAN if name in own}
            if plan:
                plan |= _plan_of_owned(found.values(), {**own, **plan})
            own["beat"] = 0
            write = Write(key, Compare("pk", "exists"), plan)
            loop.at_real(PLAN_AT_SECONDS, self.store.write_now, write)
        for row in found.values():
            self._give_up(row)
        told = run.known.answers.get(("verify", ""), {"result": "table"})
        self.store.restore([*found.values()], told["result"])

    def _give_up(self, row: Row) -> None:
        """Undo the claim of a shard that the client owned."""
        if row.get("owner") in self.sessions and isinstance(row["epoch"], int):
            row["epoch"] -= 1


def _plan_of_owned(found: Iterable[Row], own: Row) -> Row:
    """Return the changes of an own row to a plan before, with all that is owned.

    So the client claims nothing else before the recording. Its first recorded heartbeat
    brings the later plan, by which some of the shards may be moving.
    """
    member = rows.read_member(own)
    shards = map(
        rows.read_shard, (r for r in found if r.get("owner") == member.session)
    )
    owned = [Interval(s.key.stream_arn, s.first_hash, s.last_hash) for s in shards]
    return {
        "range": rows.range_text(tuple(sorted(owned)), member.streams),
        "plan_version": max(0, member.plan_version - 1),
    }
