"""Section 6: the leader, its view of the members and shards, and the plan."""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import always, drop, never, replace

OF_LEADER = "tests/unit/coordination/test_leader.py"
rebalance = Module("core.rebalance", "tests/unit/core/test_rebalance.py")
assignment = Module("core.assignment", "tests/unit/core/test_assignment.py")
balance = Module("core.balance", "tests/unit/core/test_balance_labels.py")
dynamodb = Module("aws.dynamodb")
startup_checks = Module(
    "coordination.startup_checks", "tests/unit/coordination/test_startup_checks.py"
)
shard_sync = Module(
    "coordination.shard_sync", "tests/unit/coordination/test_shard_sync.py"
)
kinesis = Module("aws.kinesis")
leader = Module(
    "coordination.leader", "tests/unit/coordination/test_leader_election.py"
)
membership = Module("coordination.membership", OF_LEADER)
lineage = Module("core.lineage", "tests/unit/core/test_lineage.py")
plan = Module("core.plan", "tests/unit/core/test_plan.py")
rows = Module("wire.rows", "tests/unit/wire/test_rows.py")

MUTANTS = (
    # --- the leader
    leader(
        "a leader that isn't seen is gone",
        "6 held while its session is not dead; Go 10",
        "Leader._is_leaderless",
        replace("await self.watcher.is_dead(...)", "True"),
    ),
    leader(
        "who isn't in the list leads",
        "6; Go 10",
        "Leader._try_to_lead",
        replace("if me not in ids: ...", "if me not in ids: ids.insert(0, me)"),
        "tests/unit/coordination/test_leader_election.py::test_who_is_not_in_the_list_does_not_lead",
    ),
    leader(
        "standbys step up all at once",
        "6 in order of index",
        "Leader._try_to_lead",
        drop("await asyncio.sleep(...)") + drop("if ids.index(me) > 0 and ...: ..."),
    ),
    membership(
        "nobody watches the leader",
        "6 warm standbys",
        "MemberWatcher._should_fence",
        replace("member.session == leader.session", "False"),
        OF_LEADER,
    ),
    leader(
        "a leader that was replaced goes on planning",
        "6; 4 Publish",
        "Leader._publish",
        drop("now[:3] != leader[:3]") + replace("self.leader = now; return", "return"),
    ),
    leader(
        "a plan of one's own term, whoever leads",
        "6; 4 Publish, Assign",
        "Leader._publish",
        replace(
            "if now is None or now[:3] != leader[:3]: ...",
            "now = leader._replace(plan_version=version)",
        ),
    ),
    membership(
        "a plan from a stale view",
        "6 each P: queries the members; Go 12",
        "MemberWatcher.read_members",
        replace(
            "[self._with_liveness(m, now) for m in plan.live_clients(members)]",
            "self.members or ...",
        ),
        OF_LEADER,
    ),
    plan(
        "the dead take part in plans",
        "6 deaths at once",
        "live_clients",
        drop("not m.dead"),
    ),
    plan(
        "who leaves gets shards",
        "7 planned move",
        "assignable",
        replace("[m for m in members if not is_departing(m)]", "list(members)"),
    ),
    plan(
        "who can't reach Kinesis gets shards",
        "9 Kinesis unreachable",
        "assignable",
        replace("m.state not in ('degraded', 'silent')", "m.state != 'silent'"),
    ),
    plan(
        "if nobody is well nobody gets shards",
        "9 if most are healthy",
        "assignable",
        replace("well if 2 * len(well) >= len(staying) else staying", "well"),
    ),
    plan(
        "every plan is written to everybody",
        "6 only the members whose range changed; Go 18",
        "to_assign",
        replace("member.range != part.range", "True"),
    ),
    rebalance(
        "joins aren't gathered",
        "6 joins gathered for 2 s; K17",
        "RebalanceSchedule.is_due",
        replace("changed.other or ...", "True"),
    ),
    rebalance(
        "a join alone makes no plan", "6", "RebalanceSchedule.is_due", drop("gathered")
    ),
    rebalance(
        "a plan while the one before still moves",
        "7 the gap is short",
        "RebalanceSchedule.is_due",
        drop("if now < self._moving_until: ..."),
    ),
    rebalance(
        "a death waits for moves",
        "6 deaths at once",
        "RebalanceSchedule.is_due",
        drop("if not plan.is_fully_consumed(...): ..."),
    ),
    plan(
        "shares drift for ever",
        "6 shard counts drifted; K17",
        "has_drifted",
        replace("abs(a - share) > max(1, share // 10)", "False"),
    ),
    plan(
        "every split moves shards",
        "6; Go 23",
        "has_drifted",
        replace("abs(a - share) > max(1, share // 10)", "a != share"),
    ),
    # --- ranges
    assignment(
        "ranges with a hole", "6 assignors; I12", "_plan", replace("key - 1", "key - 2")
    ),
    balance(
        "shares are rounded down",
        "6 sizes differ by at most one",
        "_round",
        replace("whole + (value - whole >= 0.5)", "whole"),
        "tests/unit/core/test_assignment.py",
    ),
    balance(
        "a label gets what is rounded up for each of its members",
        "6 assignors; labels",
        "shares_of",
        replace("len(groups) < 2", "len(groups) > 0")
        + replace(
            "zip(order, shares(...), strict=True)",
            "zip(sorted(order), shares(pool.slots, weights), strict=True)",
        ),
        simulated=False,
    ),
    balance(
        "sticky leaves labels as they are",
        "6 sticky; labels",
        "balance",
        replace("members.groups(pool.requesters)", "{'': pool.requesters}"),
        simulated=False,
    ),
    assignment(
        "sticky gives away more than the excess",
        "6 sticky",
        "_release_excess",
        replace("excess[holder]", "excess[holder] + 1"),
        "tests/unit/core/test_assignment_sticky.py",
    ),
    rows(
        "streams are told apart by name only",
        "3 STREAM is the ARN; Go 28",
        "shard_partition",
        replace("arn", "arn.rpartition('/')[2]"),
    ),
    # --- listings and repairs
    lineage(
        "a listing that was cut off counts",
        "6 its leaves tile the hash space; K20",
        "is_complete",
        replace("expected == HASH_KEYS", "True"),
    ),
    lineage(
        "a listing with a hole counts",
        "6 its leaves tile the hash space",
        "is_complete",
        drop("if leaf.first_hash != expected: ..."),
    ),
    kinesis(
        "a listing of shards ends with its first page",
        "6 paged to the end; K20",
        "KinesisSource._listing",
        replace("answer.get('NextToken')", "''"),
        "tests/integration/aws/test_kinesis.py::test_a_listing_is_followed_to_its_end",
        simulated=False,
    ),
    dynamodb(
        "a query ends with its first page",
        "6",
        "DynamoStateStore._query",
        always("not answer.get('LastEvaluatedKey')"),
        "tests/integration/aws/test_dynamodb.py::test_a_query_follows_its_pages",
        simulated=False,
    ),
    shard_sync(
        "what a crash left in between isn't repaired",
        "8 the leader repairs; K4",
        "_sync_shards",
        drop("*(writes.ready(...) for shard in ready)"),
    ),
    shard_sync(
        "missing children aren't made",
        "8 the leader repairs",
        "_sync_shards",
        replace("[writes.create_shard(...) for new in repairs.create]", "[]"),
    ),
    lineage(
        "a shard that is listed is pruned",
        "4 Prune shard",
        "repairs",
        drop("row.key.shard_id not in listed"),
    ),
    shard_sync(
        "a shard is pruned as soon as it isn't listed",
        "4 Prune shard; late requests",
        "_long_unlisted",
        replace(
            "now - stream.unlisted_since[shard.key.shard_id]"
            " >= MAX_REQUEST_DELAY_SECONDS",
            "True",
        ),
    ),
    lineage(
        "a pruned shard is made again",
        "8 a parent that nobody knows has ended",
        "repairs",
        drop("s.shard_id not in past"),
    ),
    lineage(
        "a listing behind the rows counts",
        "6; 8",
        "repairs",
        drop("if by_id and max(by_id) > max(listed): ..."),
    ),
    startup_checks(
        "a live fleet of Go isn't refused",
        "3 migration; Go 6",
        "require_no_go_clients",
        replace("if fresh: ...", "if not found: raise GroupBusyError"),
        simulated=False,
    ),
    shard_sync(
        "checkpoints of Go are left behind",
        "3 migration",
        "_go_positions",
        never("text"),
        simulated=False,
    ),
)
