"""Section 7: hand-overs, takeovers, and the limits when a client dies."""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import drop, never, replace

OF_ROUNDS = "tests/unit/coordination/test_lease_coordinator.py"
OF_CLAIMS = "tests/unit/coordination/test_lease_coordinator_claims.py"
KNOWN = "tests/integration/simulation/test_known_failures.py"
buffer = Module("consuming.prefetch", "tests/unit/consuming/test_prefetch.py")
membership = Module("coordination.membership", OF_CLAIMS)
group = Module("coordination.group", "tests/unit/coordination/test_group.py")
owned = Module("consuming.owned_shard", "tests/unit/consuming/test_owned_shard.py")
holding_simulated = Module("consuming.owned_shard")
ownership = Module("core.claims", "tests/unit/core/test_claims.py")
held_shards = Module("coordination.held_shards", OF_ROUNDS)
lease_coordinator = Module("coordination.lease_coordinator", OF_ROUNDS)
shard_rows = Module(
    "coordination.store_queries", "tests/unit/coordination/test_store_queries.py"
)

MUTANTS = (
    held_shards(
        "a hand-over doesn't drain",
        "7 waits for what is in user code",
        "HeldShards.release",
        replace("owned.drained(drain_seconds)", "owned.drained(0.0)"),
        "tests/unit/coordination/test_lease_coordinator.py::test_a_release_waits_for_user_code_but_not_for_ever",
    ),
    owned(
        "a hand-over drains for ever",
        "7 drain_timeout_seconds; K4, K14",
        "OwnedShard.drained",
        replace("seconds", "None"),
        OF_ROUNDS,
    ),
    held_shards(
        "a shard is delivered while it is given up",
        "7 drops what is fetched but undelivered",
        "HeldShards.release",
        drop("owned.revoke()") + drop("self._buffer.drop(owned)"),
    ),
    owned(
        "a shard is read while it is given up",
        "7 stops fetching",
        "OwnedShard._enter",
        drop("if self.task is not None: ..."),
    ),
    buffer(
        "what is fetched of a lost shard is kept",
        "9 memory is bounded; K16",
        "PrefetchBuffer.drop",
        never("batch.owned is owned"),
    ),
    held_shards(
        "what was done while draining isn't stored",
        "7 releases with the last position",
        "HeldShards.release",
        replace(
            "self._delivery.sync_progress(); app, position = ...",
            "app, position = self._context.app, None",
        ),
    ),
    ownership(
        "a plan moves every shard",
        "7 shards that don't move never pause; Go 23",
        "to_release",
        replace("not contains(...)", "range_"),
    ),
    ownership(
        "shards outside the range are kept",
        "7; L2; Go 13",
        "to_release",
        replace("[key for key, since in outside.items() if ...]", "[]"),
    ),
    ownership(
        "a range ends before its last hash key",
        "2 a client owns the shards in its range",
        "contains",
        replace(
            "interval.first <= first_hash <= interval.last",
            "interval.first < first_hash <= interval.last",
        ),
    ),
    ownership(
        "a range is of any stream",
        "2; Go 28",
        "contains",
        drop("arn == interval.stream_arn"),
    ),
    shard_rows(
        "what lies at a range's end isn't seen",
        "2 exactly its own rows with one Query",
        "read_range",
        replace("... + '/~'", "rows.hash_text(last)"),
    ),
    ownership(
        "a claimer believes in no death",
        "7 claim with the dead session named",
        "decide_claims",
        drop("row.owner in dead"),
    ),
    ownership(
        "a claimer takes any silence for death",
        "7 the claimer verifies the death",
        "decide_claims",
        replace(
            "decision.verify.add((row.owner_id, row.owner))",
            "decision.claim.append(row)",
        ),
    ),
    membership(
        "a claimer looks for deaths in a stale read",
        "7 by a consistent read; Go 12",
        "DeadSessions.verify",
        replace(
            "self._context.store.get(rows.member_key(...))",
            "self._context.store.get("
            "rows.member_key(self._context.app, client_id), consistent=False)",
        ),
    ),
    lease_coordinator(
        "a claim without a lease",
        "5 what it owns, it proved within its lease",
        "LeaseCoordinator.run_once",
        drop("if not self._lease.permits(...): ..."),
    ),
    lease_coordinator(
        "a dead session takes what it claimed",
        "5 told dead: drop everything",
        "LeaseCoordinator._claim",
        drop("self._lease.dead"),
        OF_CLAIMS,
    ),
    lease_coordinator(
        "the position comes from before the claim",
        "7 from the claim's answer; Go 12",
        "LeaseCoordinator._claim",
        replace(
            "self._start_shard(won)",
            "self._start_shard(won._replace(position=row.position))",
        ),
        OF_CLAIMS,
    ),
    lease_coordinator(
        "a failed look is never tried again",
        "7; Go 16",
        "LeaseCoordinator.run_once",
        replace("now + SLOW_POLL_SECONDS", "float('inf')"),
    ),
    lease_coordinator(
        "pending shards are looked for once a minute",
        "7 every 250 ms",
        "LeaseCoordinator._claim_in_range",
        drop("self._next_read = ... + pause"),
    ),
    owned(
        "reading doesn't pause at max_uncommitted_records",
        "7 max_uncommitted_records",
        "OwnedShard.wait_for_capacity",
        never(
            "self._outstanding + count > self._max_uncommitted and self._outstanding"
        ),
    ),
    holding_simulated(
        "the fence is that of the epoch before",
        "7 a record carries its fence",
        "OwnedShard.__init__",
        replace("row.epoch", "row.epoch - 1"),
    ),
    group(
        "a stop gives nothing up",
        "7; K6, KCL's graceful stop",
        "GroupConsumer._give_up",
        replace(
            "await asyncio.gather(*releases)",
            "for release in releases: release.close()",
        ),
    ),
    group(
        "a stop leaves the session alive",
        "4 Leave; K6",
        "GroupConsumer._give_up",
        replace("await self.context.write(writes.leave(...))", "_ = timestamp"),
    ),
    group(
        "a stop waits for ever",
        "K14, Go 15",
        "GroupConsumer.stop",
        replace("timeout(...)", "asyncio.timeout(None)"),
        f"{KNOWN}::test_a_stop_ends_in_time_though_the_store_does_not_answer",
    ),
    group(
        "who leaves doesn't wait for its heirs",
        "7 a graceful hand-over; K6",
        "GroupConsumer.leave",
        replace("timeout(LEAVE_TIMEOUT_HEARTBEATS * interval)", "asyncio.timeout(0)"),
        "tests/integration/simulation/test_liveness.py::test_l2_shards_hardly_pause_when_a_fleet_is_restarted_one_by_one",
    ),
    group(
        "who leaves says so to nobody",
        "7 planned move; K6",
        "GroupConsumer.leave",
        drop("self.set_state('leaving')"),
        "tests/integration/simulation/test_liveness.py::test_l2_a_leave_ends_in_the_plan_without_a_record_repeated",
    ),
    lease_coordinator(
        "streams removed by refresh are still consumed",
        "Go 19",
        "LeaseCoordinator._requested_parts",
        replace("tuple(...)", "range_"),
    ),
    group(
        "a refresh tells the leader nothing",
        "6; Go 19",
        "GroupConsumer._request_streams",
        drop("await self.context.write(writes.request_streams(...))"),
        "tests/unit/coordination/test_group_faults.py::test_refresh_adds_and_removes_streams",
    ),
)
