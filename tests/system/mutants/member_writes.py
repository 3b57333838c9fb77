"""Section 4: the conditions of writes to rows of members, leaders and streams."""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import drop, replace

writes = Module("wire.writes", "tests/unit/wire/test_writes.py::test_it_is_refused_by")
writes_simulated = Module("wire.writes")

MUTANTS = (
    # --- members
    writes(
        "register over anything",
        "4 Register",
        "register",
        replace("Compare('pk', 'absent')", "AllOf(())"),
    ),
    writes(
        "register over the living", "4 Register", "register", drop("_dead(replaced)")
    ),
    writes(
        "register over a later incarnation",
        "4 Register",
        "register",
        drop("as_read('incarnation', replaced.incarnation)"),
    ),
    writes(
        "heartbeat of another session",
        "4 Heartbeat",
        "heartbeat",
        drop("Compare('session', '=', member.session)"),
    ),
    writes(
        "heartbeat of the dead",
        "4 Heartbeat; 5 dead is for ever",
        "heartbeat",
        drop("ALIVE"),
    ),
    writes("heartbeat in any order", "4 Heartbeat", "heartbeat", drop("AnyOf(...)")),
    writes(
        "heartbeat accepted once only",
        "4 a lost answer",
        "heartbeat",
        replace("AnyOf(...)", "Compare('beat', '=', beat - 1)"),
        "tests/unit/wire/test_writes.py::test_it_is_applied_over",
    ),
    writes(
        "fence whoever has beaten since",
        "4 Fence; 5 stale reads are harmless",
        "fence",
        drop("as_read('beat', member.beat)"),
    ),
    writes(
        "fence another session",
        "4 Fence",
        "fence",
        drop("as_read('session', member.session)"),
    ),
    writes("fence the dead once more", "4 Fence", "fence", drop("ALIVE")),
    writes_simulated(
        "fence by deleting the row",
        "5 dead is for ever",
        "fence",
        replace("Write(key, condition, ...)", "Write(key, condition, delete=True)"),
    ),
    writes_simulated(
        "leave by deleting the row",
        "5 dead is for ever",
        "leave",
        replace("Write(key, condition, ...)", "Write(key, condition, delete=True)"),
    ),
    writes(
        "leave in the name of another session",
        "4 Leave",
        "leave",
        replace("Compare('session', '=', member.session)", "AllOf(())"),
    ),
    writes("prune the living", "4 Prune member", "prune_member", drop("_dead(member)")),
    writes(
        "prune another session",
        "4 Prune member",
        "prune_member",
        drop("as_read('session', member.session)"),
    ),
    # --- leader and plan
    writes(
        "lead though another was first",
        "4 Lead",
        "lead",
        replace("Compare('pk', 'absent')", "AllOf(())"),
    ),
    writes(
        "lead in place of anybody",
        "4 Lead",
        "lead",
        replace("Compare('session', '=', before.session)", "AllOf(())"),
    ),
    writes_simulated(
        "lead in the epoch of the one before",
        "4 Lead",
        "lead",
        replace(
            "1 + (before.leader_epoch if before else known_epoch)",
            "before.leader_epoch if before else 1 + known_epoch",
        ),
    ),
    writes(
        "publish without leading",
        "4 Publish",
        "publish",
        replace("(Compare(...), Compare(...))", "()"),
    ),
    writes(
        "publish in another term",
        "4 Publish",
        "publish",
        drop("Compare('leader_epoch', '=', leader.leader_epoch)"),
        simulated=False,
        note="A session leads once: its name stands for the term. Kept as written.",
    ),
    writes("assign an older plan", "4 Assign", "assign", drop("newer")),
    writes(
        "assign an older version of the same term",
        "4 Assign",
        "assign",
        drop("Compare('plan_version', ...)"),
    ),
    writes(
        "assign to another session",
        "4 Assign",
        "assign",
        drop("Compare('session', '=', member.session)"),
    ),
    writes("assign to the dead", "4 Assign", "assign", drop("ALIVE")),
    writes(
        "assign streams that aren't asked for any more",
        "4 Assign; 6",
        "assign",
        drop("Compare('streams', '=', member.streams)"),
    ),
    # --- groups and streams
    writes(
        "a group gets an identity again and again",
        "8 a state store made anew",
        "create_group",
        replace("Compare('pk', 'absent')", "AllOf(())"),
    ),
    writes(
        "a start is resolved again and again",
        "8 LATEST is resolved once",
        "create_stream",
        replace("Compare('pk', 'absent')", "AllOf(())"),
    ),
    writes(
        "a baseline of a stream made anew",
        "8 a stream created anew",
        "baseline",
        replace("Compare('stream_created_at', ...)", "Compare('pk', 'exists')"),
    ),
)
