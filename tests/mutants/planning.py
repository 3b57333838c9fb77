"""Section 6: who leads, what it sees, and the plan."""

from __future__ import annotations

from tests.mutants.mutant import mutant

ELECTION = "tests/test_leader_election.py"
OF_LEADER = "tests/test_leader.py"
OF_AGENDA = "tests/core/test_agenda.py"
OF_PLAN = "tests/core/test_plan.py"
OF_LINEAGE = "tests/core/test_lineage.py"

MUTANTS = (
    # --- the leader
    mutant(
        "a leader that isn't seen is gone",
        "6 held while its session is not dead; Go 10",
        "leader.py",
        "        return self.leader.session in self.dead\n",
        "        return True\n",
        ELECTION,
    ),
    mutant(
        "who isn't in the list leads",
        "6; Go 10",
        "leader.py",
        "        if me not in ids:\n            return False\n",
        "        if me not in ids:\n            ids.insert(0, me)\n",
        "tests/test_leader_election.py::test_who_is_not_in_the_list_does_not_lead",
    ),
    mutant(
        "standbys step up all at once",
        "6 in order of index",
        "leader.py",
        "        await asyncio.sleep(ids.index(me) * STEP_SECONDS)\n"
        "        if ids.index(me) > 0 and not await self._is_leaderless():\n"
        "            return False\n",
        "",
        ELECTION,
    ),
    mutant(
        "nobody watches the leader",
        "6 warm standbys",
        "leader.py",
        "return member.session == self.leader.session",
        "return False",
        OF_LEADER,
    ),
    mutant(
        "a leader that was replaced goes on planning",
        "6; 4 Publish",
        "leader.py",
        "        if now is None or now[:3] != leader[:3]:\n"
        "            self.leader = now\n"
        "            return\n",
        "        if now is None:\n            return\n",
        ELECTION,
    ),
    mutant(
        "a plan of one's own term, whoever leads",
        "6; 4 Publish, Assign",
        "leader.py",
        "        if now is None or now[:3] != leader[:3]:\n"
        "            self.leader = now\n"
        "            return\n",
        "        now = leader._replace(plan_version=version)\n",
        ELECTION,
    ),
    mutant(
        "a plan from a stale view",
        "6 each P: queries the members; Go 12",
        "leader.py",
        "        self.members = [self._judged(m, now) for m in plan.alive(members)]\n",
        "        seen = [self._judged(m, now) for m in plan.alive(members)]\n"
        "        self.members = self.members or seen\n",
        OF_LEADER,
    ),
    mutant(
        "the dead take part in plans",
        "6 deaths at once",
        "core/plan.py",
        "found = (m for m in members if not m.dead and m.kind == CLIENT)",
        "found = (m for m in members if m.kind == CLIENT)",
        OF_PLAN,
    ),
    mutant(
        "who leaves gets shards",
        "7 planned move",
        "core/plan.py",
        'staying = [m for m in members if m.state != "leaving"]',
        "staying = list(members)",
        OF_PLAN,
    ),
    mutant(
        "who can't reach Kinesis gets shards",
        "9 Kinesis unreachable",
        "core/plan.py",
        'if m.state not in ("degraded", "silent")]',
        'if m.state != "silent"]',
        OF_PLAN,
    ),
    mutant(
        "if nobody is well nobody gets shards",
        "9 if most are healthy",
        "core/plan.py",
        "return well if 2 * len(well) >= len(staying) else staying",
        "return well",
        OF_PLAN,
    ),
    mutant(
        "every plan is written to everybody",
        "6 only the members whose range changed; Go 18",
        "core/plan.py",
        "            member.range != part.range\n            or member.keeps",
        "            True\n            or member.keeps",
        OF_PLAN,
    ),
    mutant(
        "joins aren't gathered",
        "6 joins gathered for 2 s; K17",
        "core/agenda.py",
        "return changed.other or self._asked or gathered",
        "return True",
        OF_AGENDA,
    ),
    mutant(
        "a join alone makes no plan",
        "6",
        "core/agenda.py",
        "return changed.other or self._asked or gathered",
        "return changed.other or self._asked",
        OF_AGENDA,
    ),
    mutant(
        "a plan while the one before still moves",
        "7 the gap is short",
        "core/agenda.py",
        "        if now < self._moving_until:\n            return False\n",
        "",
        OF_AGENDA,
    ),
    mutant(
        "a death waits for moves",
        "6 deaths at once",
        "core/agenda.py",
        "        if not plan.is_read(members, streams):\n            return True\n",
        "",
        OF_AGENDA,
    ),
    mutant(
        "shares drift for ever",
        "6 shard counts drifted; K17",
        "core/plan.py",
        "abs(now.get(client_id, 0) - share) > max(1, share // 10)",
        "False",
        OF_PLAN,
    ),
    mutant(
        "every split moves shards",
        "6; Go 23",
        "core/plan.py",
        "abs(now.get(client_id, 0) - share) > max(1, share // 10)",
        "now.get(client_id, 0) != share",
        OF_PLAN,
    ),
    # --- ranges
    mutant(
        "ranges with a hole",
        "6 assignors; I12",
        "core/assignment.py",
        "ends = [key - 1 if key else HASH_KEYS - 1 for _, _, key in begun[1:]]",
        "ends = [key - 2 if key else HASH_KEYS - 1 for _, _, key in begun[1:]]",
        "tests/core/test_assignment.py",
    ),
    mutant(
        "shares are rounded down",
        "6 sizes differ by at most one",
        "core/assignment.py",
        "return whole + (value - whole >= 0.5)",
        "return whole",
        "tests/core/test_assignment.py",
    ),
    mutant(
        "sticky gives away more than the excess",
        "6 sticky",
        "core/assignment.py",
        "given = min(excess[holder], end - begin)",
        "given = min(excess[holder] + 1, end - begin)",
        "tests/core/test_sticky.py",
    ),
    mutant(
        "streams are told apart by name only",
        "3 STREAM is the ARN; Go 28",
        "wire/rows.py",
        'return f"shard#{app}#{arn}"',
        "return f\"shard#{app}#{arn.rpartition('/')[2]}\"",
        "tests/wire/test_rows.py",
    ),
    # --- listings and repairs
    mutant(
        "a listing that was cut off counts",
        "6 its leaves tile the hash space; K20",
        "core/lineage.py",
        "    return expected == HASH_KEYS\n",
        "    return True\n",
        OF_LINEAGE,
    ),
    mutant(
        "a listing with a hole counts",
        "6 its leaves tile the hash space",
        "core/lineage.py",
        "        if leaf.first_hash != expected:\n            return False\n",
        "",
        OF_LINEAGE,
    ),
    mutant(
        "a listing of shards ends with its first page",
        "6 paged to the end; K20",
        "aws/kinesis.py",
        '            token = answer.get("NextToken")\n',
        '            token = ""\n',
        "tests/aws/test_kinesis.py::test_a_listing_is_followed_to_its_end",
        simulated=False,
    ),
    mutant(
        "a query ends with its first page",
        "6",
        "aws/dynamodb.py",
        'if not answer.get("LastEvaluatedKey"):',
        "if True:",
        "tests/aws/test_dynamodb.py::test_a_query_follows_its_pages",
        simulated=False,
    ),
    mutant(
        "what a crash left in between isn't repaired",
        "8 the leader repairs; K4",
        "keeper.py",
        "            *(writes.ready(context.app, shard) for shard in repairs.ready),\n",
        "",
        "tests/test_keeper.py",
    ),
    mutant(
        "missing children aren't made",
        "8 the leader repairs",
        "keeper.py",
        "        context, [writes.create_shard(context.app, new) "
        "for new in repairs.create]\n",
        "        context, []\n",
        "tests/test_keeper.py",
    ),
    mutant(
        "a shard that is listed is pruned",
        "4 Prune shard",
        "core/lineage.py",
        "prune=[row for row in rows if row.ended and row.key.shard_id not in listed]",
        "prune=[row for row in rows if row.ended]",
        OF_LINEAGE,
    ),
    mutant(
        "a shard is pruned as soon as it isn't listed",
        "4 Prune shard; late requests",
        "keeper.py",
        "if now - stream.unlisted_since[shard.key.shard_id] >= LATE_SECONDS",
        "if True",
        "tests/test_keeper.py",
    ),
    mutant(
        "a pruned shard is made again",
        "8 a parent that nobody knows has ended",
        "core/lineage.py",
        "[s for s in shards if s.shard_id not in by_id and s.shard_id not in past]",
        "[s for s in shards if s.shard_id not in by_id]",
        OF_LINEAGE,
    ),
    mutant(
        "a listing behind the rows counts",
        "6; 8",
        "core/lineage.py",
        "    if by_id and max(by_id) > max(listed):\n"
        "        return Repairs([], [], [])\n",
        "",
        OF_LINEAGE,
    ),
    mutant(
        "a live fleet of Go isn't refused",
        "3 migration; Go 6",
        "identity.py",
        "    if fresh:\n        raise GoFleetAliveError",
        "    if not found:\n        raise GoFleetAliveError",
        "tests/test_identity.py",
        simulated=False,
    ),
    mutant(
        "checkpoints of Go are left behind",
        "3 migration",
        "keeper.py",
        "for shard_id, text in numbers.items() if text}",
        "for shard_id, text in numbers.items() if False}",
        "tests/test_keeper.py",
        simulated=False,
    ),
)
