"""Section 8: resharding, starts, and streams and stores that were recreated."""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import drop, move, never, replace

OF_ENDS = "tests/unit/coordination/test_lease_coordinator_ends.py"
OF_FATAL = "tests/integration/simulation/test_fatal.py"
shard_end = Module("coordination.shard_end", OF_ENDS)
owned = Module("consuming.owned_shard", OF_ENDS)
startup_checks = Module("coordination.startup_checks", OF_FATAL)
shard_sync = Module(
    "coordination.shard_sync", "tests/unit/coordination/test_shard_sync.py"
)
leader = Module("coordination.leader")
lineage = Module("core.lineage", "tests/unit/core/test_lineage.py")
ownership = Module("core.claims", "tests/unit/core/test_claims.py")
reader = Module("consuming.shard_reader", "tests/unit/consuming/test_shard_reader.py")

MUTANTS = (
    owned(
        "a shard ends before its records are done",
        "8 all its records are done; K1",
        "OwnedShard.finished",
        replace("self.revoked or self.is_finished", "True"),
    ),
    shard_end(
        "a shard without news never ends",
        "K7",
        "ShardEndHandler.wait_and_close",
        replace("owned.children is not None", "... and owned.position is not None"),
    ),
    shard_end(
        "children are left to the leader",
        "8 no leader needed; L4",
        "ShardEndHandler.wait_and_close",
        replace("await self._children(owned)", "[]"),
    ),
    shard_end(
        "children are made after the end",
        "8 a crash between them loses nothing",
        "ShardEndHandler._end",
        move(
            "opening = []\nfor child in children: ...", before="for row in opening: ..."
        ),
        note="The leader's repairs make up for it within a listing; sooner is L4.",
    ),
    shard_end(
        "siblings are read before the end is written",
        "8 both write End before they read the sibling",
        "ShardEndHandler._end",
        replace(
            "if not await self._shards.write_as_owner(...): ...",
            "ended = self._parents_ended\n"
            "free = [r for r in opening if r and await ended(owned, r)]\n"
            "...",
        )
        + replace("row and not row.ready and await ...", "row and row in free"),
        note="The leader's repairs make up for it within a listing; sooner is L4.",
    ),
    lineage(
        "children are ready when they are made",
        "8 children after all parents; K2, Go 2",
        "child_row",
        replace("_row(arn, child, ...)", "(...)._replace(ready=True)"),
        OF_ENDS,
    ),
    lineage(
        "children start at LATEST",
        "8 from their beginning; K2, Go 3",
        "child_row",
        replace("Start.TRIM_HORIZON", "Start.LATEST"),
    ),
    shard_end(
        "one parent is enough",
        "8 if every one has ended; async-kinesis",
        "ShardEndHandler._parents_ended",
        drop("if known is None or not known.ended: ..."),
    ),
    shard_end(
        "a sibling without a row has ended",
        "8 neither the table nor Kinesis knows it",
        "ShardEndHandler._parents_ended",
        replace("if parent in ids or ...: ...", "_ = ids"),
    ),
    shard_end(
        "a sibling that has expired never ends",
        "8 has expired, and counts as ended",
        "ShardEndHandler._parents_ended",
        replace("parent in ids or child.key.shard_id not in ids", "ids"),
    ),
    shard_end(
        "a listing without the child proves its parents gone",
        "8; truncated ListShards",
        "ShardEndHandler._parents_ended",
        drop("child.key.shard_id not in ids"),
    ),
    shard_end(
        "children aren't opened by the owner",
        "8 writes Ready; L4",
        "ShardEndHandler._end",
        drop("await self._context.write(writes.ready(app, row))"),
    ),
    lineage(
        "a repair opens children too soon",
        "8 children after all parents",
        "_parents_ended",
        replace(
            "rows[parent].ended if parent in rows else parent not in pending",
            "parent not in pending",
        ),
    ),
    lineage(
        "a repair counts a pending parent as expired",
        "8 neither the table nor Kinesis knows it",
        "_parents_ended",
        replace("parent not in pending", "True"),
    ),
    lineage(
        "a repair waits for expired parents",
        "8 has expired, and counts as ended",
        "_parents_ended",
        replace("parent not in pending", "False"),
    ),
    ownership(
        "a child is read before its parent has ended",
        "8; K2, Go 2",
        "decide_claims",
        drop("if not row.ready: ...")
        + drop("Compare('ready', ...)", where="wire.writes:claim"),
        "tests/unit/coordination/test_lease_coordinator.py::test_a_shard_that_is_not_ready_is_waited_for",
    ),
    ownership(
        "what isn't ready is claimed again and again",
        "10 cost",
        "decide_claims",
        drop("if not row.ready: ..."),
    ),
    ownership(
        "what has ended is claimed again and again",
        "10 cost",
        "decide_claims",
        drop("row.ended"),
    ),
    lineage(
        "closed shards are dropped from the start",
        "2 drained to the end; Go 1",
        "first_rows",
        replace("shard.shard_id in ended", "... or shard.closed"),
    ),
    # --- starts
    shard_sync(
        "LATEST is resolved by each shard",
        "8 LATEST is resolved once; Go 3",
        "_create_initial_rows",
        replace("await stream.latest_start(context, info, shards)", "Start.LATEST"),
    ),
    shard_sync(
        "LATEST is the client's time",
        "8 from the Kinesis response; Go 11",
        "_create_initial_rows",
        replace(
            "await stream.latest_start(context, info, shards)",
            "Start(type='AT_TIMESTAMP', timestamp=context.clock.wall())",
        ),
        "tests/unit/coordination/test_shard_sync_latest.py",
    ),
    shard_sync(
        "LATEST is the time before the listing",
        "8",
        "_create_initial_rows",
        drop("info = ..."),
        "tests/unit/coordination/test_shard_sync_latest.py",
    ),
    shard_sync(
        "whoever finds a start resolved drops closed shards",
        "8 resolved once",
        "_create_initial_rows",
        replace("written.applied", "written.row"),
    ),
    leader(
        "claims before the baseline",
        "8 only then may anyone claim",
        "Leader._complete_streams",
        drop("s.baseline"),
        "tests/unit/coordination/test_leader.py::test_no_plan_is_made_before_a_baseline_stands",
    ),
    shard_sync(
        "a baseline that is never declared",
        "8 only then may anyone claim",
        "_create_initial_rows",
        drop("await context.write(writes.baseline(...))"),
    ),
    reader(
        "a start by time delivers what came before",
        "8 AT_TIMESTAMP",
        "_is_after",
        replace("arrived >= after.timestamp", "True"),
    ),
    # --- made anew
    shard_sync(
        "a stream made anew is simply read on",
        "8 stops the client with an error",
        "check_identity",
        never("row.created_at != info.created_at"),
        OF_FATAL,
    ),
    startup_checks(
        "a state store made anew is simply used",
        "8 stops the client with an error",
        "check_group",
        never("known is not None and current != known"),
    ),
)
