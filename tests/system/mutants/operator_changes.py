"""The reaction of clients to pauses, drains and seeks."""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import drop, replace

OF_CONTROL = "tests/unit/coordination/test_group_control.py"
OF_PAUSES = "tests/unit/coordination/test_lease_coordinator_control.py"
group = Module("coordination.group", OF_CONTROL)
heartbeat = Module(
    "coordination.heartbeat", "tests/unit/coordination/test_heartbeat.py"
)
operators = Module("wire.admin_writes", "tests/unit/wire/test_admin_writes.py")
ownership = Module("core.claims", "tests/unit/core/test_claims.py")
paused = Module("coordination.pauses", OF_PAUSES)
plan = Module("core.plan", "tests/unit/core/test_plan.py")
lease_coordinator = Module("coordination.lease_coordinator", OF_PAUSES)
stale_leases = Module("coordination.stale_leases", OF_CONTROL)
writes = Module("wire.writes", "tests/unit/wire/test_writes.py")

MUTANTS = (
    writes(
        "a claim takes what is paused",
        "a pause holds",
        "claim",
        drop("Compare('paused', 'absent')"),
    ),
    paused(
        "a pause of a stream is read once",
        "a pause holds",
        "PauseCache.refresh",
        replace("noticed or now >= self._next_read", "self._next_read < 0"),
    ),
    lease_coordinator(
        "who holds a shard goes on though it is paused",
        "a pause holds",
        "LeaseCoordinator._apply_operator_change",
        drop("self._begin_hand_over(owned)"),
    ),
    ownership(
        "a seek is a lost shard",
        "a seek holds",
        "was_seeked",
        replace("now.owner == mine.owner and now.epoch > mine.epoch", "False"),
    ),
    ownership(
        "who was sought away waits for its own death",
        "a seek holds",
        "decide_claims",
        replace("row.owner in ('', session)", "not row.owner"),
    ),
    stale_leases(
        "a sought shard outside the range is kept",
        "a seek holds",
        "StaleLeases.release",
        drop("not inside"),
    ),
    group(
        "what is done before a seek is lost",
        "a seek holds",
        "GroupConsumer.ack",
        drop("if ... and self.session.shards.was_seeked(...): ..."),
    ),
    writes(
        "a child is opened by what was true before the seek",
        "parents first",
        "ready",
        replace("Compare('epoch', '=', shard.epoch)", "Compare('pk', 'exists')"),
    ),
    operators(
        "a sought child doesn't wait",
        "parents first",
        "seek",
        drop("values['ready'] = False"),
    ),
    plan(
        "the drained get shards",
        "a drained client is planned without",
        "is_departing",
        drop("member.drained"),
    ),
    heartbeat(
        "a drained session forgets it when it dies",
        "a drained client stays so",
        "Heartbeater._register",
        replace("(...)._replace(drained=drained)", "self._member(session, before)"),
    ),
)
