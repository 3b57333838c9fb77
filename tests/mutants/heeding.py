"""What clients make of pauses, drains and seeks."""

from __future__ import annotations

from tests.mutants.mutant import mutant

OF_CONTROL = "tests/test_group_control.py"
OF_PAUSES = "tests/test_rounds_control.py"
OF_OWNERSHIP = "tests/core/test_ownership.py"
OF_WRITES = "tests/wire/test_writes.py"

MUTANTS = (
    mutant(
        "a claim takes what is paused",
        "a pause holds",
        "wire/writes.py",
        '            Test("paused", "absent"),\n',
        "",
        OF_WRITES,
    ),
    mutant(
        "a pause of a stream is read once",
        "a pause holds",
        "paused.py",
        "        if noticed or now >= self._next_read:\n",
        "        if self._next_read < 0:\n",
        OF_PAUSES,
    ),
    mutant(
        "who holds a shard goes on though it is paused",
        "a pause holds",
        "rounds.py",
        "            self._begin_hand_over(holding)\n\n    def _seek_away",
        "            pass\n\n    def _seek_away",
        OF_PAUSES,
    ),
    mutant(
        "a seek is a lost shard",
        "a seek holds",
        "core/ownership.py",
        "return now.owner == mine.owner and now.epoch > mine.epoch",
        "return False",
        OF_OWNERSHIP,
    ),
    mutant(
        "who was sought away waits for its own death",
        "a seek holds",
        "core/ownership.py",
        'if row.owner in ("", session) or row.owner in dead:',
        "if not row.owner or row.owner in dead:",
        OF_OWNERSHIP,
    ),
    mutant(
        "a sought shard outside the range is kept",
        "a seek holds",
        "strays.py",
        "(row.key in keys or not inside)",
        "row.key in keys",
        OF_CONTROL,
    ),
    mutant(
        "what is done before a seek is lost",
        "a seek holds",
        "group.py",
        "            if self.session and self.session.rounds.is_sought_away(fence):\n"
        "                return\n",
        "",
        OF_CONTROL,
    ),
    mutant(
        "a child is opened by what was true before the seek",
        "parents first",
        "wire/writes.py",
        '    condition = Test("epoch", "=", shard.epoch)\n'
        '    return Write(shard_row_key(app, shard), condition, {"ready": True})\n',
        '    condition = Test("pk", "exists")\n'
        '    return Write(shard_row_key(app, shard), condition, {"ready": True})\n',
        OF_WRITES,
    ),
    mutant(
        "a sought child doesn't wait",
        "parents first",
        "wire/operators.py",
        '        values["ready"] = False\n',
        "        pass\n",
        "tests/wire/test_operators.py",
    ),
    mutant(
        "the drained get shards",
        "a drained client is planned without",
        "core/plan.py",
        'return member.drained or member.state == "leaving"',
        'return member.state == "leaving"',
        "tests/core/test_plan.py",
    ),
    mutant(
        "a drained session forgets it when it dies",
        "a drained client stays so",
        "heartbeat.py",
        "self._member(session, before)._replace(drained=drained)",
        "self._member(session, before)",
        "tests/test_heartbeat.py",
    ),
)
