"""Section 4: the condition of each write, dropped or bent."""

from __future__ import annotations

from tests.mutants.mutant import mutant

WRITES = "wire/writes.py"
REFUSES = "tests/wire/test_writes.py::test_it_is_refused_by"

MUTANTS = (
    # --- members
    mutant(
        "register over anything",
        "4 Register",
        WRITES,
        'condition: Condition = Test("pk", "absent")\n    if replaced is not None',
        "condition: Condition = All(())\n    if replaced is not None",
        REFUSES,
    ),
    mutant(
        "register over the living",
        "4 Register",
        WRITES,
        "                _dead(replaced),\n",
        "",
        REFUSES,
    ),
    mutant(
        "register over a later incarnation",
        "4 Register",
        WRITES,
        '                as_read("incarnation", replaced.incarnation),\n',
        "",
        REFUSES,
    ),
    mutant(
        "heartbeat of another session",
        "4 Heartbeat",
        WRITES,
        '            Test("session", "=", member.session),\n'
        "            ALIVE,\n"
        '            Either((Test("beat", "=", beat - 1)',
        '            ALIVE,\n            Either((Test("beat", "=", beat - 1)',
        REFUSES,
    ),
    mutant(
        "heartbeat of the dead",
        "4 Heartbeat; 5 dead is for ever",
        WRITES,
        '            ALIVE,\n            Either((Test("beat", "=", beat - 1)',
        '            Either((Test("beat", "=", beat - 1)',
        REFUSES,
    ),
    mutant(
        "heartbeat in any order",
        "4 Heartbeat",
        WRITES,
        '            Either((Test("beat", "=", beat - 1), Test("beat", "=", beat))),\n',
        "",
        REFUSES,
    ),
    mutant(
        "heartbeat accepted once only",
        "4 a lost answer",
        WRITES,
        'Either((Test("beat", "=", beat - 1), Test("beat", "=", beat)))',
        'Test("beat", "=", beat - 1)',
        "tests/wire/test_writes.py::test_it_is_applied_over",
    ),
    mutant(
        "fence whoever has beaten since",
        "4 Fence; 5 stale reads are harmless",
        WRITES,
        '            as_read("beat", member.beat),\n',
        "",
        REFUSES,
    ),
    mutant(
        "fence another session",
        "4 Fence",
        WRITES,
        '            as_read("session", member.session),\n'
        '            as_read("beat", member.beat),\n',
        '            as_read("beat", member.beat),\n',
        REFUSES,
    ),
    mutant(
        "fence the dead once more",
        "4 Fence",
        WRITES,
        '            as_read("beat", member.beat),\n            ALIVE,\n',
        '            as_read("beat", member.beat),\n',
        REFUSES,
    ),
    mutant(
        "fence by deleting the row",
        "5 dead is for ever",
        WRITES,
        "            ALIVE,\n        )\n    )\n"
        "    key = rows.member_key(app, member.client_id)\n"
        '    return Write(key, condition, {"dead": True, "last_update": moment})',
        "            ALIVE,\n        )\n    )\n"
        "    key = rows.member_key(app, member.client_id)\n"
        "    return Write(key, condition, delete=True)",
    ),
    mutant(
        "leave by deleting the row",
        "5 dead is for ever",
        WRITES,
        '    condition = Test("session", "=", member.session)\n'
        "    key = rows.member_key(app, member.client_id)\n"
        '    return Write(key, condition, {"dead": True, "last_update": moment})',
        '    condition = Test("session", "=", member.session)\n'
        "    key = rows.member_key(app, member.client_id)\n"
        "    return Write(key, condition, delete=True)",
    ),
    mutant(
        "leave in the name of another session",
        "4 Leave",
        WRITES,
        '    condition = Test("session", "=", member.session)\n    key',
        "    condition = All(())\n    key",
        REFUSES,
    ),
    mutant(
        "prune the living",
        "4 Prune member",
        WRITES,
        "            _dead(member),\n",
        "",
        REFUSES,
    ),
    mutant(
        "prune another session",
        "4 Prune member",
        WRITES,
        '            _dead(member),\n            as_read("session", member.session),\n',
        "            _dead(member),\n",
        REFUSES,
    ),
    # --- leader and plan
    mutant(
        "lead though another was first",
        "4 Lead",
        WRITES,
        'condition: Condition = Test("pk", "absent")\n    if before is not None',
        "condition: Condition = All(())\n    if before is not None",
        REFUSES,
    ),
    mutant(
        "lead in place of anybody",
        "4 Lead",
        WRITES,
        'condition = Test("session", "=", before.session)',
        "condition = All(())",
        REFUSES,
    ),
    mutant(
        "lead in the epoch of the one before",
        "4 Lead",
        WRITES,
        "1 + (before.leader_epoch if before else known_epoch)",
        "before.leader_epoch if before else 1 + known_epoch",
    ),
    mutant(
        "publish without leading",
        "4 Publish",
        WRITES,
        '            Test("session", "=", leader.session),\n'
        '            Test("leader_epoch", "=", leader.leader_epoch),\n',
        "",
        REFUSES,
    ),
    mutant(
        "publish in another term",
        "4 Publish",
        WRITES,
        '            Test("leader_epoch", "=", leader.leader_epoch),\n',
        "",
        REFUSES,
        simulated=False,
        note="A session leads once: its name stands for the term. Kept as written.",
    ),
    mutant(
        "assign an older plan",
        "4 Assign",
        WRITES,
        '            Test("streams", "=", member.streams),\n            newer,\n',
        '            Test("streams", "=", member.streams),\n',
        REFUSES,
    ),
    mutant(
        "assign an older version of the same term",
        "4 Assign",
        WRITES,
        'All((Test("leader_epoch", "=", epoch), Test("plan_version", "<", version)))',
        'Test("leader_epoch", "=", epoch)',
        REFUSES,
    ),
    mutant(
        "assign to another session",
        "4 Assign",
        WRITES,
        '            Test("session", "=", member.session),\n'
        "            ALIVE,\n"
        '            Test("streams"',
        '            ALIVE,\n            Test("streams"',
        REFUSES,
    ),
    mutant(
        "assign to the dead",
        "4 Assign",
        WRITES,
        '            ALIVE,\n            Test("streams"',
        '            Test("streams"',
        REFUSES,
    ),
    mutant(
        "assign streams that aren't asked for any more",
        "4 Assign; 6",
        WRITES,
        '            Test("streams", "=", member.streams),\n            newer,\n',
        "            newer,\n",
        REFUSES,
    ),
    # --- groups and streams
    mutant(
        "a group gets an identity again and again",
        "8 a state store made anew",
        WRITES,
        'Write(rows.group_key(app), Test("pk", "absent"), values)',
        "Write(rows.group_key(app), All(()), values)",
        REFUSES,
    ),
    mutant(
        "a start is resolved again and again",
        "8 LATEST is resolved once",
        WRITES,
        'Write(rows.stream_key(app, stream.arn), Test("pk", "absent"), values)',
        "Write(rows.stream_key(app, stream.arn), All(()), values)",
        REFUSES,
    ),
    mutant(
        "a baseline of a stream made anew",
        "8 a stream created anew",
        WRITES,
        'Test("stream_created_at", "=", repr(stream.created_at))',
        'Test("pk", "exists")',
        REFUSES,
    ),
)
